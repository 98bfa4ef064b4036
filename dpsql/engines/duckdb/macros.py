"""Generate the SQL macros of the private functions from their arguments.

``python -m dpsql.generate`` writes the files of ``sql/dp`` in a checkout. The comment above a macro comes from the
function's page (`dpsql.manual`). The macros of ``models.sql``, ``manual.sql`` and ``dp_split.sql`` are handwritten; so
is ``budget.sql``, except for macro parameters and the structs of arguments.

A macro passes all arguments as one struct, by their names, and DuckDB folds the planning function over constants while
it binds a statement. The aggregate form omits arguments about the columns of a table. The module also lists the
installed SQL files.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path

from dpsql.contract.arguments import Argument, Signature
from dpsql.contract.names import IN_SELECT, OTHER_NAMES
from dpsql.functions.estimate import ESTIMATE
from dpsql.functions.registry import DECLARATIONS, EXACT, FUNCTIONS, QUERY, function_of
from dpsql.manual.catalogue import MANUAL
from dpsql.rendering import identifier, text

_EXACT = ("exact/fixed_point.sql", "exact/xty.sql", "exact/discordant.sql", "exact/gram.sql")
_OTHER_NAMES = "dp/other_names.sql"
_BY_HAND = ("dp/lineage.sql", "dp/query.sql", "dp/models.sql", "dp/dp_split.sql", "dp/budget.sql", "dp/manual.sql")
# Macros that others call.
CALLED = (
    *("exact_double", "exact_fixed_point", "dpsql_lineage", "dpsql_typed", "dpsql_reads", "dpsql_tables"),
    *(
        "dpsql_said",
        "dpsql_texts",
        "dpsql_query_reads",
        "dpsql_planned",
        "dpsql_query_text",
        "dpsql_query_told",
        "dpsql_estimated",
    ),
)


def sql_texts() -> Iterator[str]:
    """Yield the text of every macro file."""
    root = files("dpsql.sql")
    for folder in ("dp", "exact"):
        for entry in sorted(root.joinpath(folder).iterdir(), key=lambda entry: entry.name):
            if entry.name.endswith(".sql"):
                yield entry.read_text(encoding="utf-8")


def macros_sql(scope: str, catalog: str) -> str:
    """Return the SQL that creates every macro, with `scope` before its name."""
    names = (*_EXACT, *_BY_HAND, _OTHER_NAMES, *(f"dp/{name}.sql" for name in (*EXACT, *FUNCTIONS)))
    sql = "\n".join(files("dpsql.sql").joinpath(name).read_text(encoding="utf-8") for name in names)
    sql = re.sub(
        r"(?<![\w.])(?<!MACRO )"
        rf"({'|'.join(CALLED)})\(",
        rf"{catalog}.main.\1(",
        sql,
    )
    return re.sub(r"CREATE OR REPLACE (TEMP )?MACRO ", f"CREATE OR REPLACE {scope}", sql)


SQL = Path(__file__).resolve().parents[3] / "sql" / "dp"
_WIDTH = 120
# Columns of the aggregate form, in parameter order.
_COLUMNS = ("x", "y", "p")
# Arguments of the exact form that the exact statistic does not depend on.
_SPENT = {"k": "1", "epsilon": "1"}
# Function of a macro with `release` alone, if the macro also reads its result from a release.
_OF_RELEASE = "dpsql_curve_area"
# Parameters that are SQL keywords, quoted when read.
_WORDS = ("by",)
# Arguments that people give a function under another name; more would slow each connection down.
_TRIED = (
    *("target", "quantiles", "epsilon", "delta", "lower", "upper", "by", "keys", "privacy_unit", "max_rows_per_unit"),
    *("condition", "dataset", "release"),
)
# The first parameters of the macros in budget.sql.
_FIRST = {
    "dp_protect": ("dataset",),
    "dp_public": ("source",),
    "dp_derive": ("source", "base"),
    "dp_unplaced": (),
    "dp_estimate": ("function",),
    QUERY: ("sql",),
}


def function_sql(name: str) -> str:
    """Return the macros of a function: the table form, and the aggregate form if it has one."""
    if name in EXACT:
        return _exact_form(name)
    if not any(argument.column for argument in FUNCTIONS[name].plan.arguments.values()):
        return _table_form(name)
    return f"{_table_form(name)}\n\n{_aggregate_form(name)}"


def _table_form(name: str) -> str:
    signature = FUNCTIONS[name].plan.arguments
    fields = {argument: argument for argument in signature}
    charged = (
        f"  SELECT * FROM system.main.query(dpsql_said(system.main.dpsql_plan(\n"
        f"    {text(name)}, 'table', CASE WHEN engine IS NULL THEN dpsql_lineage(source, release, condition) END,\n"
        f"    source,\n"
        f"{_struct(fields, 4)})))"
    )
    head = f"CREATE OR REPLACE TEMP MACRO {name}(\n{_parameters(('source',), signature.values())}\n) AS TABLE"
    if not FUNCTIONS[name].of_release:
        return f"{head}\n{charged};"
    return (
        f"{head} (\n{charged}\n),\n"
        "-- The release is named, release := 'roc', so that the name is not taken for a source.\n"
        "(release, dataset := NULL) AS TABLE (\n"
        "  SELECT system.main.unnest(entry) FROM (\n"
        f"    SELECT system.main.unnest(system.main.{_OF_RELEASE}(release, dataset::VARCHAR)) AS entry)\n);"
    )


def other_names_sql() -> str:
    """Return the macros that only say what to write: they are no functions of the manual, and charge nothing.

    An aggregate form shows its epsilon alone: `query` takes constants, so no message shows a value of a row.
    """
    parts = ["-- Names and places that people try: these macros only say what to write."]
    for name, (_, function, _) in OTHER_NAMES.items():
        arguments = FUNCTIONS[function].plan.arguments
        signature = {key: arguments[key] for key in _TRIED if key in arguments}
        columns = [argument for argument in signature.values() if not argument.column and not argument.table_only]
        parts += [
            _saying_form(name, ("source",), signature),
            f"CREATE OR REPLACE TEMP MACRO {name}(\n{_parameters(('y',), columns)}\n) AS\n"
            f"  (SELECT NULL FROM system.main.query(dpsql_said(system.main.dpsql_other_name(\n"
            f"    {text(name)}, NULL,\n{_struct({'epsilon': 'epsilon'}, 4)}))));",
        ]
    parts += [_saying_form(name, _FIRST[name], DECLARATIONS[name]) for name in IN_SELECT]
    return "\n\n".join(parts)


def _saying_form(name: str, first: tuple[str, ...], signature: Mapping[str, Argument]) -> str:
    fields = {argument: argument for argument in (*first[1:], *signature)}
    return (
        f"CREATE OR REPLACE TEMP MACRO {name}(\n{_parameters(first, signature.values())}\n) AS TABLE\n"
        f"  SELECT * FROM system.main.query(dpsql_said(system.main.dpsql_other_name(\n"
        f"    {text(name)}, {first[0]},\n{_struct(fields, 4)})));"
    )


def _exact_form(name: str) -> str:
    signature = FUNCTIONS[EXACT[name]].plan.arguments
    parameters = [argument for argument in signature.values() if argument.statistic]
    fields = {key: _SPENT.get(key, key) for key in signature if signature[key].statistic or key in _SPENT}
    return (
        f"CREATE OR REPLACE TEMP MACRO {name}(\n{_parameters(('source',), parameters)}\n) AS TABLE\n"
        f"  SELECT * FROM system.main.query(dpsql_said(system.main.dpsql_plan(\n"
        f"    {text(name)}, 'table', dpsql_typed(source, condition), source,\n{_struct(fields, 4)})));"
    )


def _aggregate_form(name: str) -> str:
    function = FUNCTIONS[name]
    signature = function.plan.arguments
    columns = [argument for argument in signature.values() if argument.column]
    parameters = [argument for argument in signature.values() if not argument.column and not argument.table_only]
    if function.plan.names_after is not None:
        parameters = _moved(parameters, ("n_features", "names"), function.plan.names_after)
    fields = {argument.name: text(argument.column) for argument in columns}
    fields |= {argument: argument for argument in signature if signature[argument] in parameters}
    first = [column for column in _COLUMNS if column in {argument.column for argument in columns}]
    row = ", ".join(f"{argument.column} := {argument.column}" for argument in columns)
    plan = (
        f"SELECT plan FROM system.main.query(dpsql_said(system.main.dpsql_plan(\n"
        f"      {text(name)}, 'aggregate', NULL, '',\n{_struct(fields, 6)})))"
    )
    return (
        f"CREATE OR REPLACE TEMP MACRO {name}(\n{_parameters(first, parameters)}\n) AS\n"
        "  -- system.main.query() takes constants only, so no argument can carry a value of the data; the filter's\n"
        "  -- plan fails before a row is read when the budget does not suffice.\n"
        f"  system.main.dpsql_aggregate_{function.shape.name}(\n"
        f"    system.main.list(system.main.struct_pack({row})) FILTER (WHERE ({plan}) IS NOT NULL),\n"
        f"    ({plan}));"
    )


def _moved(arguments: list[Argument], names: tuple[str, ...], after: str) -> list[Argument]:
    """Return the arguments with some of them moved behind another one."""
    rest = [argument for argument in arguments if argument.name not in names]
    index = 1 + next(number for number, argument in enumerate(rest) if argument.name == after)
    return rest[:index] + [argument for argument in arguments if argument.name in names] + rest[index:]


def _parameters(first: Iterable[str], arguments: Iterable[Argument], *, has_defaults: bool = False) -> str:
    """Return a macro's parameters; optional ones default to NULL, or to their own default with `has_defaults`."""
    return _filled(
        [*first, *(f"{argument.name} := {_default(argument, has_defaults=has_defaults)}" for argument in arguments)], 2
    )


def _default(argument: Argument, *, has_defaults: bool) -> str:
    if argument.null_is_wrong:
        return "false"
    return str(argument.default).lower() if has_defaults and argument.default is not None else "NULL"


def _struct(fields: Mapping[str, str], indent: int) -> str:
    """Return a struct of values by their names."""
    lead = " " * indent
    if not fields:
        return f"{lead}system.main.struct_pack()"
    inner = _filled(
        [f"{name} := {identifier(value) if value in _WORDS else value}" for name, value in fields.items()], indent + 2
    )
    return f"{lead}system.main.struct_pack(\n{inner})"


def _filled(parts: list[str], indent: int) -> str:
    """Return comma-separated parts in lines of at most `_WIDTH` characters."""
    lines, line = [], " " * indent + parts[0]
    for part in parts[1:]:
        if len(line) + len(part) + 3 > _WIDTH:
            lines.append(line + ",")
            line = " " * indent + part
        else:
            line += f", {part}"
    return "\n".join([*lines, line])


def _declared(source: str, signatures: Mapping[str, Signature]) -> str:
    """Return a file's text with parameter lists and structs generated from the arguments."""
    for name, signature in signatures.items():
        head = f"CREATE OR REPLACE TEMP MACRO {name}("
        if source.count(head) != 1:
            raise SystemExit(f"There must be one macro {name}.")
        before, after = source.split(head)
        body, rest = after.split(";\n", 1)
        if "struct_pack(" not in body:
            raise SystemExit(f"{name} must hand over a struct.")
        parameters = _parameters(_FIRST[name], signature.values(), has_defaults=name in DECLARATIONS)
        struct = _struct({argument: argument for argument in signature}, 4).lstrip()
        body = re.sub(r"\A.*?\n?\) AS", f"\n{parameters}\n) AS", body, count=1, flags=re.DOTALL)
        body = re.sub(r"system\.main\.struct_pack\([^()]*\)", struct, body, count=1)
        source = f"{before}{head}{body};\n{rest}"
    return source


def generated() -> Iterator[tuple[Path, str]]:
    """Yield every generated file with its expected text."""
    for name in (*FUNCTIONS, *EXACT):
        yield SQL / f"{name}.sql", f"{_header(name)}{function_sql(name)}\n"
    yield SQL / "other_names.sql", f"{other_names_sql()}\n"
    path = SQL / "budget.sql"
    signatures: dict[str, Signature] = {**DECLARATIONS, "dp_estimate": ESTIMATE}
    yield path, _commented(_declared(path.read_text(encoding="utf-8"), signatures))
    path = SQL / "query.sql"
    yield path, _commented(_declared(path.read_text(encoding="utf-8"), {QUERY: function_of(QUERY).plan.arguments}))
    for path in (SQL / "models.sql", SQL / "manual.sql", SQL / "dp_split.sql"):
        yield path, _commented(path.read_text(encoding="utf-8"))


def _header(name: str) -> str:
    """Return the comment above a function's macros: the manual's summary and a pointer to the rest."""
    page = MANUAL[name]
    lines = [f"{name}: {page.summary}", f"Guarantee: {page.guarantee}", f"More: docs/functions/{name}.md"]
    return "".join(f"-- {line}\n" for text in lines for line in textwrap.wrap(text, _WIDTH - 3))


def _commented(source: str) -> str:
    """Return a file's text with the manual's comment above each documented macro."""

    def above(macro: re.Match[str]) -> str:
        return (_header(macro["name"]) if macro["name"] in MANUAL else macro["comment"]) + macro["head"]

    pattern = r"(?P<comment>(?:^--.*\n)*)(?P<head>^CREATE OR REPLACE TEMP MACRO (?P<name>\w+))"
    return re.sub(pattern, above, source, flags=re.MULTILINE)

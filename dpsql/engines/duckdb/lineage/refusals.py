"""The refusals while dpsql places a source, such as functions and views that no plan shows, and their messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from dpsql.contract.expression.functions import VIEW
from dpsql.contract.parameters import fold, show
from dpsql.engines.duckdb.lineage.declarations import PROTECT, Declaration, Declarations, Owner
from dpsql.engines.duckdb.lineage.functions import own
from dpsql.engines.duckdb.lineage.rows import Key
from dpsql.errors import BudgetError, SourceError
from dpsql.rendering import identifier
from dpsql.rendering import text as literal


def refuse_functions(source: str, names: Iterable[str]) -> None:
    """Raise for a function of a plan that no source may call; DuckDB itself adds `error` for subqueries."""
    for name in sorted(set(names)):
        listed = own().get(name.lower())
        if name and (listed is None or (VIEW not in listed.places and listed.group != "failing")):
            raise function_refused(source, name)


def function_refused(source: str, name: str, *, in_from: bool = False) -> SourceError:
    """Return the refusal of a function that no source may call, or not at its position."""
    listed = own().get(name.lower())
    if listed is None and in_from:
        why = (
            "is none of DuckDB's own functions, so a row of it may follow from others. Load the rows, CREATE TABLE t "
            f"AS FROM {name}(...), and protect t."
        )
    elif listed is None:
        why = (
            "is none of DuckDB's own functions, so what it returns may follow from other rows. Compute the column "
            "into a table, and have its owner declare that with dp_derive."
        )
    elif listed.group == "type":
        why = "would show the values of the ENUM type of a column that is read. Cast that column to VARCHAR in a table."
    elif VIEW in listed.places:
        why = "reads something else than it seems to here. Name the table or the file in FROM."
    else:
        why = f"is not allowed in a source. {listed.reason} {listed.instead}"
    return SourceError("S041", f"{show(source)} calls {name}(), which {why}")


def type_refused(source: str, name: str) -> SourceError:
    """Return the refusal of a user's type."""
    return SourceError(
        "S042",
        f"{show(source)} names the type {show(name)}, whose values may be made from rows. Write the type itself, such "
        "as VARCHAR, DECIMAL(18, 2) or ENUM('a', 'b'); a column that has the type is read as it is.",
    )


def unreadable_text(source: str, what: str = "") -> SourceError:
    """Return the refusal of a source with a text that dpsql cannot read."""
    if what:
        why = f"{what} is given a text that is put together. Write the text itself"
    else:
        why = "it, or what it calls, is no text that dpsql knows. Write it as a view: CREATE VIEW ... AS SELECT ..."
    return SourceError("S044", f"what {show(source)} names cannot be read: {why}.")


def hidden_statement() -> SourceError:
    """Return the refusal of an aggregate form in a statement with its text elsewhere, such as EXECUTE."""
    return SourceError(
        "S044",
        "what the statement aggregates cannot be read: its text is elsewhere (EXECUTE). Run the SELECT itself, or "
        "prepare the table form, FROM dp_...('table', ...).",
    )


def variable_read(name: str) -> SourceError:
    """Return the refusal of an aggregate form over a Python variable."""
    return SourceError(
        "S014",
        f"what the statement reads cannot be seen: {show(name)} is no table or view, and a variable of Python may hold "
        f"anything. Use the table form, FROM dp_...({literal(name)}, dataset := ...), or register the frame under a "
        "name.",
    )


def default_left_out(source: str, macro: str, parameters: Sequence[str]) -> SourceError:
    """Return the refusal of a call that omits an argument of a macro, since DuckDB hides its default."""
    return SourceError(
        "S044",
        f"what {show(source)} names cannot be read: it leaves out an argument of {macro}(), whose default DuckDB does "
        f"not show. Give every argument: {', '.join(parameters)}.",
    )


def beside_unseen(source: str, table: str, files: Sequence[str]) -> SourceError:
    """Return the refusal of a source that names a protected table and a file or a frame."""
    file = files[0] if files else "file.parquet"
    name = re.sub(r"\W+", "_", re.split(r"[/\\]", file)[-1].split(".")[0]) or "t"
    return SourceError(
        "S043",
        f"{show(source)} names {show(table)}, which has a budget, beside a file or a frame, so that how far one of its "
        f"rows reaches cannot be seen. Make a table of that: CREATE TABLE {identifier(name)} AS FROM {literal(file)}; "
        f"SELECT dp_public({literal(name)}); and name {identifier(name)} in the view.",
    )


def other_files(view: str) -> SourceError:
    """Return the refusal of a view whose files are not those that its owner declared; the fault is the source's."""
    return SourceError(
        "S068",
        f"the files of the view {show(view)} are missing, cannot be read, or have other columns or types than when it "
        "was declared. Its owner puts them back, or declares the view again.",
    )


def text_of_files(view: str, why: str) -> SourceError:
    """Return the refusal of a view over files that plain SQL does not read."""
    return SourceError(
        "S069",
        f"plain SQL does not read the files of the view {show(view)}: {why}. It reads Parquet and CSV files, row "
        f"by row. Load the rows, CREATE TABLE t AS FROM {view}, and protect t; or ask a function: "
        f"dp_count({literal(view)}).",
    )


def other_columns(table: str) -> BudgetError:
    """Return the refusal of a public table with other columns or types than its declaration."""
    return BudgetError(
        "B020",
        f"the public table {show(table)} has other columns or types than its owner declared. Declare it again: "
        f"SELECT dp_public({literal(table)});",
    )


def other_table(table: str, moved: str) -> BudgetError:
    """Return the refusal of a public name that may stand for a table with rows of people."""
    return BudgetError(
        "B021",
        f"{show(moved)}, which has a budget or is derived, is missing or was renamed. The public name {show(table)} "
        f"may stand for its rows. If {show(table)} tells of nobody, its owner declares it again: "
        f"SELECT dp_public({literal(table)});",
    )


def alike(table: str, other: str) -> BudgetError:
    """Return the refusal of a public name that may stand for a table with the same columns and with rows of people."""
    return BudgetError(
        "B021",
        f"{show(other)} has a budget or is derived, and has the columns of the public table {show(table)}. After "
        f"a table was made or a file opened, dpsql cannot tell the two apart. If {show(table)} tells of nobody, "
        f"its owner declares it again: SELECT dp_public({literal(table)}, force := true);",
    )


def order_decides(source: str, function: str, to_order: str = "", *, in_files: bool = False) -> SourceError:
    """Return the refusal of a function whose value follows from the order of rows, and the order to write."""
    if in_files:
        step = "No plan shows the columns of files, so load them: CREATE TABLE t AS FROM ..., and read t in the view."
    elif to_order:
        step = f"Rows may tie in its order. Write {to_order}"
    else:
        step = _FIXED.get(re.split(r"\(| of ", function)[0], _FIXED[""])
    return SourceError(
        "S045",
        f"{function} in {show(source)} follows from the order in which DuckDB reads rows, which other rows can change. "
        f"{step}",
    )


_SINGLE = "Use a column that is PRIMARY KEY, or GROUP BY the column, so that there is one row."
_ZERO = "0 and -0 are equal, and so are all NaN. Cast the number before, CAST(x AS DECIMAL(18, 3))."
_ADD = "Add exactly, sum(CAST(x AS DECIMAL(18, 3)))."
_CHOOSE = "Order the rows by all their columns, first(x ORDER BY k, x), or take min, max, median or count."
# The correction, by the start of the refused expression.
_FIXED: Mapping[str, str] = {
    "": "Add exactly, sum(CAST(x AS DECIMAL(18, 3))); give windows, lists and DISTINCT ON an ORDER BY of all columns "
    "that the SELECT reads; or take min, max, median or count.",
    "sum": _ADD,
    "avg": _ADD,
    "mean": _ADD,
    **dict.fromkeys(("arg_max", "argmax", "max_by"), "Write first(x ORDER BY k DESC, x)."),
    **dict.fromkeys(("arg_min", "argmin", "min_by"), "Write first(x ORDER BY k, x)."),
    **dict.fromkeys(("list", "array_agg"), "Sort the list by itself, list(x ORDER BY x)."),
    **dict.fromkeys(("first", "last", "any_value", "arbitrary"), _CHOOSE),
    **dict.fromkeys(("hash", "signbit", "a cast to VARCHAR", "a number with several spellings"), _ZERO),
    "a subquery in place of a value": _SINGLE,
    "a second order": "Give all windows that number rows one PARTITION BY and one ORDER BY, or read a table "
    "with a PRIMARY KEY and order by that.",
}


# Operators of forms that may use only each person's rows, although no plan shows it.
_UNSHOWN = frozenset(
    ("rowid", "CROSS_PRODUCT", "DELIM_JOIN", "AGGREGATE", "MARK JOIN", "SEMI JOIN", "ANTI JOIN", "SINGLE JOIN")
)


def join_to_write(operator: str) -> str:
    """Return the joins to write instead of an operator that breaks a property; ``''`` if no join helps."""
    if operator not in _UNSHOWN:
        return ""
    return (
        " Write FROM a, b as a JOIN b ON the unit or the path; EXISTS and IN as JOIN (SELECT DISTINCT unit FROM ...) "
        "USING (unit); NOT EXISTS as LEFT JOIN of that, WHERE it IS NULL; a value for each person as LEFT JOIN (SELECT "
        "unit, ... GROUP BY unit) USING (unit)."
    )


def pending(source: str, key: Key, declarations: Declarations) -> SourceError:
    """Return the refusal of rows that point to a table without a join to it."""
    parent = next((declaration for declaration in declarations.listed if declaration.table == key.table), None)
    owner = None if parent is None or parent.table is None else declarations.owner(parent.table, parent.table.database)
    child = next(
        declaration
        for declaration in declarations.listed
        if declaration.path is not None and declaration.path.end == key
    )
    joins = f"JOIN {key.table.name} ON {child.table and child.table.name}.{child.path and child.path.column}"
    joins += f" = {key.table.name}.{key.column}"
    if owner is not None:
        joins += joins_of(owner, key.table.name)
    return SourceError(
        "S017",
        f"{show(source)} reads rows that belong to a person by a path alone, and does not pass the privacy unit on. "
        f"Join along the path in the view: {joins}.",
    )


def joins_of(owner: Owner, here: str) -> str:
    """Return the joins from a table along its path, for a view, with the column to select."""
    joins = ""
    for step in owner.steps:
        joins += f" JOIN {step.parent.name} ON {here}.{step.column} = {step.parent.name}.{step.key}"
        here = step.parent.name
    return f"{joins}, and select {here}.{owner.unit}"


def path_lost(source: str) -> BudgetError:
    """Return the refusal of a table whose path differs from the declaration."""
    return BudgetError(
        "B007",
        f"the path of {show(source)} is another one than was declared: a table of it is gone, is a view, or has other "
        "columns. Declare the tables again with the same dp_protect.",
    )


def undated(source: str, dataset: str, dates: Sequence[str]) -> SourceError:
    """Return the refusal of a source that does not pass on the date of its rows' periods."""
    date = " or ".join(dict.fromkeys(dates))
    return SourceError(
        "S017",
        f"the budget of {show(dataset)} is kept by the periods of {show(date)}, and {show(source)} does not pass that "
        f"column on as it is. Select {date} in a view of the table, once; a table that was made from it has none.",
    )


def date_to_keep(dates: Sequence[str]) -> str:
    """Return the correction of a source that mixes rows of several periods."""
    names = " or ".join(map(show, dict.fromkeys(dates)))
    return (
        f" Keep {names} beside it, or date_trunc of it, and join other dated tables by both; join undated ones "
        "to dated rows by the unit."
    )


def refuse_alike(
    name: str, columns: Sequence[str], declarations: Declarations, *, engine: str | None, spelling: str
) -> None:
    """Raise if a new public table has the columns of a protected table."""
    mine = set(map(fold, columns))
    spelled = name if engine is None else spelling
    for declaration in declarations.listed:
        theirs = set(map(fold, declaration.columns))
        alike = bool(mine & set(map(fold, declaration.telling))) or (theirs and theirs <= mine)
        if declaration.kind == PROTECT and alike:
            derive = declaring("dp_derive", spelled, declaration.dataset, more="...", engine=engine)
            public = declaring("dp_public", spelled, more="force := true", engine=engine)
            raise BudgetError(
                "B009",
                f"{show(name)} has the columns of {show(declaration.dataset)}, which has a budget. If it has its rows: "
                f"{derive}. If it tells of nobody: {public}.",
            )


def second_budget(mine: Declaration, other: Declaration, what: str) -> str:
    """Return the warning to an owner whose table may hold people that already have a budget."""
    if mine.shares_budget:
        step = f"Add the table to that budget, or end that budget in this one with merge := [{literal(other.dataset)}]"
    else:
        own = "one_row_each := true" if other.unit is None else "own_rows_only := true"
        step = declaring("dp_derive", mine.dataset, other.dataset, more=own)
    return (
        f"; warning: {show(other.dataset)} has the same {what}. People in both tables have two budgets, whose losses "
        f"add up. For one budget: {step}"
    )


def undeclared(
    name: str, declarations: Declarations, *, engine: str | None = None, spelled: str | None = None
) -> BudgetError:
    """Return the refusal of an undeclared table, with the statements that declare it.

    `engine` is the table's engine, and `spelled` is the table's name in statements, if not `name`.
    """
    spelled = name if spelled is None else spelled
    protect = declaring("dp_protect", spelled, more="epsilon := ...", engine=engine)
    derive = declaring("dp_derive", spelled, "...", more="...", engine=engine)
    return BudgetError(
        "B006",
        f"{show(name)} has no budget, and the ledger protects data. To give it one: {protect}. If it was made from a "
        f"protected table, name that: {derive}. If it tells of nobody: "
        f"{declaring('dp_public', spelled, engine=engine)}.",
    )


def declaring(function: str, *names: str, more: str = "", engine: str | None = None) -> str:
    """Return the statement that declares a table, as a next step.

    `names` are the table and, for `dp_derive`, the base; `more` has other arguments, as SQL.
    """
    last = f"engine := {literal(engine)}" if engine is not None else ""
    return f"SELECT {function}({', '.join(part for part in (*map(literal, names), more, last) if part)})"


def other_dataset(source: str, dataset: str, charged: tuple[str, ...]) -> SourceError:
    """Return the refusal of a dataset that a source is not charged to."""
    reads = f"reads {', '.join(map(repr, charged))}" if charged else "is public"
    return SourceError(
        "S015", f"{show(source)} {reads}, which dataset := {show(dataset)} would not charge. Leave dataset out."
    )


def cannot_see(source: str, what: str) -> SourceError:
    """Return the refusal of a source that reads rows that no plan shows.

    The message names no existing budget, since the rows may belong to none.
    """
    return SourceError(
        "S014",
        f"what {show(source)} reads cannot be seen ({what}). Load the rows, CREATE TABLE t AS FROM ..., and declare "
        "the table: SELECT dp_protect('t', epsilon := ...) for rows of other people, SELECT dp_derive('t', '...', ...) "
        "for rows of a protected table, SELECT dp_public('t') for rows about nobody. Or name the budget that all the "
        "rows belong to: dataset := '...'.",
    )


def refuse_claim(source: str, claim: str, declarations: Declarations) -> None:
    """Raise if a budget's owner answers no claim about rows that no plan shows."""
    if declarations.claims(claim) == "none":
        raise BudgetError(
            "B015",
            f"whose rows {show(source)} reads rests on the caller's word alone, and the owner of {show(claim)} answers "
            "no such claim. Read a table or a view that is declared.",
        )

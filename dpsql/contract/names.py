"""Identity of a table, independent of the spelling of its name.

The identity of a table has three parts: database, schema and name. They are folded as in DuckDB, which folds A to Z
only, so É and é differ. If a database has a database ID (`dpsql.engines.duckdb.spending_record`), the database part is
that ID; otherwise it is the number of the attached object or, for a budget, the name of the attached database.

A table of an engine's catalog is in no database of DuckDB. Its identity is the engine's name and its full name, as the
catalog spells it: some engines have two tables whose names differ only in case.

The module also suggests public names for misspelt names, and spells calls in messages in SQL, in Python and on frames.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from dpsql.contract.parameters import fold, is_literal, near_names, show
from dpsql.errors import ParameterError
from dpsql.rendering import identifier, literal_of

MARKED = "#"  # first character of the database part for a database ID; `identifier` always quotes such a name
ATTACHED = "@"  # the same without a database ID: the number of the attached object, until DETACH


class TableName(NamedTuple):
    """The identity of a table or view: three folded parts. On an engine the database is empty, see `on_engine`."""

    database: str
    schema: str
    name: str

    @classmethod
    def of(cls, database: str, schema: str, name: str) -> TableName:
        """Return the identity of a table from its path."""
        return cls(fold(database), fold(schema), fold(name))

    @classmethod
    def on_engine(cls, engine: str, parts: Iterable[str]) -> TableName:
        """Return the identity of an engine's table from its full name; no database has an empty name."""
        return cls("", engine, dotted(parts))

    @property
    def engine(self) -> str | None:
        """The engine that holds the table; None for DuckDB."""
        return None if self.database else self.schema

    @property
    def path(self) -> str:
        """For an engine's table: the engine's and the full table name, as the catalog spells it."""
        return f"{self.schema}.{self.name}"

    @property
    def budget(self) -> str:
        """For an engine's table: the name of its budget, without case."""
        return fold(self.path)


def parts_of(text: str, *, most: int | None = 3) -> list[str]:
    """Split a name as SQL does: at dots outside double quotes.

    Raises
    ------
    ParameterError
        P020: the text is not a name, or has more than `most` parts.
    """
    parts, rest = [], text
    while True:
        match = re.match(r'"((?:[^"]|"")+)"(\.|$)|([^."]+)(\.|$)', rest)
        if match is None:
            raise ParameterError(
                "P020", f"source {show(text)} is not a table name. Write parts with dots or quotes as '\"odd.name\"'."
            )
        quoted, plain = match.group(1), match.group(3)
        parts.append(quoted.replace('""', '"') if quoted is not None else plain)
        rest = rest[match.end() :]
        if "." not in (match.group(2), match.group(4)):
            break
    if most is not None and len(parts) > most:
        raise ParameterError("P020", f"source {show(text)} has more than three parts. Give catalog.schema.table.")
    return parts


def path_of(text: str) -> list[str]:
    """Split a search path, which DuckDB writes as comma-separated ``catalog.schema`` entries."""
    return [match.group(0).strip() for match in re.finditer(r'(?:"(?:[^"]|"")*"|[^",])+', text)]


def display(database: str, schema: str, name: str, main: str) -> str:
    """Return the shortest spelling that names no other table in any database.

    Parameters
    ----------
    database, schema, name : str
        The table's path.
    main : str
        The main database; the spelling omits its name and its schema main.
    """
    parts = [name] if fold(schema) == "main" else [schema, name]
    if fold(database) != fold(main):
        parts = [database, schema, name]
    return dotted(parts)


def dotted(parts: Iterable[str]) -> str:
    """Join the parts of a name, so that `parts_of` can split it again."""
    return ".".join(identifier(part) if "." in part or '"' in part else part for part in parts)


_FILE = re.compile(r"\.(parquet|csv|tsv|json|jsonl|ndjson)(\.gz|\.zst)?$", re.IGNORECASE)

# A frame from Python has no name; dpsql registers it under this prefix and a random suffix.
FRAME_PREFIX = "dpsql_frame_"
# The budget of rows without a named budget.
NAMELESS = "default"


def source_sql(source: str) -> str:
    """Return the FROM item for a source's name.

    dpsql reads the name as DuckDB does: dots separate catalog, schema and table, and a part in double
    quotes is literal (``'"odd.name"'``). A name without dots and quotes, or a path to a data file, is one
    identifier with any characters.
    """
    return ".".join(identifier(part) for part in source_parts(source))


def read_as_text(item: str, texts: Iterable[Sequence[str]]) -> str:
    """Return the FROM item of a source with some columns read as text, given the SQL of each by name."""
    listed = ", ".join(f"{sql} AS {identifier(name)}" for name, sql in texts)
    return f"(SELECT * REPLACE ({listed}) FROM {item})" if listed else item


def dataset_name(source: str) -> str:
    """Return the name of a source's budget: the source's name without needless quotes and without the schema main.

    If ``t``, ``"t"`` and ``main.t`` were three budgets, a different spelling would evade a table's limit.
    """
    parts = source_parts(source) if source else []
    if len(parts) < 2 and not source.startswith('"'):
        return source or NAMELESS
    if len(parts) > 1 and fold(parts[-2]) == "main":
        del parts[-2]
    return dotted(parts)


def is_file(source: str) -> bool:
    """Return whether a source is the path of a data file."""
    return _FILE.search(source) is not None


def source_parts(source: str) -> list[str]:
    """Split a source's name into catalog, schema and table; only the table is required."""
    if ("." not in source and not source.startswith('"')) or is_file(source):
        return [source]
    return parts_of(source)


# Other words for arguments, each with all the arguments that it means. The spelling decides about any other word.
MEANT = {
    "aggregate": ("aggregates",),
    "bounds": ("lower", "upper"),
    "cap": ("max_rows_per_unit",),
    "categories": ("keys",),
    "col": ("target",),
    "column": ("target",),
    "columns": ("features",),
    "confidence_level": ("confidence",),
    "count_distinct": ("distinct_of",),
    "database": ("dataset",),
    "distinct": ("distinct_of",),
    "edges": ("bins",),
    "eps": ("epsilon",),
    "field": ("target",),
    "filter": ("condition",),
    "group": ("by",),
    "group_by": ("by",),
    "groupby": ("by",),
    "groups": ("keys",),
    "having": ("condition",),
    "id": ("privacy_unit",),
    "label": ("target",),
    "levels": ("target_levels",),
    "limit": ("k",),
    "max": ("upper",),
    "max_contributions": ("max_rows_per_unit",),
    "max_partitions_contributed": ("max_groups_per_unit",),
    "max_value": ("upper",),
    "maximum": ("upper",),
    "min": ("lower",),
    "min_value": ("lower",),
    "minimum": ("lower",),
    "n": ("k",),
    "name": ("release",),
    "percentile": ("quantiles",),
    "percentiles": ("quantiles",),
    "partition_by": ("by",),
    "partitions": ("keys",),
    "person": ("privacy_unit",),
    "predicted": ("score",),
    "prediction": ("score",),
    "predictors": ("features",),
    "public_partitions": ("keys",),
    "q": ("quantiles",),
    "range": ("lower", "upper"),
    "save_as": ("release",),
    "table": ("source",),
    "target": ("label",),
    "top": ("k",),
    "top_k": ("k",),
    "unit": ("privacy_unit",),
    "user_id": ("privacy_unit",),
    "value": ("target",),
    "values": ("keys",),
    "variables": ("features",),
    "where": ("condition",),
    "x": ("features",),
    "y": ("target",),
}


# Words of other databases for DuckDB's functions.
_MEANT_IN_SQL = {
    "average": "avg",
    "charindex": "instr",
    "cnt": "count",
    "countd": "count(DISTINCT ...)",
    "getdate": "current_date",
    "isnull": "coalesce",
    "nvl": "coalesce",
    "percentile": "quantile_cont",
    "percentile_approx": "quantile_cont",
    "regexp_like": "regexp_matches",
    "safe_divide": "a / b, which is NULL where b is 0",
    "std": "stddev",
    "stdev": "stddev",
    "to_char": "strftime",
    "to_date": "strptime",
    "var": "var_samp",
    "width_bucket": "floor(x / 10) * 10",
    "zeroifnull": "coalesce",
}
# The words that a statement is made of, for slips such as FORM.
_KEYWORDS = ("SELECT", "DISTINCT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "JOIN", "UNION")


# Names of private aggregates elsewhere: in dp_query each aggregate is private.
_PRIVATE_PREFIX = re.compile(r"\A(?:anon|dp|noisy|private)_")
# DuckDB's reasons for not binding a query, with what to write.
_REASONS = (
    ("cannot contain aggregates", "A condition on an aggregate is written after GROUP BY: HAVING sum(x) > 3."),
    ("Macro dp_", "In dp_query each aggregate is private under its own name: SELECT count(*), avg(x) FROM ...."),
    ("cannot contain window functions", "Compute the window in a subquery, or write the condition after QUALIFY."),
)


def reason_to_write(why: str) -> str:
    """Return what to write in a query that DuckDB does not bind for a reason, or an empty text."""
    return next((step for words, step in _REASONS if words in why), "")


def meant_in_sql(name: str, candidates: Iterable[str]) -> str:
    """Suggest a function of SQL for one that DuckDB lacks, as a question; else an empty text."""
    plain = _PRIVATE_PREFIX.sub("", fold(name))
    functions = {fold(candidate) for candidate in candidates} - {fold(name)}
    meant = _MEANT_IN_SQL.get(fold(name)) or (plain if plain != fold(name) and plain in functions else None)
    close = near_names(name, functions, 2) if meant is None else [meant]
    return f"Did you mean {' or '.join(close)}?" if close else ""


# Statements that people write in place of SELECT, by their first word, with what to write.
_INSTEAD_OF_SELECT = {
    "copy": "Write a file of the answer: COPY (FROM dp_query('SELECT ...', epsilon := 1)) TO 'answer.csv'.",
    "create": "Make a table of the answer: CREATE TABLE answer AS FROM dp_query('SELECT ...', epsilon := 1).",
    "explain": "Ask the price, which is free: FROM dp_query('SELECT ...', epsilon := 1, estimate := true).",
    "insert": "Insert the answer: INSERT INTO answer FROM dp_query('SELECT ...', epsilon := 1).",
}

_LONGEST_CLAUSE = 40
# Reserved words that tables and columns are called.
_RESERVED_NAMES = frozenset(
    (
        *("all", "any", "asc", "both", "case", "check", "column", "default", "desc", "end", "group", "limit"),
        *("offset", "order", "primary", "references", "table", "to", "user", "window"),
    )
)
_PIVOT = re.compile(r"\s*PIVOT\s+(\w+)\s+ON\s+(\w+)(?:\s+USING\s+(\w+\([^()]*\)))?", re.IGNORECASE)


def statement_to_write(sql: str) -> str:
    """Say what to write in place of a statement that is not one SELECT of DuckDB's SQL, or an empty text."""
    first = re.match(r"\s*(\w+)\s*(;?\s*\Z)?", sql)
    if first is not None and first[2] is not None:
        return f"Write SELECT count(*) FROM {first[1]}."
    if first is not None and fold(first[1]) in ("where", "group", "having", "order", "limit"):
        return f"Begin with SELECT: SELECT count(*) FROM ... {sql.strip()[:_LONGEST_CLAUSE]}."
    if first is not None and fold(first[1]) in _INSTEAD_OF_SELECT:
        return _INSTEAD_OF_SELECT[fold(first[1])]
    pivot = _PIVOT.match(sql)
    if pivot is not None:
        table, column, aggregate = pivot.groups()
        return f"Group instead: SELECT {column}, {aggregate or 'count(*)'} FROM {table} GROUP BY {column}."
    return _misspelt_keyword(sql)


def word_to_quote(message: str) -> str:
    """Say how to write a reserved word that a statement has as a name, from DuckDB's message, or an empty text."""
    near = re.search(r'syntax error at or near "(\w+)"', message)
    if near is None or fold(near[1]) not in _RESERVED_NAMES:
        return ""
    return f'If {near[1]} is a name, put it in double quotes: "{near[1]}".'


def _misspelt_keyword(sql: str) -> str:
    """Say which word of a statement that DuckDB cannot read looks like a keyword, or an empty text."""
    if re.match(r"\s*SELECT\s+TOP\b", sql, re.IGNORECASE):
        return "Write LIMIT at the end in place of TOP."
    words = re.findall(r"[A-Za-z]+", re.sub(r"'(?:[^']|'')*'|\"[^\"]*\"", " ", sql))
    keywords = {word.partition(" ")[0]: word for word in _KEYWORDS}
    for word in words:
        if word.upper() not in (*keywords, "FOR", "BY", "ON"):
            close = near_names(word, keywords, 1)
            if close and len(word) > 2:
                return f"Did you mean {keywords[close[0]]}, not {word}?"
    return ""


class OtherName(NamedTuple):
    """A name that people try: why there is no such function, the one to call, and the arguments that it needs."""

    why: str
    function: str
    needed: Mapping[str, object]


_ONE_ROW = "is one person's value, which no noise hides; a quantile near it is private"
# Each is a macro that only says what to write: DuckDB would suggest a name that looks alike, dp_kendall for dp_median.
OTHER_NAMES = {
    "dp_max": OtherName(f"the largest value {_ONE_ROW}", "dp_quantile", {"quantiles": 0.99}),
    "dp_mean": OtherName("dp_mean is called dp_avg", "dp_avg", {}),
    "dp_median": OtherName("the median is a quantile", "dp_quantile", {"quantiles": 0.5}),
    "dp_min": OtherName(f"the smallest value {_ONE_ROW}", "dp_quantile", {"quantiles": 0.01}),
}
# Functions that people expect and that are commands or arguments, with what to write.
_BY_OWNER = "The data's owner may change a budget: SELECT dp_protect('...', epsilon := 10, replace := true);"
ELSEWHERE = {
    "dp_grant": "Grants are given on the command line: dpsql grant PRINCIPAL --dataset NAME --db FILE.",
    "dp_reset": f"What was spent stays spent. {_BY_OWNER}",
    "dp_revoke": "Grants are taken back on the command line: dpsql revoke PRINCIPAL --db FILE.",
    "dp_unprotect": f"A budget stays. {_BY_OWNER}",
}
# Functions of SELECT that people call in FROM, where a macro says what to write, too.
IN_SELECT = ("dp_protect", "dp_public", "dp_derive")


def other_name(name: str, first: object, arguments: Mapping[str, object]) -> ParameterError:
    """Return the refusal of a call by another name or in another place, with the call to write.

    Parameters
    ----------
    name : str
        As the caller wrote it: of `OTHER_NAMES` or `IN_SELECT`.
    first : object
        The first argument.
    arguments : mapping
        The other arguments, by name.
    """
    more = {key: value for key, value in arguments.items() if value is not None and value is not False}
    if name in IN_SELECT:
        return ParameterError("P120", f"{name} is called in SELECT. Write SELECT {_call_to_write(name, first, more)};")
    why, function, needed = OTHER_NAMES[name]
    more = {"target": ..., **needed, "epsilon": 1, **more, **needed}
    return ParameterError("P120", f"{why}. Write FROM {_call_to_write(function, first, more)};")


def _call_to_write(function: str, first: object, arguments: Mapping[str, object]) -> str:
    listed = [f"{name} := {_argument_to_write(value)}" for name, value in arguments.items()]
    return f"{function}({', '.join([_argument_to_write(first), *listed])})"


def _argument_to_write(value: object) -> str:
    """Return an argument as it was written in SQL; the user fills in what no message shows."""
    if value is ... or value is None:
        return "'...'"
    values = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else (value,)
    literal = literal_of(value) if all(map(is_literal, values)) else None
    return "..." if literal is None or len(literal) > _LONGEST_ARGUMENT else literal


def did_you_mean(word: str, candidates: Iterable[str], otherwise: str) -> str:
    """Suggest the names with the closest spelling to a word, as a question; else return another text.

    Parameters
    ----------
    word : str
        As the caller wrote it.
    candidates : iterable of str
        Public names of columns, protected tables or functions.
    otherwise : str
        A sentence.
    """
    close = near_names(word, (name for name in candidates if name != word))
    return f"Did you mean {' or '.join(map(show, close))}?" if close else otherwise


# Longest argument in a call to paste.
_LONGEST_ARGUMENT = 80


def meant_argument(word: str, parameters: Collection[str]) -> str:
    """Suggest the intended argument for one that a function does not have, or list the function's arguments.

    Parameters
    ----------
    word : str
        As the caller wrote it.
    parameters : collection of str
        The function's arguments.
    """
    meant = MEANT.get(fold(word), ())
    if meant and set(meant) <= set(parameters):
        return f"Did you mean {' and '.join(meant)}?"
    close = near_names(word, parameters, 1)
    return f"Did you mean {close[0]}?" if close else f"It takes: {', '.join(parameters)}."


# Messages quote the user's text. An apostrophe within a word is not a quote.
_QUOTED = re.compile(r"((?<!\w)'(?:[^']|'')*')")
_CALL = re.compile(r"\b(?:SELECT (?:\* )?(?:FROM )?|FROM )(?=dp_\w+\()")
_GIVEN = re.compile(r"\b(\w+) := ?")
_NOTHING_GIVEN = re.compile(r"\b(\w+) := (?=(?:and|from|or)\b)")
_FRAME = re.compile(rf"'{FRAME_PREFIX}\w*'")
_CONSTANT = re.compile(r"=(true|false|NULL)\b")
_CONSTANTS = {"true": "True", "false": "False", "NULL": "None"}
# Python calls: one that sets a budget, a named budget, and any other call of a private function.
_PROTECTS = re.compile(r"\bctx\.dp_protect\(('(?:[^']|'')*')(?:, source=False)?(?:, )?")
_DATASET = re.compile(r"\bdataset=('(?:[^']|'')*')")
_RELEASES = re.compile(r"\bctx\.dp_(\w+)\('(?:[^']|'')*'(?:, )?")


def refuse_unknown(arguments: Iterable[str], parameters: Collection[str], function: str) -> None:
    """Raise if Python code passes an argument that the function does not have."""
    for name in arguments:
        if name not in parameters:
            raise ParameterError("P016", f"{function} has no argument {show(name)}. {meant_argument(name, parameters)}")


def in_python(message: str) -> str:
    """Rewrite the next step of a message from SQL to a call of `dpsql.Context`."""
    parts = _QUOTED.split(_FRAME.sub("the frame", message))
    return "".join(part if index % 2 else _python(part) for index, part in enumerate(parts))


def _python(text: str) -> str:
    text = _NOTHING_GIVEN.sub(r"\1=... ", _CALL.sub("ctx.", text))
    text = _GIVEN.sub(r"\1=", text)
    text = _CONSTANT.sub(lambda match: f"={_CONSTANTS[match[1]]}", text)
    return text.replace("features=release(", "features=ctx.release(")


def on_frames(message: str) -> str:
    """Rewrite the next step of a message from SQL or Python to a call on a Polars frame."""
    text = _PROTECTS.sub(r"frame.dp.of(\1).dp.protect(", in_python(message))
    return _RELEASES.sub(r"frame.dp.\1(", _DATASET.sub(r"frame.dp.of(\1)", text))

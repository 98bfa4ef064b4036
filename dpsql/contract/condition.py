"""The condition on one row that a caller gives as text: what it may say, and the SQL that runs in its place.

The text is never run. It is read by the small grammar below, and SQL is written anew from what was understood, with
every function named in full and every name quoted. So a condition cannot say what the grammar lacks: subqueries,
aggregates, windows, parameters, lambdas, positions such as ``rowid``, the caller's macros, and functions that are
volatile or read anything but their arguments.

::

    condition   any of  condition OR condition, condition AND condition, NOT condition, predicate
    predicate   term [comparison term | IS [NOT] {NULL | TRUE | FALSE | DISTINCT FROM term}
                     | [NOT] BETWEEN term AND term | [NOT] IN (term, ...) | [NOT] {LIKE | ILIKE} term]
    term        factors joined by + and -, or by || alone
    factor      values joined by * / // %
    value       [-] column[.field]..., number, 'text', TRUE, FALSE, NULL, DATE '...', TIMESTAMP '...', INTERVAL '...',
                function(condition, ...), CASE, CAST and TRY_CAST, EXTRACT(part FROM term), (condition), value::type

Comparisons do not chain, and ``||`` does not mix with arithmetic: where parsers disagree, parentheses are asked for.

A condition looks at one row. So whether a row passes depends on nothing else, neighbouring tables remain neighbouring
tables once rows are left out, and no sensitivity changes. Under 'replace' a unit that passes may be replaced by one
that does not: a unit of at most m rows by one of fewer rows, for which the bounds of `dpsql.contract.relation` hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn

from dpsql.contract import parameters
from dpsql.contract.parameters import fold, show
from dpsql.errors import ParameterError
from dpsql.rendering import call, cast, coalesce, field, identifier, text

# Longest condition, and the deepest nesting in one.
MOST_CHARACTERS, _MOST_NESTED = 10_000, 40


def _words(*lines: str) -> frozenset[str]:
    return frozenset(" ".join(lines).split())


# Built-in functions of one row. None is volatile, reads a setting of its own, or makes a long text of a short one.
_DATES = _words(
    "century date_diff date_part date_sub date_trunc day dayname dayofmonth dayofweek dayofyear decade epoch epoch_ms",
    "hour isodow isoyear last_day microsecond millisecond minute month monthname quarter second strftime week weekday",
    "weekofyear year yearweek",
)
KNOWN = _DATES | _words(
    "abs cbrt ceil ceiling exp floor greatest isfinite isinf isnan least ln log log10 log2 pow power round sign sqrt",
    "trunc",
    "ascii contains ends_with instr left length lower ltrim prefix regexp_full_match regexp_matches right rtrim",
    "starts_with strlen strpos substr substring suffix trim upper",
    "len list_contains make_date make_timestamp strptime try_strptime",
)
_TYPES = _words(
    "BOOLEAN TINYINT SMALLINT INTEGER BIGINT HUGEINT UTINYINT USMALLINT UINTEGER UBIGINT FLOAT DOUBLE DECIMAL VARCHAR",
    "DATE TIME TIMESTAMP TIMESTAMPTZ INTERVAL UUID BLOB",
)
_OTHER_TYPES = {"BOOL": "BOOLEAN", "INT": "INTEGER", "REAL": "FLOAT", "NUMERIC": "DECIMAL", "TEXT": "VARCHAR"}
_COMPARISONS = {"=": "=", "==": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
# Words that are no columns unless they are quoted.
_RESERVED = _words(
    "AND BETWEEN CASE CAST DISTINCT ELSE END EXISTS FALSE FROM ILIKE IN IS LAMBDA LIKE NOT NULL OR SELECT THEN TRUE",
    "TRY_CAST WHEN WHERE",
)
# Names that DuckDB gives a value where a table has no such column, quoted or not: time, user and place of the session.
_SESSION = _words(
    "current_catalog current_date current_role current_schema current_time current_timestamp current_user localtime",
    "localtimestamp session_user user",
)
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))
      | (?P<text>'(?:[^']|'')*')
      | (?P<quoted>"(?:[^"]|"")+")
      | (?P<word>[^\W\d]\w*)
      | (?P<sign><>|!=|==|<=|>=|\|\||//|::|[-+*/%=<>(),.])
    )""",
    re.VERBOSE,
)
_HINT = "Use columns of the row, literals, comparisons, AND, OR, NOT and the functions that docs/calls.md lists."


def checked(given: object) -> str:
    """Return a condition without the blanks around it.

    Raises
    ------
    ParameterError
        P013: it is no text. P070: it says what no condition may say.
    """
    found = parameters.text("condition", given, hint="Give it as text, such as 'age >= 18'.").strip()
    columns_of(found)
    return found


def columns_of(condition: str) -> dict[str, bool]:
    """Return the columns that a condition names, as spelled first, and whether each is an argument of a date function.

    Raises
    ------
    ParameterError
        P070.
    """
    reader = _Reader(condition, identifier)
    reader.whole()
    return {name: fold(name) in reader.dates for name in reader.columns.values()}


def condition_sql(condition: str, column: Callable[[str], str]) -> str:
    """Return the SQL of a condition.

    Parameters
    ----------
    condition : str
    column : callable
        Returns the SQL of a column from its name as spelled first.
    """
    return _Reader(condition, column).whole()


class _Reader:
    """Reads a condition from left to right and writes its SQL."""

    def __init__(self, condition: str, column: Callable[[str], str]) -> None:
        self.columns: dict[str, str] = {}  # by their folded names
        self.dates: set[str] = set()
        self._column = column
        self._tokens = _tokens(condition)
        self._place = 0
        self._nested = 0

    def whole(self) -> str:
        """Return the SQL of the whole condition."""
        sql = self._condition()
        if self._kind != "end":
            self._refuse()
        if not self.columns:
            raise ParameterError("P070", f"condition names no column of the row. {_HINT}")
        return sql

    # Tokens.

    @property
    def _kind(self) -> str:
        return self._tokens[self._place][0]

    @property
    def _written(self) -> str:
        return self._tokens[self._place][1]

    def _next(self) -> str:
        self._place += 1
        return self._tokens[self._place - 1][1]

    def _is(self, *words: str, ahead: int = 0) -> bool:
        """Whether a token is one of these keywords or signs."""
        kind, written = self._tokens[min(self._place + ahead, len(self._tokens) - 1)]
        return kind in ("word", "sign") and written.upper() in words

    def _take(self, *words: str) -> bool:
        """Step over keywords or signs if all of them follow."""
        found = all(self._is(word, ahead=number) for number, word in enumerate(words))
        self._place += len(words) if found else 0
        return found

    def _expect(self, *words: str) -> None:
        for word in words:
            if not self._take(word):
                self._refuse()

    def _refuse(self) -> NoReturn:
        where = "it ends too early" if self._kind == "end" else f"{show(self._written)} cannot stand there"
        raise ParameterError("P070", f"condition is not understood: {where}. {_HINT}")

    # Conditions.

    def _condition(self) -> str:
        self._nested += 1
        if self._nested > _MOST_NESTED:
            raise ParameterError("P070", f"condition is nested more than {_MOST_NESTED} times. Compute it in a view.")
        sql = self._joined("OR", lambda: self._joined("AND", self._negated))
        self._nested -= 1
        return sql

    def _joined(self, word: str, part: Callable[[], str]) -> str:
        parts = [part()]
        while self._take(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else f"({f' {word} '.join(parts)})"

    def _negated(self) -> str:
        negations = 0
        while self._take("NOT"):
            negations += 1
        sql = self._predicate()
        return f"(NOT {sql})" if negations % 2 else sql

    def _predicate(self) -> str:
        sql = self._term()
        if self._kind == "sign" and self._written in _COMPARISONS:
            return f"({sql} {_COMPARISONS[self._next()]} {self._term()})"
        if self._take("IS"):
            return self._is_something(sql)
        negated = self._take("NOT")
        if self._take("BETWEEN"):
            lower = self._term()
            self._expect("AND")
            sql = f"({sql} BETWEEN {lower} AND {self._term()})"
        elif self._take("IN"):
            self._expect("(")
            sql = f"({sql} IN ({', '.join(self._list(self._term))}))"
        elif self._is("LIKE", "ILIKE"):
            sql = call("~~" if self._next().upper() == "LIKE" else "~~*", sql, self._term())
        elif negated:
            self._refuse()
        return f"(NOT {sql})" if negated else sql

    def _is_something(self, sql: str) -> str:
        negation = "NOT " if self._take("NOT") else ""
        if self._take("DISTINCT", "FROM"):
            return f"({sql} IS {negation}DISTINCT FROM {self._term()})"
        if not self._is("NULL", "TRUE", "FALSE"):
            self._refuse()
        return f"({sql} IS {negation}{self._next().upper()})"

    def _list(self, part: Callable[[], str]) -> list[str]:
        """Return parts between commas, and step over the parenthesis behind them."""
        parts = [part()]
        while self._take(","):
            parts.append(part())
        self._expect(")")
        return parts

    # Terms.

    def _term(self) -> str:
        sql = self._factor()
        if self._is("||"):
            while self._take("||"):
                sql = call("||", sql, self._value())
        else:
            while self._is("+", "-"):
                sql = call(self._next(), sql, self._factor())
        if self._is("||", "+", "-"):
            raise ParameterError("P070", "condition mixes || with arithmetic. Put one of them in parentheses.")
        return sql

    def _factor(self) -> str:
        sql = self._value()
        while self._is("*", "/", "//", "%"):
            sql = call(self._next(), sql, self._value())
        return sql

    def _value(self) -> str:
        if self._take("-"):
            if self._kind == "number" and not self._is("::", ahead=1):
                return f"-{self._next()}"
            return call("-", self._cast_value())
        self._take("+")
        return self._cast_value()

    def _cast_value(self) -> str:
        sql = self._primary()
        while self._take("::"):
            sql = cast(sql, self._type())
        return sql

    def _primary(self) -> str:
        if self._kind == "number":
            return self._next()
        if self._kind == "text":
            return text(_unquoted(self._next()))
        if self._kind == "quoted":
            return self._named()
        if self._take("("):
            sql = self._condition()
            self._expect(")")
            return f"({sql})"
        if self._kind != "word":
            self._refuse()
        return self._worded()

    def _worded(self) -> str:
        if self._is("TRUE", "FALSE", "NULL"):
            return self._next().upper()
        if self._take("CASE"):
            return self._case()
        if self._is("DATE", "TIMESTAMP", "INTERVAL") and self._tokens[self._place + 1][0] == "text":
            kind = self._next().upper()
            return cast(text(_unquoted(self._next())), kind)
        if self._is("(", ahead=1):
            return self._function()
        if self._written.upper() in _RESERVED:
            self._refuse()
        return self._named()

    def _named(self) -> str:
        """Return a column of the row, or a field of a column that is a struct."""
        name = self._name()
        if fold(name) in _SESSION or fold(name).startswith("dpsql_"):
            raise ParameterError(
                "P070", f"condition names {show(name)}, which may stand for more than a column. Rename it in a view."
            )
        sql = self._column(self.columns.setdefault(fold(name), name))
        while self._take("."):
            if self._kind not in ("word", "quoted"):
                self._refuse()
            sql = field(sql, self._name())
        return sql

    def _name(self) -> str:
        quoted = self._kind == "quoted"
        return _unquoted(self._next()) if quoted else self._next()

    def _case(self) -> str:
        sql = "CASE" if self._is("WHEN") else f"CASE {self._term()}"
        if not self._is("WHEN"):
            self._refuse()
        while self._take("WHEN"):
            sql += f" WHEN {self._condition()}"
            self._expect("THEN")
            sql += f" THEN {self._condition()}"
        if self._take("ELSE"):
            sql += f" ELSE {self._condition()}"
        self._expect("END")
        return f"({sql} END)"

    def _function(self) -> str:
        name = self._next().lower()
        self._expect("(")
        if name in ("cast", "try_cast"):
            sql = self._condition()
            self._expect("AS")
            kind = self._type()
            self._expect(")")
            return cast(sql, kind) if name == "cast" else f"TRY_CAST({sql} AS {kind})"
        if name == "extract":
            part = self._next() if self._kind == "word" else self._refuse()
            self._expect("FROM")
            return call("date_part", text(part), *self._list(lambda: self._argument("date_part")))
        if name == "coalesce":
            return coalesce(*self._list(self._condition))
        if name not in KNOWN:
            raise ParameterError("P070", f"condition calls {show(name)}, which is no function it may call. {_HINT}")
        return call(name, *self._list(lambda: self._argument(name)))

    def _argument(self, function: str) -> str:
        """Return an argument of a function; take note of a column in a date function."""
        if function in _DATES and self._kind in ("word", "quoted") and self._is(",", ")", ahead=1):
            place = self._place
            self.dates.add(fold(self._name()))
            self._place = place
        return self._condition()

    def _type(self) -> str:
        name = self._written.upper()
        kind = _OTHER_TYPES.get(name, name)
        if self._kind != "word" or kind not in _TYPES:
            self._refuse()
        self._next()
        if kind == "DECIMAL" and self._take("("):
            sizes = self._list(lambda: self._next() if self._written.isdecimal() else self._refuse())
            kind += f"({', '.join(sizes[:2])})" if len(sizes) <= 2 else self._refuse()
        return kind


def _tokens(condition: str) -> list[tuple[str, str]]:
    """Split a condition into pairs of kind and text, with an end after them."""
    if len(condition) > MOST_CHARACTERS:
        raise ParameterError(
            "P070", f"condition must have at most {MOST_CHARACTERS} characters; got {len(condition)}. Use a view."
        )
    out, place = [], 0
    while place < len(condition):
        match = _TOKEN.match(condition, place)
        if match is None or condition.startswith(("--", "/*"), match.start(match.lastgroup or 0)):
            raise ParameterError("P070", f"condition is not understood from {show(condition[place:][:40])} on. {_HINT}")
        out.append((str(match.lastgroup), match.group(match.lastgroup or 0)))
        place = match.end()
    return [*out, ("end", "")]


def _unquoted(written: str) -> str:
    quote = written[0]
    return written[1:-1].replace(quote * 2, quote)

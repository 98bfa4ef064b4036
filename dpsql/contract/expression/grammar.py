"""The grammar of expressions over one row: what may be said, and the SQL that DuckDB is asked to type.

The text is never run. It is read by the small grammar below, and SQL is written anew from what was understood, with
every function named in full and every name quoted. So an expression cannot say what the grammar lacks: subqueries,
aggregates, windows, parameters, lambdas, positions such as ``rowid``, the caller's macros, and functions that are
not in the table of `dpsql.contract.expression.functions`.

::

    condition   any of  condition OR condition, condition AND condition, NOT condition, predicate
    predicate   term [comparison term | IS [NOT] {NULL | TRUE | FALSE | DISTINCT FROM term}
                     | [NOT] BETWEEN term AND term | [NOT] IN (term, ...) | [NOT] {LIKE | ILIKE} term]
    term        factors joined by + and -, or by || alone
    factor      values joined by * / // %
    value       [-] column[.field]..., number, 'text', TRUE, FALSE, NULL, DATE '...', TIMESTAMP '...', INTERVAL '...',
                function(condition, ...), CASE, CAST and TRY_CAST, EXTRACT(part FROM term), (condition), value::type

Comparisons do not chain, and ``||`` does not mix with arithmetic: where parsers disagree, parentheses are asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from dpsql.contract.expression.functions import KNOWN
from dpsql.contract.parameters import fold, show
from dpsql.errors import ParameterError
from dpsql.rendering import call, cast, coalesce, field, text

# Longest condition, and the deepest nesting in one.
MOST_CHARACTERS, _MOST_NESTED = 10_000, 40


def _words(*lines: str) -> frozenset[str]:
    return frozenset(" ".join(lines).split())


TYPES = _words(
    "BOOLEAN TINYINT SMALLINT INTEGER BIGINT HUGEINT UTINYINT USMALLINT UINTEGER UBIGINT FLOAT DOUBLE DECIMAL VARCHAR",
    "DATE TIME TIMESTAMP INTERVAL UUID BLOB",
)
_OTHER_TYPES = {"BOOL": "BOOLEAN", "INT": "INTEGER", "REAL": "FLOAT", "NUMERIC": "DECIMAL", "TEXT": "VARCHAR"}
COMPARISONS = {"=": "=", "==": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
# The comparisons of DuckDB's trees and plans.
COMPARED = {
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "<>",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
    "COMPARE_DISTINCT_FROM": "IS DISTINCT FROM",
    "COMPARE_NOT_DISTINCT_FROM": "IS NOT DISTINCT FROM",
}
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
_LITERAL = re.compile(r"'(?:[^']|'')*'")
_HINT = "Use columns of the row, literals, comparisons, AND, OR, NOT and the functions that docs/calls.md lists."


@dataclass(frozen=True)
class Phrase:
    """A part of an expression: what it is, such as ``'date_diff'``; its SQL; and the columns in it."""

    what: str
    sql: str
    columns: tuple[str, ...]


class Reader:
    """Reads an expression from left to right and writes its SQL.

    Parameters
    ----------
    expression : str
    column : callable
        Returns the SQL of a column from its name as spelled first.
    what : str
        What the expression is, in messages.
    typed : callable
        Returns the SQL of a literal text that is cast to another type.

    Attributes
    ----------
    columns : dict of str to str
        The columns that were named, as spelled first, by their folded names.
    parts : list of Phrase
        The parts that were read: each after the parts in it.
    """

    def __init__(
        self, expression: str, column: Callable[[str], str], what: str = "condition", typed: Callable[[str], str] = text
    ) -> None:
        self.columns: dict[str, str] = {}
        self.parts: list[Phrase] = []
        self._what = what
        self._named_so_far: list[str] = []
        self._column = column
        self._typed = typed
        self._tokens = _tokens(expression, what)
        self._place = 0
        self._nested = 0

    def whole(self) -> str:
        """Return the SQL of the whole expression.

        Raises
        ------
        ParameterError
            P070: it says what no expression may say.
        """
        sql = self._condition()
        if self._kind != "end":
            self._refuse()
        if not self.columns:
            raise ParameterError("P070", f"{self._what} names no column of the row. {_HINT}")
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
        raise ParameterError("P070", f"{self._what} is not understood: {where}. {_HINT}")

    def _part(self, what: str, sql: str, since: int) -> str:
        """Note a part, with the columns that were named since it began, and return its SQL."""
        self.parts.append(Phrase(what, sql, tuple(dict.fromkeys(self._named_so_far[since:]))))
        return sql

    @property
    def _here(self) -> int:
        return len(self._named_so_far)

    # Conditions.

    def _condition(self) -> str:
        self._nested += 1
        if self._nested > _MOST_NESTED:
            raise ParameterError(
                "P070", f"{self._what} is nested more than {_MOST_NESTED} times. Compute it in a view."
            )
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
        since = self._here
        sql = self._term()
        if self._kind == "sign" and self._written in COMPARISONS:
            sign = COMPARISONS[self._next()]
            return self._part(sign, f"({sql} {sign} {self._term()})", since)
        if self._take("IS"):
            return self._part("IS", self._is_something(sql), since)
        negated = self._take("NOT")
        if self._take("BETWEEN"):
            lower = self._term()
            self._expect("AND")
            sql = self._part("BETWEEN", f"({sql} BETWEEN {lower} AND {self._term()})", since)
        elif self._take("IN"):
            self._expect("(")
            sql = self._part("IN", f"({sql} IN ({', '.join(self._list(self._term))}))", since)
        elif self._is("LIKE", "ILIKE"):
            word = self._next().upper()
            pattern = self._term()
            if self._take("ESCAPE"):
                sql = self._part("ESCAPE", call(f"{word.lower()}_escape", sql, pattern, self._term()), since)
            else:
                sql = self._part(word, call("~~" if word == "LIKE" else "~~*", sql, pattern), since)
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
        since = self._here
        sql = self._factor()
        if self._is("||"):
            while self._take("||"):
                sql = self._part("||", call("||", sql, self._value()), since)
        else:
            while self._is("+", "-"):
                sign = self._next()
                sql = self._part(sign, call(sign, sql, self._factor()), since)
        if self._is("||", "+", "-"):
            raise ParameterError("P070", f"{self._what} mixes || with arithmetic. Put one of them in parentheses.")
        return sql

    def _factor(self) -> str:
        since = self._here
        sql = self._value()
        while self._is("*", "/", "//", "%"):
            sign = self._next()
            sql = self._part(sign, call(sign, sql, self._value()), since)
        return sql

    def _value(self) -> str:
        since = self._here
        if self._take("-"):
            if self._kind == "number" and not self._is("::", ahead=1):
                return f"-{self._next()}"
            return self._part("-", call("-", self._cast_value()), since)
        self._take("+")
        return self._cast_value()

    def _cast_value(self) -> str:
        since = self._here
        sql = self._primary()
        while self._take("::"):
            kind = self._type()
            sql = self._part(f"a cast to {kind}", cast(self._cast_operand(sql), kind), since)
        return sql

    def _cast_operand(self, sql: str) -> str:
        """Return what is cast: a literal text in the form that `typed` gives it."""
        bare = sql.lstrip("(").rstrip(")")
        return self._typed(_unquoted(bare)) if _LITERAL.fullmatch(bare) else sql

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
            return self._part(kind, cast(self._typed(_unquoted(self._next())), kind), self._here)
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
                "P070", f"{self._what} names {show(name)}, which may stand for more than a column. Rename it in a view."
            )
        since = self._here
        self._named_so_far.append(self.columns.setdefault(fold(name), name))
        sql = self._column(self._named_so_far[-1])
        while self._take("."):
            if self._kind not in ("word", "quoted"):
                self._refuse()
            sql = self._part(".", field(sql, self._name()), since)
        return sql

    def _name(self) -> str:
        quoted = self._kind == "quoted"
        return _unquoted(self._next()) if quoted else self._next()

    def _case(self) -> str:
        since = self._here
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
        return self._part("CASE", f"({sql} END)", since)

    def _function(self) -> str:
        since = self._here
        name = self._next().lower()
        self._expect("(")
        if name in ("cast", "try_cast"):
            sql = self._condition()
            self._expect("AS")
            kind = self._type()
            self._expect(")")
            sql = (
                cast(self._cast_operand(sql), kind)
                if name == "cast"
                else f"TRY_CAST({self._cast_operand(sql)} AS {kind})"
            )
            return self._part(f"a cast to {kind}", sql, since)
        if name == "extract":
            part = self._next() if self._kind == "word" else self._refuse()
            self._expect("FROM")
            return self._part("EXTRACT", call("date_part", text(part), *self._list(self._condition)), since)
        if name == "coalesce":
            return self._part(name, coalesce(*self._list(self._condition)), since)
        if name not in KNOWN:
            raise ParameterError("P070", f"{self._what} calls {show(name)}, which is no function it may call. {_HINT}")
        return self._part(name, call(name, *self._list(self._condition)), since)

    def _type(self) -> str:
        name = self._written.upper()
        kind = _OTHER_TYPES.get(name, name)
        if kind == "TIMESTAMPTZ":
            raise ParameterError(
                "P070",
                f"{self._what} casts to TIMESTAMPTZ, which would depend on the session's time zone. Cast to TIMESTAMP: "
                "a column with a time zone is one, in UTC.",
            )
        if self._kind != "word" or kind not in TYPES:
            self._refuse()
        self._next()
        if kind == "DECIMAL" and self._take("("):
            sizes = self._list(lambda: self._next() if self._written.isdecimal() else self._refuse())
            kind += f"({', '.join(sizes[:2])})" if len(sizes) <= 2 else self._refuse()
        return kind


def _tokens(condition: str, what: str) -> list[tuple[str, str]]:
    """Split a condition into pairs of kind and text, with an end after them."""
    if len(condition) > MOST_CHARACTERS:
        raise ParameterError(
            "P070", f"{what} must have at most {MOST_CHARACTERS} characters; got {len(condition)}. Use a view."
        )
    out, place = [], 0
    while place < len(condition):
        match = _TOKEN.match(condition, place)
        if match is None or condition.startswith(("--", "/*"), match.start(match.lastgroup or 0)):
            raise ParameterError("P070", f"{what} is not understood from {show(condition[place:][:40])} on. {_HINT}")
        out.append((str(match.lastgroup), match.group(match.lastgroup or 0)))
        place = match.end()
    return [*out, ("end", "")]


def _unquoted(written: str) -> str:
    quote = written[0]
    return written[1:-1].replace(quote * 2, quote)

"""Conditions made from the tables of what a condition may say, and a DuckDB that tries them on extreme values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Self

import duckdb

from dpsql.contract.expression.functions import FUNCTIONS, KNOWN, Allowed, Literal
from dpsql.contract.expression.judge import Judged
from dpsql.contract.expression.kinds import TEXT, Type
from dpsql.contract.query.expressions import TYPES
from dpsql.engines.duckdb.keys import ONE
from dpsql.engines.duckdb.typed_expression import ColumnTypes, column_types, judged, types_query
from dpsql.errors import ParameterError
from dpsql.rendering import text
from support.extremes import RAW, VALUES

TYPES_TRIED = tuple(VALUES)
# Types of a second argument, beside the type of the first.
_SECOND = (
    "INTEGER",
    "BIGINT",
    "DOUBLE",
    "DECIMAL(18, 3)",
    "VARCHAR",
    "DATE",
    "TIME",
    "INTERVAL",
    "UHUGEINT",
    "INTEGER[]",
)
_COMPARISONS = ("=", "==", "<>", "!=", "<", "<=", ">", ">=")
_INFIX = {"~~": "LIKE", "~~*": "ILIKE"}
# Values of a type that are benign or NULL, extreme values of one argument that meet those of another, and all.
_BENIGN, _PAIRED, _ALL = 3, 8, 1000


@dataclass(frozen=True)
class Case:
    """A condition over columns c0, c1, … of some types.

    Attributes
    ----------
    entry : str
        What it tries, such as ``'date_diff'``.
    value : str
        The expression whose value is looked at.
    types : tuple of str
    """

    entry: str
    value: str
    types: tuple[str, ...]

    @property
    def count(self) -> int:
        """The number of extreme values that meet it."""
        return sum(len(VALUES[kind][1]) + len(RAW.get(kind, ())) for kind in self.types)


def _arguments(taken: Allowed) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Yield what an entry is called with, and the types of the columns in it."""
    places = [place for place, one in enumerate(taken.takes) if not isinstance(one, Literal)]
    # A literal has many forms, so types that are refused beside it are tried by few.
    fit = frozenset[str]().union(*(one for one in taken.takes if not isinstance(one, Literal)))
    tried = [kind for kind in TYPES_TRIED if len(places) == len(taken.takes) or kind in fit or kind in _SECOND[:1]]
    types: list[tuple[str, ...]]
    if len(places) == 1:
        types = [(kind,) for kind in tried]
    elif len(places) == 2:
        types = list(dict.fromkeys((a, b) for a in tried for b in (a, *(_SECOND if tried == [*TYPES_TRIED] else ()))))
    else:
        types = [(kind,) * len(places) for kind in ("BIGINT", "DOUBLE")]
        types += [("VARCHAR", "BIGINT", "BIGINT")] * (len(places) == 3)
        types += [("BIGINT",) * (len(places) - 1) + ("DOUBLE",)]
    literals = [sorted(_literals(one)) for one in taken.takes if isinstance(one, Literal)]
    for chosen in product(*literals):
        written, column = iter(chosen), iter(range(len(places)))
        given = tuple(
            (text if one.kinds == TEXT else str)(next(written)) if isinstance(one, Literal) else f"c{next(column)}"
            for one in taken.takes
        )
        for kinds in types:
            yield given, kinds
    if taken.more:
        yield from (((*given, "c0"), kinds) for given, kinds in [(("c0", "c1"), (kind, kind)) for kind in TYPES_TRIED])


def _literals(literal: Literal) -> set[str]:
    return set(literal.examples) | {word for words in literal.words.values() for word in words}


def _cases() -> Iterator[Case]:
    for taken in FUNCTIONS:
        for name in taken.names:
            for given, types in _arguments(taken):
                if name in KNOWN:
                    yield Case(name, f"{name}({', '.join(given)})", types)
                elif not name.isidentifier() and len(given) == 1:
                    yield Case(f"{name} of one", f"{name} {given[0]}", types)
                elif not name.isidentifier():
                    yield Case(name, f"{given[0]} {_INFIX.get(name, name)} {given[1]}", types)
    for kind in TYPES_TRIED:
        for wanted in sorted(TYPES):
            yield Case(f"cast to {wanted}", f"CAST(c0 AS {wanted})", (kind,))
            yield Case(f"cast to {wanted}", f"TRY_CAST(c0 AS {wanted})", (kind,))
        yield Case("null", "c0 IS NULL", (kind,))
        yield Case("case", "CASE c0 WHEN c1 THEN c0 END", (kind, kind))
        yield Case("coalesce", "coalesce(c0, c1)", (kind, kind))
        for sign in (*_COMPARISONS, "IS DISTINCT FROM", "IS NOT DISTINCT FROM"):
            yield from (Case(sign, f"c0 {sign} c1", (kind, other)) for other in dict.fromkeys((kind, *_SECOND)))
        yield Case("in", "c0 IN (c1, NULL)", (kind, kind))
        yield Case("between", "c0 BETWEEN c1 AND c0", (kind, kind))


CASES = tuple(dict.fromkeys(_cases()))


class Trial:
    """A DuckDB in which conditions are tried."""

    def __init__(self) -> None:
        self._types: dict[str, Type] = {}
        self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def _open(self) -> None:
        self.connection = duckdb.connect(config={"threads": 1})
        for number, (kind, (benign, extreme)) in enumerate(VALUES.items()):
            self.connection.execute(f"CREATE TABLE v{number} (place INTEGER, x {kind})")
            for place, value in enumerate((*benign, *benign, "NULL", *extreme)):
                try:
                    self.connection.execute(f"INSERT INTO v{number} VALUES ({place}, CAST({value} AS {kind}))")
                except duckdb.Error:
                    continue  # a version that has no such value
            if kind in RAW:
                self.connection.register("raw", RAW[kind])
                self.connection.execute(f"INSERT INTO v{number} SELECT {len(extreme) + 3} + place, x FROM raw")
                self.connection.unregister("raw")
            query = types_query(f"v{number}", "x IS NULL")
            [plan] = self.connection.execute("SELECT json_serialize_plan(?, optimize := true)", [query]).fetchall()[0]
            shown = column_types("x IS NULL", plan)
            assert shown is not None
            self._types[kind] = shown[0][1]

    def types(self, case: Case) -> ColumnTypes:
        """Return the types of a case's columns, as DuckDB shows them."""
        return tuple((f"c{number}", self._types[kind]) for number, kind in enumerate(case.types))

    def judge(self, case: Case) -> Judged | None:
        """Return what runs for a case, or None if it is refused with one of the codes for that."""
        try:
            return judged(f"({case.value}) IS NULL", self.types(case), ONE)
        except ParameterError as refusal:
            assert refusal.code[-4:] in ("P080", "P082", "P084"), refusal
            return None

    def accepts(self, case: Case) -> bool:
        """Whether a case is not refused."""
        return self.judge(case) is not None

    def run(self, case: Case) -> None:
        """Try a case on benign and extreme rows, unless it is refused."""
        found = self.judge(case)
        if found is not None:
            self.compare(found.sql.removeprefix("(").removesuffix(" IS NULL)"), case)

    def values(self, case: Case, *, plain: bool = False) -> dict[tuple[int, ...], object]:
        """Return a hash of the value of each row: of what is written, or of the plain call as DuckDB reads it."""
        found = self.judge(case)
        assert found is not None
        sql = found.sql.removeprefix("(").removesuffix(" IS NULL)")
        if plain:
            sql = re.sub(r"\bc(\d)\b", rf"{ONE}.c\1", case.value)
        return self._values(sql, self._rows([list(VALUES).index(kind) for kind in case.types]))

    def compare(self, sql: str, case: Case) -> None:
        """Demand that the values of benign rows are what they are without extreme rows beside them."""
        rows = self._rows([list(VALUES).index(kind) for kind in case.types])
        try:
            whole = self._values(sql, rows)
        except duckdb.Error as error:
            if "FATAL" in str(error) or "invalidated" in str(error):
                self.connection.close()
                self._open()
            raise AssertionError(f"{case}: {str(error)[:200]}") from None
        alone = self._values(sql, f"FROM ({rows}) SELECT * WHERE list_max(place) < {_BENIGN}")
        assert alone
        for place, value in alone.items():
            assert repr(whole[place]) == repr(value), case

    @staticmethod
    def _rows(tables: list[int]) -> str:
        """Return the query of rows: each value of a column meets benign ones of the others, and a few one another."""
        numbers = range(len(tables))
        place = f"[{', '.join(f't{number}.place' for number in numbers)}]"
        columns = ", ".join(f"c{number} := t{number}.x" for number in numbers)
        most = [[_BENIGN if len(tables) < 3 or other == 0 else 1 for other in numbers] for _ in numbers]
        for number in numbers:
            most[number][number] = _ALL
        if len(tables) == 2:
            most.append([_BENIGN + _PAIRED] * 2)
        return " UNION ALL ".join(
            f"SELECT {place} AS place, struct_pack({columns}) AS s FROM "
            + ", ".join(f"(FROM v{tables[number]} WHERE place < {limits[number]}) AS t{number}" for number in numbers)
            for limits in most
        )

    def _values(self, sql: str, rows: str) -> dict[tuple[int, ...], object]:
        value = f"list_extract(list_transform([s], lambda {ONE}: hash(TRY({sql}))), 1)"
        found = self.connection.execute(f"SELECT place, {value} FROM ({rows})").fetchall()
        return {tuple(place): shown for place, shown in found}


@cache
def sampled(share: float) -> tuple[Case, ...]:
    """Return every so many cases, with one of each entry."""
    step = round(1 / share)
    first = {case.entry: case for case in reversed(CASES)}
    return tuple(dict.fromkeys((*first.values(), *CASES[::step])))

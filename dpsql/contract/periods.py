"""Periods, by which a dataset's rows are dated: their names, their numbers, and which of them a call names.

A dataset with periods protects the rows of one person in one period, the *unit* (person, period). Each period has an
account of its own, its *block*, and a call sees the rows of the blocks that it names in `during`, and no others.

**Guarantee.** Fix a person u, a period t, and two databases that grow, by a rule that may look at everything released,
so that at each time they differ in rows of u in period t alone.

1. A call with t outside of `during` selects, before anything else, the same rows of both: its laws are equal.
2. A call with t in `during` sees two tables that are neighbours for the unit (u, t): its loss is what block t is
   charged, given all earlier results.
3. So the likelihood ratio of everything released is a product over the calls that charge t, to which the proof in
   `dpsql.ledger.composition` applies, with the account of t as the filter.
4. Blocks are filtered apart, so every (u, t) has the epsilon and delta of the budget, for ever.
5. A person: see `dpsql.ledger.blocks.of_person`.

What must hold for 1 and 2: rows are chosen by their period before anything else; a row without a period is in no
block; and what limits or groups the rows of a unit (caps, merges, blocks of a fit) takes (person, period) for the unit.
A cap per person over two charged blocks changes two rows where one is charged; a cap before the choice of rows lets one
block change what another released; rows without a date that counted everywhere would, too.

**Undated tables.** Of several tables of the same people some may have no date. A call on their rows alone is charged to
the block `UNDATED`, which is never renewed; a call on dated rows may look the undated ones of the same person up. What
holds then, of a period and of a person, is in `dpsql.engines.duckdb.lineage.rows`.

**Numbers.** The number of a period follows from parts of the date that are defined for every date: year, month and day,
or the year and week of ISO 8601. So nothing that a row holds makes an error: the parts of NULL and of infinite dates
are NULL, and years outside of 1 to 9999 have numbers that no name has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import lru_cache

from dpsql.contract import parameters
from dpsql.contract.json import Json
from dpsql.contract.parameters import fold, known, list_items, show
from dpsql.errors import ParameterError

PERIODS = ("day", "week", "month", "quarter", "year")
DATED = "dated"  # what an owner stated of periods, beside the stated arguments of a call
NO_PERIOD = "none"  # what an owner gives to withdraw periods
UNDATED = "undated"  # in place of a period's name: the block of rows that a person has at all times
ZONES = ("UTC",)
MOST_BLOCKS = 1200
_EXAMPLES = dict(zip(PERIODS, ("2026-10-05", "2026-W41", "2026-10", "2026-Q4", "2026"), strict=True))
_FORMS = {
    "day": r"(\d{4})-(\d\d)-(\d\d)",
    "week": r"(\d{4})-W(\d\d)",
    "month": r"(\d{4})-(\d\d)",
    "quarter": r"(\d{4})-Q([1-4])",
    "year": r"(\d{4})",
}
# The parts of a date that make a period's number, and how many values the later ones have: ((y * 12 + m - 1) * 31 + …).
PARTS: Mapping[str, tuple[str, tuple[tuple[str, int], ...]]] = {
    "day": ("year", (("month", 12), ("day", 31))),
    "week": ("isoyear", (("week", 53),)),
    "month": ("year", (("month", 12),)),
    "quarter": ("year", (("quarter", 4),)),
    "year": ("year", ()),
}
_FIRST: Mapping[str, Callable[..., date]] = {
    "day": date,
    "week": lambda year, week: date.fromisocalendar(year, week, 1),
    "month": lambda year, month: date(year, month, 1),
    "quarter": lambda year, quarter: date(year, 3 * quarter - 2, 1),
    "year": lambda year: date(year, 1, 1),
}


def block_of(period: str, day: date) -> str:
    """Return the name of the period that a day is in."""
    iso = day.isocalendar()
    return {
        "day": day.isoformat(),
        "week": f"{iso.year:04d}-W{iso.week:02d}",
        "month": f"{day.year:04d}-{day.month:02d}",
        "quarter": f"{day.year:04d}-Q{(day.month + 2) // 3}",
        "year": f"{day.year:04d}",
    }[period]


@lru_cache(maxsize=1 << 14)  # a ledger asks again and again for the few that it has
def first_day(period: str, name: str) -> date | None:
    """Return the first day of a period by its name; None where no period of this kind has the name."""
    match = re.fullmatch(_FORMS[period], name, re.ASCII)
    if match is None:
        return None
    try:
        return _FIRST[period](*map(int, match.groups()))
    except ValueError:
        return None


def period_named(name: str) -> str | None:
    """Return the kind of period that has a name; None for no period's name."""
    return next((period for period in PERIODS if first_day(period, name) is not None), None)


def number_of(period: str, name: str) -> int:
    """Return a period's number, by its name: it grows with time, and no two periods of a kind share one."""
    parts = list(map(int, re.fullmatch(_FORMS[period], name).groups()))  # type: ignore[union-attr]
    number = parts[0]
    for part, (_, values) in zip(parts[1:], PARTS[period][1], strict=True):
        number = number * values + part - 1
    return number


def last_day(period: str, name: str) -> date:
    """Return the last day of a period by its name."""
    after = following(period, name)
    return date.max if after is None else _known_day(period, after) - timedelta(days=1)


def _known_day(period: str, name: str) -> date:
    day = first_day(period, name)
    if day is None:
        raise ValueError(f"no {period}: {name}")
    return day


_LONGEST = {"day": 1, "week": 7, "month": 31, "quarter": 92, "year": 366}


def following(period: str, name: str) -> str | None:
    """Return the name of the next period; None after year 9999."""
    start = _known_day(period, name)
    try:
        later = start + timedelta(days=_LONGEST[period])  # in the next period, near its beginning
    except OverflowError:
        return None
    return block_of(period, later)


def _from_to(period: str, first: str, last: str) -> Iterator[str]:
    name: str | None = first
    end = number_of(period, last)
    while name is not None and number_of(period, name) <= end:
        yield name
        name = following(period, name)


def spans(period: str, names: Sequence[str]) -> list[str]:
    """Return sorted names of periods as spans of those that follow each other: ``['2026-01/2026-03', '2026-07']``."""
    out: list[tuple[str, str]] = []
    for name in names:
        if out and UNDATED not in (name, out[-1][1]) and following(period, out[-1][1]) == name:
            out[-1] = (out[-1][0], name)
        else:
            out.append((name, name))
    return [first if first == last else f"{first}/{last}" for first, last in out]


@dataclass(frozen=True)
class Dated:
    """How a dataset's rows are dated, as its owner stated.

    Attributes
    ----------
    period : str
        Of `PERIODS`.
    column : str
        The column that holds the date.
    zone : str or None
        The time zone of a column of type TIMESTAMP WITH TIME ZONE; None for a DATE or a TIMESTAMP.
    base : str or None
        What the owner calls the column, where a view calls it otherwise.
    tables : tuple of (str, str or None)
        Of several tables, by name: the column of each, the path of one that takes its parent's date, or None for one
        without dates. The `column` is that of a source that reads some of them, or ``''`` where none has a date.
    """

    period: str
    column: str
    zone: str | None = None
    base: str | None = None
    tables: tuple[tuple[str, str | None], ...] = ()

    @property
    def is_undated(self) -> bool:
        """Whether the tables that a source reads have no dates."""
        return bool(self.tables) and not self.column

    @property
    def text(self) -> str:
        """The columns of dates in words."""
        columns = [f"{name}.{column}" for name, column in self.tables if column is not None and " -> " not in column]
        return ", ".join(columns) or self.column

    def of_source(self, date: str | None, tables: tuple[tuple[str, str | None], ...]) -> Dated:
        """Return the same of a source, which has the date in a column of its own and reads some of the tables."""
        if self.tables:
            return replace(self, column=date or "", tables=tables)
        if date is None:
            return self
        return replace(self, column=date, base=None if fold(date) == fold(self.column) else self.column)

    def of_table(self, name: str | None) -> tuple[str, str | None] | None:
        """Return what is stated of one of several tables; None where there is but one."""
        if not self.tables:
            return None
        return next((table for table in self.tables if table[0] == name), (name or "", ""))

    def goes_on(self, declaration: Dated) -> bool:
        """Whether rows have the dates that an owner states now, whatever the periods; tables may have been added."""
        if self.tables or declaration.tables:
            return bool(self.tables) and set(self.tables) <= set(declaration.tables) and self.zone == declaration.zone
        return (self.column, self.zone) == (declaration.column, declaration.zone)

    def is_as(self, declaration: Dated) -> bool:
        """Whether rows have the periods that an owner states now."""
        if self.tables or declaration.tables:
            return self.goes_on(declaration) and self.period == declaration.period
        is_same_column = parameters.fold(self.base or self.column) == parameters.fold(declaration.column)
        return is_same_column and (self.period, self.zone) == (declaration.period, declaration.zone)

    @classmethod
    def stated(cls, period: object, column: object, zone: object) -> Dated | None:
        """Return what an owner states; None for no periods.

        Raises
        ------
        ParameterError
            P112: the arguments do not go together.
        """
        kind = None if period is None else parameters.choice("period", period, (*PERIODS, NO_PERIOD))
        if kind in (None, NO_PERIOD):
            if column is not None or zone is not None:
                raise ParameterError("P112", "period_of and period_zone go with a period. Give period := 'month', too.")
            return None
        if column is None:
            raise ParameterError("P112", f"period_of is missing. Name the column of the date whose {kind} counts.")
        tables = tuple(sorted(column.items())) if isinstance(column, Mapping) else ()
        name = ""
        if not tables:
            name = parameters.text("period_of", column, hint="Give the name of the column that holds the date.")
        if zone is not None and zone not in ZONES:
            raise ParameterError("P112", f"period_zone must be {', '.join(map(show, ZONES))}; got {show(zone)}.")
        return cls(str(kind), name, None if zone is None else str(zone), tables=tables)


@dataclass(frozen=True)
class During:
    """The blocks that a call sees and charges.

    Attributes
    ----------
    dated : Dated
        How the source's rows are dated; the column is that of the source.
    blocks : tuple of str
        Names of periods, in the order of time, each once.
    """

    dated: Dated
    blocks: tuple[str, ...]

    @classmethod
    def read(cls, argument: object, dated: Dated | None) -> During | None:
        """Return the blocks that a call's argument names; None for a dataset without periods.

        Raises
        ------
        ParameterError
            P110: it is missing, stands where there are no periods, or names what is no period.
        """
        if dated is None:
            if argument is not None:
                raise ParameterError(
                    "P110", "during is given, and the dataset has no periods. Leave it out, or ask its owner for them."
                )
            return None
        if dated.is_undated:
            if argument not in (None, UNDATED):
                raise ParameterError(
                    "P110",
                    "during is given, and the rows have no date: they are in the block 'undated'. Leave it out, or "
                    "read a table with dates.",
                )
            return cls(dated, (UNDATED,))
        example = _EXAMPLES[dated.period]
        if argument is None:
            raise ParameterError(
                "P110",
                f"during is missing: the budget is kept by the {dated.period} of {show(dated.column)}. Say which "
                f"count: during := '{example}', a list of such names, or 'first/last'.",
            )
        listed = [argument] if isinstance(argument, str) else list_items(argument, MOST_BLOCKS)
        names: dict[str, None] = {}
        for entry in listed or (None,):
            for name in _period_names(entry, dated.period):
                names[name] = None
                if len(names) > MOST_BLOCKS:
                    raise ParameterError("P110", f"during names more than {MOST_BLOCKS} periods. Name fewer of them.")
        return cls(dated, tuple(sorted(names, key=lambda name: number_of(dated.period, name))))

    @property
    def is_undated(self) -> bool:
        """Whether the rows have no date, and so are not chosen by one."""
        return self.blocks == (UNDATED,)

    @property
    def within(self) -> str:
        """Which rows of one person count, in words, after what they are called."""
        return " without a date" if self.is_undated else f" in one {self.dated.period}"

    @property
    def text(self) -> str:
        """The blocks in words: ``'2026-01/2026-03, 2026-07'``."""
        return ", ".join(spans(self.dated.period, self.blocks))

    @property
    def numbers(self) -> list[tuple[int, int]]:
        """The numbers of the blocks, as ranges from the first to the last that no other period's number is in."""
        ends = (span.split("/") for span in spans(self.dated.period, self.blocks))
        return [(number_of(self.dated.period, end[0]), number_of(self.dated.period, end[-1])) for end in ends]

    @property
    def of_one_table(self) -> During | None:
        """The same blocks of a dataset of the source's one table; None where it reads several, or the end of a path."""
        dated, tables = self.dated, self.dated.tables
        column = tables[0][1] if len(tables) == 1 else None
        if column is None or " -> " in column:
            return None
        base = None if fold(column) == fold(dated.column) else column
        return During(replace(dated, base=base, tables=()), self.blocks)

    def to_json(self) -> dict[str, Json]:
        """Return the blocks as JSON values."""
        record: dict[str, Json] = {
            "period": self.dated.period,
            "period_of": self.dated.column,
            "blocks": list(spans(self.dated.period, self.blocks)),
        }
        others = {"period_zone": self.dated.zone, "base": self.dated.base}
        tables: dict[str, Json] = {"tables": dict(self.dated.tables)} if self.dated.tables else {}
        return record | tables | {name: value for name, value in others.items() if value is not None}

    @classmethod
    def from_json(cls, record: Mapping[str, Json]) -> During:
        """Return the blocks that `to_json` wrote."""
        zone, base = (
            None if record.get(name) is None else known(str, record[name]) for name in ("period_zone", "base")
        )
        tables = tuple(sorted(known(dict, record.get("tables", {})).items()))
        dated = Dated(known(str, record["period"]), known(str, record["period_of"]), zone, base, tables)
        if record["blocks"] == [UNDATED]:
            return cls(dated, (UNDATED,))
        return cls(
            dated, tuple(name for span in known(list, record["blocks"]) for name in _period_names(span, dated.period))
        )


def _period_names(entry: object, period: str) -> Iterable[str]:
    """Return the names of a period, or of those from one to another."""
    ends = entry.split("/") if isinstance(entry, str) else []
    wrong = [end for end in ends if first_day(period, end) is None]
    if wrong or len(ends) not in (1, 2):
        raise ParameterError(
            "P110",
            f"during must name whole periods, here a {period} such as '{_EXAMPLES[period]}'; "
            f"got {show(wrong[0] if wrong else entry)}.",
        )
    if number_of(period, ends[0]) > number_of(period, ends[-1]):
        raise ParameterError("P110", f"during ends before it begins; got {show(entry)}. Give first/last.")
    return _from_to(period, ends[0], ends[-1])

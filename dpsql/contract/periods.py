"""Periods that date a dataset's rows: their names, their numbers, and the periods that a call names.

A dataset with periods protects the rows of one person in one period, the *unit* (person, period). Each period has its
own account, its *block*, and a call sees only the rows of the blocks that it names in `during`.

**Guarantee.** Fix a person u, a period t, and two databases that grow, by a rule that may depend on all releases, so
that at each time they differ only in rows of u in period t.

1. A call with t outside of `during` first selects the same rows of both databases: its laws are equal.
2. A call with t in `during` sees two tables that are neighbours for the unit (u, t): its loss is the charge of block t,
   given all earlier results.
3. So the likelihood ratio of all releases is a product over the calls that charge t. The proof in
   `dpsql.ledger.composition` applies to this product, with the account of t as the filter.
4. Each block has its own filter, so every (u, t) has the epsilon and delta of the budget, for ever.
5. A person: see `dpsql.ledger.blocks.of_person`.

Points 1 and 2 need this: a call selects rows by their period first; a row without a period is in no block; and every
step that limits or groups the rows of a unit (row limits, merges, blocks of a fit) uses (person, period) as the unit. A
row limit per person over two charged blocks changes two rows for one charge; a row limit before the selection lets one
block change another block's releases; so would rows without a date that count everywhere.

**Undated tables.** Some of several tables of the same people may have no date. A call on their rows alone charges the
block `UNDATED`, which never renews; a call on dated rows may look up the undated rows of the same person.
`dpsql.engines.duckdb.lineage.rows` states the guarantee for a period and for a person.

**Numbers.** The number of a period follows from parts of the date that every date has: year, month and day, or the year
and week of ISO 8601. So no value in a row raises an error: the parts of NULL and of infinite dates are NULL, and years
outside of 1 to 9999 have numbers without a name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from functools import lru_cache

from dpsql.contract import parameters
from dpsql.contract.json import Json
from dpsql.contract.parameters import fold, list_items, narrow, show
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError

PERIODS = ("day", "week", "month", "quarter", "year")
DATED = "dated"  # declared periods, next to the declared arguments of a call
NO_PERIOD = "none"  # the owner's word to withdraw periods
UNDATED = "undated"  # replaces a period's name: the block of rows that a person has at all times
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
# Date parts of a period's number, and the number of values of the later parts: ((y * 12 + m - 1) * 31 + …).
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
    """Return the name of the period that contains a day."""
    iso = day.isocalendar()
    return {
        "day": day.isoformat(),
        "week": f"{iso.year:04d}-W{iso.week:02d}",
        "month": f"{day.year:04d}-{day.month:02d}",
        "quarter": f"{day.year:04d}-Q{(day.month + 2) // 3}",
        "year": f"{day.year:04d}",
    }[period]


@lru_cache(maxsize=1 << 14)  # a ledger repeats the few names that it has
def first_day(period: str, name: str) -> date | None:
    """Return the first day of a period by its name; None if no period of this kind has the name."""
    match = re.fullmatch(_FORMS[period], name, re.ASCII)
    if match is None:
        return None
    try:
        return _FIRST[period](*map(int, match.groups()))
    except ValueError:
        return None


def period_named(name: str) -> str | None:
    """Return the kind of the period with this name; None for any other name."""
    return next((period for period in PERIODS if first_day(period, name) is not None), None)


def number_of(period: str, name: str) -> int:
    """Return a period's number, by its name: it grows with time and is unique within a kind."""
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
    """Return sorted period names as spans of consecutive periods: ``['2026-01/2026-03', '2026-07']``."""
    out: list[tuple[str, str]] = []
    for name in names:
        if out and UNDATED not in (name, out[-1][1]) and following(period, out[-1][1]) == name:
            out[-1] = (out[-1][0], name)
        else:
            out.append((name, name))
    return [first if first == last else f"{first}/{last}" for first, last in out]


@dataclass(frozen=True)
class Dated:
    """The owner's declaration of the dates of a dataset's rows.

    Attributes
    ----------
    period : str
        One of `PERIODS`.
    column : str
        Column of the date.
    zone : str or None
        Time zone of a column of type TIMESTAMP WITH TIME ZONE; None for a DATE or a TIMESTAMP.
    base : str or None
        The owner's name of the column, if a view has another name.
    tables : tuple of (str, str or None)
        For several tables, by name: the table's column, its path to the parent with the date, or None without dates.
        `column` is then the column of a source that reads some of the tables, or ``''`` if none has a date.
    """

    period: str
    column: str
    zone: str | None = None
    base: str | None = None
    tables: tuple[tuple[str, str | None], ...] = ()

    @property
    def is_undated(self) -> bool:
        """Whether the source's tables have no dates."""
        return bool(self.tables) and not self.column

    @property
    def text(self) -> str:
        """The date columns in words."""
        columns = [f"{name}.{column}" for name, column in self.tables if column is not None and " -> " not in column]
        return ", ".join(columns) or self.column

    def of_source(self, date: str | None, tables: tuple[tuple[str, str | None], ...]) -> Dated:
        """Return the declaration for a source, which has its own date column and reads some of the tables."""
        if self.tables:
            return replace(self, column=date or "", tables=tables)
        if date is None:
            return self
        return replace(self, column=date, base=None if fold(date) == fold(self.column) else self.column)

    def of_table(self, name: str | None) -> tuple[str, str | None] | None:
        """Return the declaration of one of several tables; None for a single table."""
        if not self.tables:
            return None
        return next((table for table in self.tables if table[0] == name), (name or "", ""))

    def goes_on(self, declaration: Dated) -> bool:
        """Return whether rows have the owner's current dates, for any periods; the owner may have added tables."""
        if self.tables or declaration.tables:
            return bool(self.tables) and set(self.tables) <= set(declaration.tables) and self.zone == declaration.zone
        return (self.column, self.zone) == (declaration.column, declaration.zone)

    def is_as(self, declaration: Dated) -> bool:
        """Return whether rows have the owner's current periods."""
        if self.tables or declaration.tables:
            return self.goes_on(declaration) and self.period == declaration.period
        is_same_column = parameters.fold(self.base or self.column) == parameters.fold(declaration.column)
        return is_same_column and (self.period, self.zone) == (declaration.period, declaration.zone)

    @classmethod
    def stated(cls, period: object, column: object, zone: object) -> Dated | None:
        """Return the owner's declaration; None for no periods.

        Raises
        ------
        ParameterError
            P112: the arguments contradict each other.
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
        Dates of the source's rows; the column is the source's column.
    blocks : tuple of str
        Names of periods, in time order, each once.
    """

    dated: Dated
    blocks: tuple[str, ...]

    @classmethod
    def read(cls, argument: object, dated: Dated | None) -> During | None:
        """Return the blocks that a call's argument names; None for a dataset without periods.

        Raises
        ------
        ParameterError
            P110: the argument is missing, the dataset has no periods, or a name is not a period.
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
        """Whether the rows have no date, so that no date selects them."""
        return self.blocks == (UNDATED,)

    @property
    def within(self) -> str:
        """Words for the rows of one person that count, to follow their name."""
        return " without a date" if self.is_undated else f" in one {self.dated.period}"

    @property
    def text(self) -> str:
        """The blocks in words: ``'2026-01/2026-03, 2026-07'``."""
        return ", ".join(spans(self.dated.period, self.blocks))

    @property
    def numbers(self) -> list[tuple[int, int]]:
        """The numbers of the blocks, as ranges from first to last without numbers of other periods."""
        ends = (span.split("/") for span in spans(self.dated.period, self.blocks))
        return [(number_of(self.dated.period, end[0]), number_of(self.dated.period, end[-1])) for end in ends]

    @property
    def of_one_table(self) -> During | None:
        """The same blocks for the source's one table; None if it reads several tables or the end of a path."""
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
            None if record.get(name) is None else narrow(str, record[name]) for name in ("period_zone", "base")
        )
        tables = tuple(sorted(narrow(dict, record.get("tables", {})).items()))
        dated = Dated(narrow(str, record["period"]), narrow(str, record["period_of"]), zone, base, tables)
        if record["blocks"] == [UNDATED]:
            return cls(dated, (UNDATED,))
        return cls(
            dated, tuple(name for span in narrow(list, record["blocks"]) for name in _period_names(span, dated.period))
        )


def days_named(argument: object, period: str) -> tuple[tuple[date, date], ...]:
    """Return the first and last day of each span of consecutive periods that a call names; none without an argument."""
    if argument is None:
        return ()
    names = During.read(argument, Dated(period, "")).blocks  # type: ignore[union-attr]
    ends = (span.split("/") for span in spans(period, names))
    return tuple((_known_day(period, span[0]), last_day(period, span[-1])) for span in ends)


def _period_names(entry: object, period: str) -> Iterable[str]:
    """Return the name of a period, or all names from one period to another."""
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

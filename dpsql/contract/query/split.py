"""What a query of plain SQL splits into: cores that are answered privately, and what DuckDB makes of their answers.

The splitter may be wrong about meaning, never about privacy. It writes two kinds of text. The source of each core is
bound by DuckDB and its plan is judged by `dpsql.engines.duckdb.lineage`, which knows nothing of the splitter; the post
text reads released tables and public tables only, which its plan must show.

**Noisy numbers.** Of how many noisy numbers a column is made: the chance that its interval may fail is shared out among
them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, order=True)
class NoisyNumbers:
    """A count of noisy numbers, of which it may follow from the answers how many there are.

    Attributes
    ----------
    single : int
        Numbers that are known by themselves.
    groups : tuple of (str, int)
        By the name of a core, how many numbers of each of its groups, in the order of names.
    """

    single: int = 0
    groups: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of_groups(cls, core: str) -> NoisyNumbers:
        """Return one number for each group of a core."""
        return cls(0, ((core, 1),))

    @classmethod
    def of_all_groups(cls, numbers: Iterable[tuple[str, str]]) -> NoisyNumbers:
        """Return the numbers of all groups, for a column that is made of some of one group: names of cores and numbers.

        So many hold at once that the column has its chance whichever groups noise chooses.
        """
        return cls.total(cls.of_groups(core) for core, _ in numbers)

    @classmethod
    def total(cls, numbers: Iterable[NoisyNumbers]) -> NoisyNumbers:
        """Return all of several together."""
        single, groups = 0, Counter[str]()
        for number in numbers:
            single += number.single
            groups.update(dict(number.groups))
        return cls(single, tuple(sorted(groups.items())))

    @classmethod
    def most(cls, numbers: Iterable[NoisyNumbers]) -> NoisyNumbers:
        """Return what is at least each of several."""
        single, groups = 0, Counter[str]()
        for number in numbers:
            single, groups = max(single, number.single), groups | Counter(dict(number.groups))
        return cls(single, tuple(sorted(groups.items())))

    def __bool__(self) -> bool:
        return bool(self.single or self.groups)

    def covers(self, other: NoisyNumbers) -> bool:
        """Whether a column of so many numbers may be made of one of so many others."""
        return bool(self.groups) or (not other.groups and self.single >= other.single)

    @property
    def tag(self) -> str:
        """It as a part of a column's name."""
        return "_".join([str(self.single), *(f"{times}x{core.strip('_')}" for core, times in self.groups)])


ONE = NoisyNumbers(1)


@dataclass(frozen=True)
class QueryKey:
    """One key of a core's groups.

    Attributes
    ----------
    column : str
        Its name in the core's source.
    type : str
        SQL type.
    values : tuple of (str or None) or None
        The public values, as texts that DuckDB casts to the type; NULL only where it is listed.
    query : str or None
        A SELECT over public tables and literals alone, which lists the values, where no list does; of one column, or of
        those of `together`.
    origin : str
        Where the values come from, for explain: such as ``'declared'``, ``'the range of visit_date'``, ``'wards'``.
    together : tuple of str
        The keys that `query` lists, by their columns, where it lists the rows of several at once; each of them has the
        same query then.
    """

    column: str
    type: str
    values: tuple[str | None, ...] | None
    query: str | None
    origin: str
    together: tuple[str, ...] = ()


@dataclass(frozen=True)
class QueryAggregate:
    """One aggregate of a core; what is answered stands in a column of the core's released table.

    Attributes
    ----------
    name : str
        Column of the released table, such as ``'a0'``.
    kind : str
        ``'rows'``, ``'values'`` (rows with a value), ``'units'``, ``'items'`` (distinct values of another column),
        ``'sum'``, ``'avg'``, ``'var_samp'``, ``'var_pop'``, ``'stddev_samp'``, ``'stddev_pop'``, ``'quantile'``, or of
        pairs the name of DuckDB's function, such as ``'corr'`` and ``'regr_slope'``.
    column, other : str or None
        Columns of the core's source: what is aggregated, and the second one of a pair (DuckDB's order of arguments).
        A FILTER is part of the column: it is NULL where the filter is not true.
    type : str
        SQL type of the answer in the original query.
    quantile : Fraction or None
    discrete : bool
        Whether a quantile is one of the values.
    lower, upper : Fraction or None
        Public bounds of the column; None where they are drawn.
    bounds_from : str
        Where the bounds come from, for explain.
    other_lower, other_upper : Fraction or None
        Public bounds of the other column of a pair.
    whole : bool
        Whether the text says that all rows have a value of the column.
    """

    name: str
    kind: str
    column: str | None
    other: str | None
    type: str
    quantile: Fraction | None = None
    discrete: bool = False
    lower: Fraction | None = None
    upper: Fraction | None = None
    bounds_from: str = ""
    other_lower: Fraction | None = None
    other_upper: Fraction | None = None
    whole: bool = False


@dataclass(frozen=True)
class QueryCore:
    """One private question: aggregates of one source in one set of groups.

    Attributes
    ----------
    name : str
        Of the released table in the post text, such as ``'__dp_0'``. Its columns are the keys' names, then the
        aggregates'.
    source : str
        The text of a SELECT over rows of people: keys, then what is aggregated, and the unit in the last column.
    unit : str or None
        Name of the last column; None where the unit is a row.
    keys : tuple of QueryKey
        Empty for one group of all rows.
    private_keys : bool
        Whether which groups there are is drawn from the rows.
    aggregates : tuple of QueryAggregate
    tables : tuple of str
        The protected tables that the source reads, as pinned names.
    dates : tuple of (str, str) or None
        First and last day of its rows, where they are dated and literal bounds say so.
    margin_of : str or None
        The name of the core of the same rows that has all keys of several grouping sets; its own name for that core.
        The groups of this one are unions of groups of that one, and its keys some of that one's, by their names.
    disjoint : bool
        Whether all its sums and numbers of values count conditions of which at most one holds for a row.
    """

    name: str
    source: str
    unit: str | None
    keys: tuple[QueryKey, ...]
    private_keys: bool
    aggregates: tuple[QueryAggregate, ...]
    tables: tuple[str, ...]
    dates: tuple[str, str] | None = None
    margin_of: str | None = None
    disjoint: bool = False


@dataclass(frozen=True)
class Split:
    """A query in its parts.

    Attributes
    ----------
    cores : tuple of QueryCore
        None of them where the query reads no rows of people: then it costs nothing.
    post : str
        The text that runs over the cores' released tables and public tables; for no cores the query itself, written
        anew.
    columns : tuple of (str, str)
        Name and SQL type of every column of the original query.
    noisy : tuple of tuple of (str, str)
        For every column of the result the released numbers in it, as core's and aggregate's names; for intervals.
    notes : tuple of str
        What explain says of it: levels of blocks, joins that were written.
    told : tuple of (str, str, NoisyNumbers)
        The noisy numbers whose errors the post text reads: core, aggregate, and of how many noisy numbers the column is
        made that they are for. Their columns are those of `error_names`.
    differs : bool
        Whether it is another one than earlier versions made, which `Options.earlier` makes again.
    """

    cores: tuple[QueryCore, ...]
    post: str
    columns: tuple[tuple[str, str], ...]
    noisy: tuple[tuple[tuple[str, str], ...], ...] = ()
    notes: tuple[str, ...] = ()
    told: tuple[tuple[str, str, NoisyNumbers], ...] = ()
    differs: bool = False


def error_names(aggregate: str, numbers: NoisyNumbers) -> tuple[str, str, str, str]:
    """Return the columns of a released table with the error, the ends of the interval and the standing of a number.

    `numbers` is of how many noisy numbers the column is made whose interval it is for.
    """
    before = f"{aggregate}_{numbers.tag}"
    return f"{before}_error", f"{before}_lower", f"{before}_upper", f"{before}_standing"

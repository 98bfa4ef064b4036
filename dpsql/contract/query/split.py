"""The parts of a split query: private cores, and the text that DuckDB runs over their answers.

The splitter may be wrong about meaning, never about privacy. It writes two kinds of text. DuckDB binds the source of
each core, and `dpsql.engines.duckdb.lineage`, which knows nothing of the splitter, judges its plan. The post text reads
released tables and public tables only, and its plan must show this.

`NoisyNumbers` counts the noisy numbers of a column, which share the chance that its interval fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from dpsql.contract.query.nodes import pointing
from dpsql.errors import ParameterError


@dataclass(frozen=True, order=True)
class NoisyNumbers:
    """A count of noisy numbers, which may depend on the answers.

    Attributes
    ----------
    single : int
        Numbers that are known in advance.
    groups : tuple of (str, int)
        Names of cores, each with its numbers per group, sorted by name.
    """

    single: int = 0
    groups: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of_groups(cls, core: str) -> NoisyNumbers:
        """Return one number for each group of a core."""
        return cls(0, ((core, 1),))

    @classmethod
    def of_all_groups(cls, numbers: Iterable[tuple[str, str]]) -> NoisyNumbers:
        """Return the numbers of all groups, for a column from one group; `numbers` are names of core and aggregate.

        All these intervals hold together, so the column's interval holds whichever groups noise chooses.
        """
        return cls.total(cls.of_groups(core) for core, _ in numbers)

    @classmethod
    def total(cls, numbers: Iterable[NoisyNumbers]) -> NoisyNumbers:
        """Return the sum of several counts."""
        single, groups = 0, Counter[str]()
        for number in numbers:
            single += number.single
            groups.update(dict(number.groups))
        return cls(single, tuple(sorted(groups.items())))

    @classmethod
    def most(cls, numbers: Iterable[NoisyNumbers]) -> NoisyNumbers:
        """Return the maximum of several counts."""
        single, groups = 0, Counter[str]()
        for number in numbers:
            single, groups = max(single, number.single), groups | Counter(dict(number.groups))
        return cls(single, tuple(sorted(groups.items())))

    def __bool__(self) -> bool:
        return bool(self.single or self.groups)

    def covers(self, other: NoisyNumbers) -> bool:
        """Whether a column of this count may be made from a column of the other."""
        return bool(self.groups) or (not other.groups and self.single >= other.single)

    @property
    def tag(self) -> str:
        """The count as part of a column name."""
        return "_".join([str(self.single), *(f"{times}x{core.strip('_')}" for core, times in self.groups)])


ONE = NoisyNumbers(1)
# The number of draws of the noise, and the table of the intervals by them.
DRAWS, SPANS = 1_000, "__dp_spans"


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
        The public values, as strings that DuckDB casts to the type; NULL only if it is listed.
    query : str or None
        A SELECT over public tables and literals only, which lists the values if `values` is None; of one column, or
        of the columns `together`.
    origin : str
        The source of the values, for explain, such as ``'declared'``, ``'the range of visit_date'``, ``'wards'``.
    together : tuple of str
        The columns of the keys that `query` lists together, if it lists several; each of these keys has the same
        query.
    """

    column: str
    type: str
    values: tuple[str | None, ...] | None
    query: str | None
    origin: str
    together: tuple[str, ...] = ()


@dataclass(frozen=True)
class QueryAggregate:
    """One aggregate of a core; a column of the core's released table holds its answer.

    Attributes
    ----------
    name : str
        Column of the released table, such as ``'a0'``.
    kind : str
        ``'rows'``, ``'values'`` (rows with a value), ``'units'``, ``'items'`` (distinct values of another column),
        ``'sum'``, ``'avg'``, ``'var_samp'``, ``'var_pop'``, ``'stddev_samp'``, ``'stddev_pop'``, ``'quantile'``,
        ``'extreme'`` (a quantile near 0 or 1 in place of `min` or `max`), or of pairs the name of DuckDB's function,
        such as ``'corr'`` and ``'regr_slope'``.
    column, other : str or None
        Columns of the core's source: the aggregated column, and the second of a pair (DuckDB's order of arguments).
        A FILTER is part of the column: the column is NULL unless the filter is true.
    type : str
        SQL type of the answer in the original query.
    quantile : Fraction or None
        Of an ``'extreme'`` the level nearest to 0 or 1 (`dpsql.functions.query_rows.LEVELS`).
    discrete : bool
        Whether a quantile is one of the values.
    lower, upper : Fraction or None
        Public bounds of the column; None for private bounds.
    bounds_from : str
        The source of the bounds, for explain.
    other_lower, other_upper : Fraction or None
        Public bounds of the other column of a pair.
    is_complete : bool
        Whether the text implies that the column is never NULL.
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
    is_complete: bool = False


@dataclass(frozen=True)
class QueryCore:
    """One private question: aggregates of one source in one set of groups.

    Attributes
    ----------
    name : str
        Name of the released table in the post text, such as ``'__dp_0'``. Its columns are the keys, then the
        aggregates.
    source : str
        The text of a SELECT over rows of people: keys, aggregated columns, and the privacy unit last.
    unit : str or None
        Name of the last column; None if the unit is a row.
    keys : tuple of QueryKey
        Empty for one group of all rows.
    private_keys : bool
        Whether privacy budget chooses the groups from rows.
    aggregates : tuple of QueryAggregate
    tables : tuple of str
        The protected tables that the source reads, as pinned names.
    dates : tuple of (str, str) or None
        First and last day of its rows, if they are dated and literals bound them.
    margin_of : str or None
        The name of the core of the same rows that has all keys of several grouping sets; that core names itself.
        Groups of this core are unions of groups of that core, and its keys are some of that core's, by name.
    disjoint : bool
        Whether all its sums and counts of values count mutually exclusive conditions.
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
class DrawColumn:
    """A column whose interval follows from draws of the noise, see `dpsql.contract.query.draws`.

    Attributes
    ----------
    ranks : bool
        Whether it is a rank.
    divided : bool
        Whether it has a divisor with noise.
    at_once : bool
        Whether the intervals hold for all rows at once.
    """

    ranks: bool
    divided: bool
    at_once: bool


@dataclass(frozen=True)
class Draws:
    """The columns of a query with intervals by draws of the noise.

    Attributes
    ----------
    text : str
        A SELECT over the released tables: ``dpsql_key``, which names a row, and for each column its number, such as
        ``v0``, with its divisor ``d0`` and the rows ``g0`` among which it ranks, as far as it has these.
    columns : tuple of DrawColumn
    numbers : tuple of (str, str)
        The released numbers that are drawn, as names of core and aggregate.
    key : str
        The SQL type of ``dpsql_key``.
    """

    text: str
    columns: tuple[DrawColumn, ...]
    numbers: tuple[tuple[str, str], ...]
    key: str

    @property
    def spans(self) -> str:
        """The SQL of the table of its intervals without any, for binding."""
        kind = f"MAP({self.key}, STRUCT(lower DOUBLE, upper DOUBLE))"
        columns = [f"CAST(NULL AS {kind}) AS s{position}" for position in range(len(self.columns))]
        return f"SELECT {', '.join(columns)}, CAST(NULL AS DOUBLE) AS needed"


@dataclass(frozen=True)
class Split:
    """A split query.

    Attributes
    ----------
    cores : tuple of QueryCore
        Empty if the query reads no rows of people: then it costs nothing.
    post : str
        The text that runs over the cores' released tables and public tables; without cores the rewritten query.
    columns : tuple of (str, str)
        Name and SQL type of every column of the original query.
    noisy : tuple of tuple of (str, str)
        The released numbers in every column of the result, as names of core and aggregate; for intervals.
    notes : tuple of str
        Lines for explain: levels of blocks, added joins.
    intervals : tuple of (str, str, NoisyNumbers)
        The noisy numbers whose errors the post text reads: core, aggregate, and the count of noisy numbers in the
        resulting column. `error_names` names their columns.
    differs : frozenset of int
        The earlier versions that split the query differently; `Options.earlier` restores their split.
    lacking : tuple of (str, int or None), or None
        Why the query needs a delta, and where: the first group without public keys, whose keys are private here.
    draws : Draws or None
        The columns with intervals by draws of the noise, if there are any.
    """

    cores: tuple[QueryCore, ...]
    post: str
    columns: tuple[tuple[str, str], ...]
    noisy: tuple[tuple[tuple[str, str], ...], ...] = ()
    notes: tuple[str, ...] = ()
    intervals: tuple[tuple[str, str, NoisyNumbers], ...] = ()
    differs: frozenset[int] = frozenset()
    lacking: tuple[str, int | None] | None = None
    draws: Draws | None = None

    def refuse_lacking(self, sql: str) -> None:
        """Raise if the query has a group without public keys; `sql` is its text.

        Raises
        ------
        ParameterError
            P065.
        """
        if self.lacking is not None:
            with pointing(sql):
                error = ParameterError("P065", self.lacking[0])
                error.offset = self.lacking[1]
                raise error


def error_names(aggregate: str, numbers: NoisyNumbers) -> tuple[str, str, str, str]:
    """Return the columns of a released table with error, interval ends and standing of a number.

    `numbers` counts the noisy numbers in the column that the interval is for.
    """
    before = f"{aggregate}_{numbers.tag}"
    return f"{before}_error", f"{before}_lower", f"{before}_upper", f"{before}_standing"

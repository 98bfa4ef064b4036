"""The released parts of a query, as rows of one table for each core. Everything here is free post-processing.

A number is written as a string that DuckDB casts to the type of the original query: counts and sums are rounded, half
to even, and NULL if the type has no such value. Next to every number are its standard error and its interval.

**Pairs.** Intervals of aggregates of a pair of columns, by interval arithmetic over the intervals of its moments.

A pair releases three columns: both in units of the half widths of their bounds, u and v, and w = (u + v) / 2. The
covariance is 2 var(w) - (var(u) + var(v)) / 2, and all aggregates of a pair follow from it, variances, averages and
their number. Each of these numbers has an interval that fails with its share of the chance; so all intervals hold with
the requested confidence, and so do the intervals computed from them. If a variance may be 0, a quotient has no
interval.

**Grouping sets.** Noisy sums of several grouping sets, fitted so that sums of finer groups equal sums of coarser
groups.

The fit estimates the exact number of every finest group; each noisy number is a sum of these, with the noise variance
of its set. The weighted least squares of a full product of keys separate into the components of an analysis of
variance: for each subset T of the keys, the rest of a table of T after all coarser tables are subtracted. A set S with
all keys of T contains this component ``N`` times, where N is the number of finest groups that a group of S unites, and
averages noise over the groups that S has for one group of T. So a component is a weighted mean of the sets' versions of
it, and the components of one set have uncorrelated noise.

The fitted numbers are linear in the noisy numbers, without bias, and no variance grows: this is post-processing. They
add up exactly, except for rounding.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Doubles, from_numbers, rounded_up
from dpsql.contract.covers import CLEAR, COUNTED, DOUBTED, LEFT_OUT, NARROWED
from dpsql.contract.query.split import DRAWS
from dpsql.dataclass import dataclass
from dpsql.mechanisms.aggregates import Lattice, NoisyBlock
from dpsql.noise.cube import cube_noise
from dpsql.noise.seeded import SeededWords
from dpsql.released.aggregates import is_biased, restored_block
from dpsql.released.covariance import Estimated, estimates, nothing_left, rows_needed
from dpsql.released.intervals import is_narrowed, restored_interval
from dpsql.statistics.aggregates import AVG, COUNT, CUBE, GAUSSIAN, LAPLACE, STDDEV, SUM, VARIANCE, SharedTarget

# From this confidence on, an interval of Laplace noise is wider than an interval of normal noise of the same variance.
_WIDER = 0.92
_FINER_BITS = 8
# Noise with at most this width relative to the widest counts as this wide: at a huge epsilon there is almost no noise.
_LEAST = 1e-6


@dataclass(frozen=True, eq=False)
class FittedBlock(NoisyBlock):
    """The coordinates of a block after the fit.

    Attributes
    ----------
    fitted : ndarray of float64, shape (size, G)
    """

    fitted: Doubles

    @property
    def values(self) -> Doubles:
        """Return the coordinates, in units of the block's `unit`."""
        return self.fitted


def fitted_block(sets: Sequence[Mapping[str, Any]], number: int, target: int, confidence: float | None) -> NoisyBlock:
    """Return the block of one target in one set; unfitted if the keys are not a full product.

    Parameters
    ----------
    sets : sequence of mapping
        The ledger's record of each set; the first has all keys.
    number : int
        Number of the set.
    target : int
        Number of the target.
    confidence : float or None
        Confidence of the requested intervals: the law that is wider there determines them.
    """
    blocks = [restored_block(group_set["blocks"][target]) for group_set in sets]
    table = _Table.of(sets)
    target_block = blocks[number]
    if table is None:
        return target_block
    values = [table.cells(block.values, which) for which, block in enumerate(blocks)]
    widest = max(block.deviation for block in blocks) or 1.0
    variances = [max(block.deviation / widest, _LEAST) ** 2 for block in blocks]
    fitted, variance = table.fit(values, variances, number)
    ratio = math.sqrt(min(1.0, variance / variances[number]))
    return FittedBlock(
        target_block.block, _narrower(target_block, ratio, confidence), target_block.words, table.groups(fitted, number)
    )


def _narrower(noisy: NoisyBlock, ratio: float, confidence: float | None) -> Lattice:
    """Return a law of noise with a fraction of the deviation, on a finer lattice."""
    lattice = noisy.lattice
    finer = Fraction(1 << _FINER_BITS)
    part = Fraction(ratio)
    bits = lattice.bits - _FINER_BITS
    if lattice.noise == LAPLACE and (confidence is None or confidence >= _WIDER):
        return replace(lattice, bits=bits, spread=lattice.spread * finer * part)
    return Lattice(GAUSSIAN, bits, (Fraction(lattice.deviation) * finer * part) ** 2)


def _subsets(items: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for count in range(len(items) + 1):
        yield from combinations(items, count)


@dataclass(frozen=True, eq=False)
class _Table:
    """The full product of some keys.

    Attributes
    ----------
    sizes : tuple of int
        Number of values of each key column.
    sets : list of tuple of int
        The columns of each set.
    positions : list of ndarray
        For each set, the cell of each of its groups, in the order of the product.
    """

    sizes: tuple[int, ...]
    sets: list[tuple[int, ...]]
    positions: list[Any]

    @classmethod
    def of(cls, sets: Sequence[Mapping[str, Any]]) -> _Table | None:
        """Return the table of the sets' keys; None if a combination is missing."""
        names = list(sets[0]["columns"])
        numbers = [{text: at for at, text in enumerate(dict.fromkeys(column))} for column in sets[0]["keys"]]
        sizes = tuple(map(len, numbers))
        columns, positions = [], []
        for group_set in sets:
            mine = tuple(names.index(name) for name in group_set["columns"])
            count = math.prod(sizes[column] for column in mine)
            rows = list(zip(*group_set["keys"], strict=True)) if mine else [()]
            if len(rows) != count or not count:
                return None
            codes = np.zeros(len(rows), dtype=np.int64)
            for column, listed in zip(mine, group_set["keys"], strict=True):
                codes = codes * sizes[column] + np.array([numbers[column][text] for text in listed], dtype=np.int64)
            columns.append(mine)
            positions.append(codes)
        return cls(sizes, columns, positions)

    def cells(self, values: Doubles, number: int) -> Doubles:
        """Return the numbers of a set's groups as a table: an axis of coordinates, and one for each key column."""
        own = self.sets[number]
        out = np.zeros_like(values)
        out[:, self.positions[number]] = values
        table = out.reshape(len(values), *(self.sizes[column] for column in own))
        order = np.argsort(own, kind="stable")
        table = table.transpose(0, *(1 + order))
        shape = [size if column in own else 1 for column, size in enumerate(self.sizes)]
        return table.reshape(len(values), *shape)

    def groups(self, table: Doubles, number: int) -> Doubles:
        """Return a table of a set as the numbers of its groups."""
        own = self.sets[number]
        array = table.reshape(len(table), *(self.sizes[column] for column in sorted(own)))
        back = np.argsort(np.argsort(own, kind="stable"), kind="stable")
        flat = array.transpose(0, *(1 + back)).reshape(len(table), -1)
        numbers: Doubles = flat[:, self.positions[number]]
        return numbers

    def _united(self, columns: Sequence[int]) -> float:
        """Return the number of combinations of the other columns."""
        return float(math.prod(size for column, size in enumerate(self.sizes) if column not in columns))

    def fit(self, values: Sequence[Doubles], variances: Sequence[float], number: int) -> tuple[Doubles, float]:
        """Return the fitted table of a set, and the variance of each of its numbers."""
        target = self.sets[number]
        scale = self._united(target)
        fitted = np.zeros_like(values[number])
        variance = 0.0
        for component in _subsets(sorted(target)):
            total, weights = np.zeros(1), 0.0
            for own, table, noise in zip(self.sets, values, variances, strict=True):
                if not set(component) <= set(own):
                    continue
                seen = self._united(own)
                over = math.prod(self.sizes[column] for column in own if column not in component)
                weight = seen * over / noise
                total = total + weight * self._component(table, component)
                weights += seen * weight
            fitted = fitted + scale * total / weights
            free = math.prod((self.sizes[column] - 1) / self.sizes[column] for column in component)
            variance += scale**2 * free / weights
        return fitted, variance

    def _component(self, table: Doubles, component: Sequence[int]) -> Doubles:
        """Return the rest of a table after it is averaged over other keys, and coarser tables are subtracted."""
        for column in range(len(self.sizes)):
            mean = table.mean(axis=column + 1, keepdims=True)
            table = table - mean if column in component else mean
        return table


Ends = tuple[Doubles, Doubles]
# Fixed point may change a mean, or a variance, of numbers in [-1, 1] by this much.
_ROUNDED = 2.0**-18
# Number of noisy numbers in an aggregate.
_NUMBERS = {
    **dict.fromkeys(("covar_pop", "covar_samp", "corr", "regr_r2", "regr_slope"), 3),
    **{"regr_intercept": 5, "regr_sxx": 2, "regr_syy": 2, "regr_sxy": 4},
}


@dataclass(frozen=True)
class PairSpans:
    """The intervals of one pair.

    Attributes
    ----------
    blocks : sequence of NoisyBlock
        Blocks of u, v and w.
    y, x : tuple of float
        Bounds of the first and the second argument.
    swapped : bool
        Whether the first argument is v.
    confidence : float
    """

    blocks: Sequence[NoisyBlock]
    y: tuple[float, float]
    x: tuple[float, float]
    swapped: bool
    confidence: float

    def ends(self, kind: str) -> Ends | None:
        """Return the interval of an aggregate, by DuckDB's name; None if it has none."""
        numbers = _NUMBERS.get(kind)
        if numbers is None:
            return None
        chance = 1.0 - (1.0 - self.confidence) / numbers
        half_y, half_x = ((high - low) / 2.0 for low, high in (self.y, self.x))
        at_y, at_x = (1, 0) if self.swapped else (0, 1)
        if kind in ("regr_sxx", "regr_syy"):
            index, half = (at_x, half_x) if kind == "regr_sxx" else (at_y, half_y)
            return _times(_scaled(self._variance(index, chance), half**2), self._count(index, chance))
        product = _scaled(self._product(chance, 1 if kind == "covar_samp" else 0), half_x * half_y)
        if kind in ("covar_pop", "covar_samp"):
            return product
        if kind == "regr_sxy":
            return _times(product, self._count(0, chance))
        of_x = _scaled(self._variance(at_x, chance), half_x**2)
        if kind in ("regr_slope", "regr_intercept"):
            slope = _over(product, of_x)
            if kind == "regr_slope":
                return slope
            means = (self._mean(at_y, self.y, chance), self._mean(at_x, self.x, chance))
            lost = _times(slope, means[1])
            return means[0][0] - lost[1], means[0][1] - lost[0]
        both = _times(of_x, _scaled(self._variance(at_y, chance), half_y**2))
        lower, upper = _over(product, (np.sqrt(np.clip(both[0], 0.0, None)), np.sqrt(both[1])))
        ends = np.clip(lower, -1.0, 1.0), np.clip(upper, -1.0, 1.0)
        if kind == "corr":
            return ends
        squares = ends[0] ** 2, ends[1] ** 2
        return np.where((ends[0] <= 0) & (ends[1] >= 0), 0.0, np.minimum(*squares)), np.maximum(*squares)

    def _count(self, index: int, confidence: float) -> Ends:
        estimate = estimates(self.blocks[index], (COUNT,), confidence=confidence)[COUNT]
        return np.clip(estimate.lower, 0.0, None), estimate.upper

    def _variance(self, index: int, confidence: float, ddof: int = 0) -> Ends:
        """Return the interval of a variance, which is never negative."""
        estimate = estimates(self.blocks[index], (VARIANCE,), confidence=confidence, ddof=ddof)[VARIANCE]
        return np.clip(estimate.lower - _ROUNDED, 0.0, None), estimate.upper + _ROUNDED

    def _mean(self, index: int, bounds: tuple[float, float], confidence: float) -> Ends:
        estimate = estimates(self.blocks[index], (AVG,), confidence=confidence)[AVG]
        middle, half = (bounds[0] + bounds[1]) / 2.0, (bounds[1] - bounds[0]) / 2.0
        return middle + half * (estimate.lower - _ROUNDED), middle + half * (estimate.upper + _ROUNDED)

    def _product(self, confidence: float, ddof: int) -> Ends:
        """Return the interval of the covariance of u and v."""
        u, v, w = (self._variance(index, confidence, ddof) for index in range(3))
        return 2.0 * w[0] - (u[1] + v[1]) / 2.0, 2.0 * w[1] - (u[0] + v[0]) / 2.0


def _scaled(ends: Ends, by: float) -> Ends:
    return ends[0] * by, ends[1] * by


def _times(first: Ends, second: Ends) -> Ends:
    products = [mine * theirs for mine in first for theirs in second]
    return np.minimum.reduce(products), np.maximum.reduce(products)


def _over(dividend: Ends, divisor: Ends) -> Ends:
    """Return the interval of a quotient; NaN if the divisor, which is not negative, may be 0."""
    by = np.where(divisor[0] > 0, divisor[0], np.nan), np.where(divisor[0] > 0, divisor[1], np.nan)
    quotients = [mine / theirs for mine in dividend for theirs in by]
    return np.minimum.reduce(quotients), np.maximum.reduce(quotients)


_INTEGERS = {
    "TINYINT": 8,
    "SMALLINT": 16,
    "INTEGER": 32,
    "BIGINT": 64,
    "HUGEINT": 128,
}
_NATURALS = {"UTINYINT": 8, "USMALLINT": 16, "UINTEGER": 32, "UBIGINT": 64, "UHUGEINT": 128}
_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")
Key = tuple[str | None, ...]


@dataclass(frozen=True)
class CoreRows:
    """The released table of a core: keys and numbers by row."""

    keys: list[Key]
    numbers: list[list[str | None]]
    errors: list[list[float | None]]
    lower: list[list[float | None]]
    upper: list[list[float | None]]
    standings: list[list[float | None]]
    draws: list[list[Doubles]]  # by row and number: the number, then the number less each draw of the noise

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows as mappings of lists."""
        columns = zip(*vars(self).values(), strict=True)
        names = tuple(vars(self))
        return [dict(zip(names, map(list, row), strict=True)) for row in columns]


def counted(
    result: Mapping[str, Any], cores: Sequence[Mapping[str, Any]], coordinates: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Return the requests to the cores of a query, with counts from the numbers in the answers.

    ``over`` of an answer is the number of noisy numbers in the column of its interval: a count, or the number of
    ``single`` numbers and, for each core by its position, the numbers for each of its groups. A core with ``draws``
    gets their number, and the `coordinates` of the noise of each vector.
    """
    sizes = [len(_keys_of(result, core)) for core in cores]

    def count(over: Any) -> int:
        if not isinstance(over, Mapping):
            return int(over)
        total: int = int(over["single"]) + sum(sizes[core] * int(times) for core, times in over["groups"])
        return max(1, total)

    amount = sum(size * len(core.get("draws", ())) for size, core in zip(sizes, cores, strict=True))
    number = DRAWS if amount <= _MOST_DRAWN else 0
    return [
        {
            **core,
            "answers": [
                {**answer, "over": count(answer["over"])} if "over" in answer else answer for answer in core["answers"]
            ],
            **({"number": number, "coordinates": coordinates or {}} if "draws" in core else {}),
        }
        for core in cores
    ]


def core_rows(result: Mapping[str, Any], answers: Mapping[str, Any], confidence: float) -> CoreRows:
    """Return the released table of a core.

    Parameters
    ----------
    result : mapping
        The ledger's record of a query: ``parts``, the results of all its parts in their order.
    answers : mapping
        ``keys_of``, the part that determines the groups; and ``answers``, for each number its part, its place in the
        part, the number to read, the SQL type and, for a requested interval, ``over``, the number of noisy numbers in
        the column of the interval.
    confidence : float
        Coverage of the intervals of such a column.
    """
    parts = result["parts"]
    keys = _keys_of(result, answers)
    columns = []
    for answer in answers["answers"]:
        part = parts[answer["part"]]
        estimate = _estimated(
            part, answer, confidence, 1.0 - (1.0 - confidence) / answer["over"] if "over" in answer else None
        )
        order = _positions(keys, _keys(_of_set(part, answer.get("set"))))
        standing = np.full(len(order), np.nan)
        if "over" in answer:  # its errors are requested
            standing = _take(_standing(part, answer, estimate), order)
        numbers = (_take(getattr(estimate, name), order) for name in ("value", "std_error", "lower", "upper"))
        columns.append((answer["type"], *numbers, standing))
    cells = [
        (
            [_text(number, kind) for number in value.tolist()],
            rounded_up(from_numbers(error, np.isnan(error))).to_pylist(),
            *map(_to_nullable, others),
        )
        for kind, value, error, *others in columns
    ]
    listed = zip(*cells, strict=True) if cells else [()] * 5
    texts, errors, lower, upper, standings = (_by_row(column, len(keys)) for column in listed)
    return CoreRows(keys, texts, errors, lower, upper, standings, _draws(result, answers, keys))


# The most numbers of a query that are drawn, in all groups: 2,002,000 rows in DuckDB.
_MOST_DRAWN = 2_000


def _draws(result: Mapping[str, Any], core: Mapping[str, Any], keys: Sequence[Key]) -> list[list[Doubles]]:
    """Return the drawn numbers of a core, by group: a list of each, which begins with the number itself.

    The bits follow from a hash of the released numbers, so the draws are the same whenever the release is read.
    """
    listed, number = core.get("draws", ()), core.get("number", 0)
    vectors: dict[int, list[Doubles] | None] = {}
    columns = np.full((len(listed), number + 1, len(keys)), np.nan)
    for column, index in enumerate(listed):
        answer = {} if index is None else core["answers"][index]
        if not number or answer.get("aggregate") not in (COUNT, SUM, AVG) or "set" in answer:
            continue
        position, at = answer["part"], answer["place"]
        part = result["parts"][position]
        if position not in vectors:
            vectors[position] = _drawn_noise(position, part, core["coordinates"].get(str(position)), number)
        noise = vectors[position]
        if noise is None:
            continue
        own = _estimated(part, answer, 0.95, None).value
        order = _positions(keys, _keys(part))
        columns[column, 0] = _take(own, order)
        block = restored_block(part["blocks"][at])
        shifted = (block.values[:, np.newaxis] - noise[at]).reshape(block.block.size, -1)
        moved = FittedBlock(block.block, block.lattice, block.words, shifted)
        values = estimates(moved, (answer["aggregate"],), confidence=None)[answer["aggregate"]].value
        moved_numbers = np.where(np.isnan(own), np.nan, values.reshape(number, -1))
        columns[column, 1:, order >= 0] = moved_numbers[:, order[order >= 0]].T
    return [list(row) for row in np.ascontiguousarray(columns.transpose(2, 0, 1))]


def _drawn_noise(
    position: int, part: Mapping[str, Any], coordinates: Sequence[Sequence[int]] | None, number: int
) -> list[Doubles] | None:
    """Return draws of the noise of a part's blocks, shape (size, number, G) each; None if its law is not known."""
    stored = part["blocks"]
    blocks = [restored_block(block) for block in stored]
    groups = blocks[0].values.shape[1]
    source = SeededWords(json.dumps([position, [block["words"] for block in stored]]))
    if any(block["kind"] == SharedTarget.kind for block in stored):
        return None
    if any(block.lattice.noise == CUBE for block in blocks):
        lattice = blocks[0].lattice
        coordinates = coordinates or ([[*range(blocks[0].block.size)]] if len(blocks) == 1 else [])
        if len({at for block in coordinates for at in block}) != lattice.together or len(coordinates) != len(blocks):
            return None
        noise = cube_noise(lattice.spread, lattice.together, number * groups, source=source)
        vector = noise.astype(np.float64).reshape(lattice.together, number, groups)
        return [vector[list(own)] * block.step for own, block in zip(coordinates, blocks, strict=True)]
    return [
        block.lattice.draw(block.block.size * number * groups, source)
        .astype(np.float64)
        .reshape(block.block.size, number, groups)
        * block.step
        for block in blocks
    ]


def undetermined(result: Mapping[str, Any], core: Mapping[str, Any], confidence: float) -> str:
    """Return how many rows a group needs, if noise leaves nothing of some average or deviation; else nothing."""
    needed = 0
    for answer in core["answers"]:
        if "aggregate" not in answer or answer["aggregate"] in (COUNT, SUM):
            continue
        part = result["parts"][answer["part"]]
        if np.isnan(_estimated(part, answer, confidence, None).value).any():
            stored = _of_set(part, answer.get("set"))["blocks"][answer["place"]]
            if None in stored.get("drawn", ()):
                return "; undetermined: too few rows to find bounds, and lower and upper that are given need none"
            noisy = restored_block(stored)
            needed = max(needed, rows_needed(noisy.block, noisy.lattice, answer["aggregate"], confidence=confidence))
    return f"; undetermined: a group needs about {needed} rows, or half as many at twice the epsilon" if needed else ""


def extremes(result: Mapping[str, Any], core: Mapping[str, Any]) -> str:
    """Return the levels of the quantiles in place of min and max, if the core has any; else nothing."""
    levels: dict[str, None] = {}
    for answer in core["answers"]:
        if answer.get("kind") == "extreme":
            part = result["parts"][answer["part"]]
            record = part if isinstance(part, Mapping) else {"values": part}
            at = record["quantiles"] if "quantiles" in record else [share for share, _ in record["values"]]
            share = at[answer["quantile"]]
            levels[f"{'min' if share < 1 / 2 else 'max'} is the quantile {share:g}"] = None
    return "".join(f"; {level}" for level in levels)


def _standing(part: Any, answer: Mapping[str, Any], estimate: Estimated) -> Doubles:
    """Return the standing of a number of every group (`dpsql.contract.covers`)."""
    if "quantile" in answer:
        verdicts = part.get("verdicts", []) if isinstance(part, Mapping) else []
        groups = verdicts if isinstance(part, Mapping) and part.get("keys") else [verdicts]
        clear = np.array([group[answer["quantile"]] == CLEAR for group in groups if group], dtype=np.bool_)
        standing = np.where(clear, NARROWED, DOUBTED) if len(clear) else np.full(len(estimate.value), DOUBTED)
    elif "bounds" in answer:
        half = np.fmax(estimate.upper - estimate.value, estimate.value - estimate.lower)
        standing = np.where(_clipped_of_pair(part, answer) * np.abs(estimate.value) > half / 2.0, LEFT_OUT, COUNTED)
    else:
        of_set, index, name = _of_set(part, answer.get("set")), answer["place"], answer["aggregate"]
        bounds = of_set["blocks"][index]["bounds"]
        standing = np.full(len(estimate.value), COUNTED)
        if name == AVG and bounds is not None:
            standing = np.where(is_narrowed(estimate.lower, estimate.upper, bounds[1] - bounds[0]), NARROWED, DOUBTED)
        limits = {"left_out": part["left_out"]} if "left_out" in part else {}
        if limits or "drawn" in of_set["blocks"][index]:
            kind = STDDEV if answer["kind"].startswith(STDDEV) else name
            biased = is_biased({**of_set, **limits}, index, kind, estimate)
            standing = np.where(biased, LEFT_OUT, standing)
    return standing.astype(np.float64)


def _keys_of(result: Mapping[str, Any], answers: Mapping[str, Any]) -> list[Key]:
    """Return the keys of the groups of a core."""
    return _keys(_of_set(result["parts"][answers["keys_of"]], answers.get("keys_set")))


def _by_row(columns: Sequence[Sequence[Any]], rows: int) -> list[list[Any]]:
    return [list(row) for row in zip(*columns, strict=True)] if columns else [[] for _ in range(rows)]


def _to_nullable(values: Doubles) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values.tolist()]


def _keys(part: Any) -> list[Key]:
    """Return the keys of the groups of a part; one group of all rows has no key."""
    columns = part.get("keys") if isinstance(part, Mapping) else None
    return list(zip(*columns, strict=True)) if columns else [()]


def _of_set(part: Any, number: int | None) -> Any:
    """Return the ledger's record of one grouping set of a part, or of a part without grouping sets."""
    return part if number is None else part["sets"][number]


def _positions(keys: Sequence[Key], others: Sequence[Key]) -> NDArray[np.int64]:
    """Return the position of each key among others; -1 for a missing key."""
    where = {key: index for index, key in enumerate(others)}
    return np.array([where.get(key, -1) for key in keys], dtype=np.int64)


def _take(values: Doubles, order: NDArray[np.int64]) -> Doubles:
    """Return the numbers of some groups; NaN for a missing group."""
    out = np.full(len(order), np.nan)
    out[order >= 0] = np.asarray(values, dtype=np.float64)[order[order >= 0]]
    return out


def _estimated(part: Any, answer: Mapping[str, Any], confidence: float, ends: float | None) -> Estimated:
    """Return a number of every group, with intervals of this coverage; NaN if noise leaves nothing of it."""
    if "quantile" in answer:
        return _quantile(part, answer["quantile"], answer.get("over", 1))
    if "bounds" in answer:
        blocks = [restored_block(part["blocks"][answer["place"] + index]) for index in range(3)]
        intervals = part.get("intervals", {})
        bounds = [ends or intervals[name][:2] for name, ends in zip(answer["columns"], answer["bounds"], strict=True)]
        if [None, None] in bounds:
            return _unknown(len(blocks[0].values[0]))
        return _of_pair(blocks, answer, bounds, ends)
    stored = _of_set(part, answer.get("set"))["blocks"][answer["place"]]
    name = answer["aggregate"]
    kind = STDDEV if answer["kind"].startswith(STDDEV) else name

    def block(confidence: float | None) -> NoisyBlock:
        fitted = "set" in answer
        return (
            fitted_block(part["sets"], answer["set"], answer["place"], confidence) if fitted else restored_block(stored)
        )

    estimate = estimates(block(ends), (kind,), confidence=ends, ddof=answer["ddof"])[kind]
    if name not in (COUNT, SUM):  # noise always leaves something of these
        estimate = estimate.without(nothing_left(block(confidence), kind, confidence=confidence, ddof=answer["ddof"]))
    undrawn = None in stored.get("drawn", ())
    return estimate if name == COUNT or not undrawn else _unknown(len(estimate.value))


def _unknown(groups: int) -> Estimated:
    return Estimated(*(np.full(groups, np.nan) for _ in range(4)))


def _quantile(part: Any, index: int, numbers: int) -> Estimated:
    """Return one quantile of every group, with its interval for a column that is made of `numbers` numbers."""
    if not isinstance(part, Mapping):
        part = {"values": part}
    names = _ENDS if numbers == 1 else tuple(f"{name}_{numbers}" for name in _ENDS)
    groups = part["values"] if "keys" in part and part.get("keys") else None
    if groups is None:
        value = [part["values"][index][1]]
        ends = [[part[name][index]] if name in part else [None] for name in names]
    else:
        value = [group[index] for group in groups]
        ends = [[group[index] for group in part[name]] if name in part else [None] * len(value) for name in names]
    columns = [np.array([np.nan if end is None else end for end in listed], dtype=np.float64) for listed in ends]
    values = np.array([np.nan if number is None else number for number in value], dtype=np.float64)
    return Estimated(values, np.full(len(values), np.nan), *columns)


_ENDS = ("lower", "upper")
# A slope or a correlation needs variances this many standard errors of the noise above 0.
_CLEAR = 2.0


@dataclass(frozen=True)
class _Moments:
    """The noisy moments of a pair, in units of the half widths of the bounds: of u, v, and w = (u + v) / 2."""

    count: Doubles
    rows: Doubles  # the same, if there are enough rows
    first: Doubles
    second: Doubles
    of_first: Doubles
    of_second: Doubles
    product: Doubles

    @classmethod
    def of(cls, blocks: Sequence[NoisyBlock]) -> _Moments:
        """Return the moments of three blocks."""
        sums = [np.array(block.block.moments) @ block.values for block in blocks]
        rows = np.mean([moments[0] for moments in sums], axis=0)
        count = np.where(rows >= 2.0, rows, np.nan)
        means = [np.clip(moments[1] / count, -1.0, 1.0) for moments in sums]
        squares = [np.clip(moments[2] / count, 0.0, 1.0) for moments in sums]
        spread = [np.clip(square - mean**2, 0.0, None) for square, mean in zip(squares, means, strict=True)]
        product = 2.0 * spread[2] - (spread[0] + spread[1]) / 2.0
        reach = np.sqrt(spread[0] * spread[1])
        return cls(rows, count, means[0], means[1], spread[0], spread[1], np.clip(product, -reach, reach))


def _of_pair(
    blocks: Sequence[NoisyBlock], answer: Mapping[str, Any], bounds: Sequence[Sequence[float]], confidence: float | None
) -> Estimated:
    """Return an aggregate of a pair, in DuckDB's order of arguments: the first column is y, and the second is x."""
    moments = _Moments.of(blocks)
    y, x = (moments.first, moments.of_first), (moments.second, moments.of_second)
    if answer["swapped"]:
        y, x = x, y
    (mean_y, var_y), (mean_x, var_x) = y, x
    (low_y, high_y), (low_x, high_x) = bounds
    half_y, half_x = (high_y - low_y) / 2.0, (high_x - low_x) / 2.0
    middle_y, middle_x = (high_y + low_y) / 2.0, (high_x + low_x) / 2.0
    rows, cov = moments.rows, moments.product
    noise = np.max([block.deviation for block in blocks]) / rows
    spread_x, spread_y = (np.where(var > _CLEAR * noise, var, np.nan) for var in (var_x, var_y))
    slope = cov / spread_x * half_y / half_x
    average_y, average_x = middle_y + half_y * mean_y, middle_x + half_x * mean_x
    kinds = {
        "corr": cov / np.sqrt(spread_x * spread_y),
        "covar_pop": cov * half_x * half_y,
        "covar_samp": cov * half_x * half_y * rows / (rows - 1.0),
        "regr_slope": slope,
        "regr_intercept": average_y - slope * average_x,
        "regr_r2": cov**2 / (spread_x * spread_y),
        "regr_count": moments.count,
        "regr_avgx": average_x,
        "regr_avgy": average_y,
        "regr_sxx": var_x * half_x**2 * rows,
        "regr_syy": var_y * half_y**2 * rows,
        "regr_sxy": cov * half_x * half_y * rows,
    }
    value = np.asarray(kinds[answer["kind"]], dtype=np.float64)
    missing = np.full(len(value), np.nan)
    if confidence is None:
        return Estimated(value, missing, missing, missing)
    with np.errstate(all="ignore"):
        ends = PairSpans(blocks, (low_y, high_y), (low_x, high_x), answer["swapped"], confidence).ends(answer["kind"])
    if ends is None:
        return Estimated(value, missing, missing, missing)
    lower, upper = (np.where(np.isnan(value), np.nan, end) for end in ends)
    return Estimated(value, missing, np.minimum(lower, value), np.maximum(upper, value))


def _clipped_of_pair(part: Any, answer: Mapping[str, Any]) -> Doubles:
    """Return the share of the variances of a pair, over all groups, that drawn bounds have likely clipped."""
    moments = _Moments.of([restored_block(part["blocks"][answer["place"] + index]) for index in range(3)])
    spreads = dict(zip(answer["columns"], (moments.of_first, moments.of_second), strict=True))
    shares = np.zeros(len(moments.rows))
    if answer["kind"] == "regr_count":
        return shares
    intervals = {name: restored_interval(part["intervals"][name]) for name in part.get("intervals", ())}
    for name, public in zip(answer["columns"], answer["bounds"], strict=True):
        ends = intervals[name].ends if public is None else None
        if ends is not None:
            rows = moments.rows.sum()
            square = intervals[name].clipped(ends, 2, rows) / ((ends[1] - ends[0]) / 2.0) ** 2
            shares += square / np.fmax(rows * spreads[name], 1.0)
    return shares


def _text(value: float, kind: str) -> str | None:
    """Return a number as a string for a SQL type; None for NULL, or if the type has no such value."""
    if math.isnan(value):
        return None
    bits = _INTEGERS.get(kind)
    if bits is not None or kind in _NATURALS:
        integer = _rounded(value)
        least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if bits else (0, (1 << _NATURALS[kind]) - 1)
        return str(integer) if integer is not None and least <= integer <= most else None
    decimal = _DECIMAL.fullmatch(kind)
    if decimal is None:
        return repr(value)
    width, scale = int(decimal[1]), int(decimal[2])
    if not math.isfinite(value) or abs(value) >= 10.0 ** (width - scale):
        return None
    with localcontext(prec=400):
        number = Decimal(value).quantize(Decimal(1).scaleb(-scale), rounding=ROUND_HALF_EVEN)
    return None if len(number.as_tuple().digits) > width else format(number, "f")


def _rounded(value: float) -> int | None:
    return round(value) if math.isfinite(value) else None

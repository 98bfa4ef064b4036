"""Check a privacy claim on every table of a small domain, from the exact output law.

The check does not sample. A law that passes has the stated epsilon on this domain, up to the rounding of double
arithmetic. A law that fails comes with two tables and an output as counter-example.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from dpsql.dataclass import dataclass
from dpsql.testing.neighbours import Relation, Row, Table, neighbouring_families

# Probabilities compared at once: limits the memory of a block of pairs.
_BLOCK = 2_000_000


@dataclass(frozen=True)
class ExhaustiveReport:
    """The largest privacy loss over all neighbouring tables.

    Attributes
    ----------
    relation : str
        The neighbouring relation.
    log_ratio : float
        Largest ``|log P(output | table) - log P(output | neighbour)|``, in [0, inf]; inf if an output is possible on
        one table only.
    table, neighbour : tuple of tuple
        The tables that reach it; the output is likelier on `table`.
    output : object
        The output that reaches it.
    tables, pairs : int
        Distinct laws, and distinct pairs of laws, that were compared.
    """

    relation: str
    log_ratio: float
    table: Table
    neighbour: Table
    output: Any
    tables: int
    pairs: int

    def within(self, epsilon: float | Fraction, *, tolerance: float = 1e-9) -> bool:
        """Whether the loss is at most ``epsilon (1 + tolerance)``; the tolerance is for rounding."""
        return self.log_ratio <= float(epsilon) * (1.0 + tolerance)

    def __str__(self) -> str:
        return (
            f"{self.relation}: largest log ratio {self.log_ratio:.6g} over {self.pairs} pairs of {self.tables} laws, "
            f"at output {self.output!r} of {self.table!r} against {self.neighbour!r}"
        )


@dataclass(frozen=True)
class SensitivityReport:
    """The largest change of a vector statistic between neighbouring tables.

    Attributes
    ----------
    relation : str
        The neighbouring relation.
    largest : Fraction
        Largest change of one component (L-infinity).
    total : Fraction
        Largest sum of the changes of all components (L1).
    range : Fraction
        Largest spread ``max_j change_j - min_j change_j``: calibrate a selection to it.
    table, neighbour : tuple of tuple
        The tables that reach `largest`.
    pairs : int
        Distinct pairs of statistics that were compared.
    """

    relation: str
    largest: Fraction
    total: Fraction
    range: Fraction
    table: Table
    neighbour: Table
    pairs: int


def check_exhaustively(
    law: Callable[[Table], Mapping[Any, float]],
    domain: Sequence[Row],
    max_rows: int,
    relation: Relation,
    *,
    ordered: bool = False,
    key: Callable[[Table], Hashable] | None = None,
) -> ExhaustiveReport:
    """Return the largest log ratio of an output law over all neighbouring tables.

    Parameters
    ----------
    law : callable
        Exact law of the output on a table: output -> probability. Omitted outputs have probability 0.
    domain : sequence of tuple
        The rows that exist. The number of tables grows as ``len(domain)**max_rows``.
    max_rows : int
        Largest number of rows of any table, >= 1.
    relation : {'add_remove', 'replace'}
        The neighbouring relation.
    ordered : bool
        False if the law does not depend on the order of rows: multisets suffice.
    key : callable, optional
        A function of the table that determines the law, such as the exact statistic: tables with one key are compared
        once. The function trusts the key.

    Returns
    -------
    report : ExhaustiveReport

    Examples
    --------
    Randomised response on one bit, with a claim of epsilon = ln 3:

    >>> def law(table):
    ...     p = 0.75 if table[0] == (1,) else 0.25
    ...     return {1: p, 0: 1 - p}
    >>> report = check_exhaustively(law, [(0,), (1,)], 1, "replace")
    >>> round(report.log_ratio, 6), report.within(math.log(3))
    (1.098612, True)
    """
    space = _Space(domain, key)
    pairs = space.pairs(max_rows, relation, ordered)
    laws = [law(space.table(number)) for number in range(len(space))]
    outputs: dict[Any, int] = {}
    for probabilities in laws:
        _check_law(probabilities)
        for output in probabilities:
            outputs.setdefault(output, len(outputs))
    logs = np.full((len(laws), len(outputs)), -np.inf)
    for number, probabilities in enumerate(laws):
        for output, probability in probabilities.items():
            if probability > 0.0:
                logs[number, outputs[output]] = math.log(probability)
    loss, first, second, column = _worst(logs, pairs)
    return ExhaustiveReport(
        relation=relation,
        log_ratio=loss,
        table=space.table(first),
        neighbour=space.table(second),
        output=list(outputs)[column],
        tables=len(laws),
        pairs=len(pairs),
    )


def check_sensitivity(
    statistic: Callable[[Table], Sequence[Any]],
    domain: Sequence[Row],
    max_rows: int,
    relation: Relation,
    *,
    ordered: bool = False,
) -> SensitivityReport:
    """Return the largest change of a statistic over all neighbouring tables, in exact arithmetic.

    Parameters
    ----------
    statistic : callable
        Vector of numbers of a table, always of the same length. Floats count as exact rationals, so an overshoot by one
        unit in the last place shows.
    domain, max_rows, relation, ordered
        As in `check_exhaustively`.

    Returns
    -------
    report : SensitivityReport
    """

    def exact(table: Table) -> tuple[Fraction, ...]:
        return tuple(Fraction(value) for value in statistic(table))

    space = _Space(domain, exact)
    pairs = space.pairs(max_rows, relation, ordered)
    largest = total = spread = Fraction(-1)
    where = (0, 0)
    for first, second in pairs:
        changes = [b - a for a, b in zip(space.keys[first], space.keys[second], strict=True)]
        change = max(map(abs, changes), default=Fraction(0))
        if change > largest:
            largest, where = change, (first, second)
        total = max(total, sum(map(abs, changes), Fraction(0)))
        spread = max(spread, max(changes, default=Fraction(0)) - min(changes, default=Fraction(0)))
    zero = Fraction(0)
    return SensitivityReport(
        relation=relation,
        largest=max(largest, zero),
        total=max(total, zero),
        range=max(spread, zero),
        table=space.table(where[0]),
        neighbour=space.table(where[1]),
        pairs=len(pairs),
    )


class _Space:
    """Tables of a domain, numbered by their key in order of appearance."""

    def __init__(self, domain: Sequence[Row], key: Callable[[Table], Any] | None) -> None:
        self.domain = domain
        self.keys: list[Any] = []
        self._key = key
        self._numbers: dict[Any, int] = {}
        self._examples: list[tuple[int, ...]] = []
        self._seen: dict[tuple[int, ...], int] = {}

    def __len__(self) -> int:
        return len(self._examples)

    def table(self, number: int) -> Table:
        return tuple(self.domain[row] for row in self._examples[number])

    def number(self, rows: tuple[int, ...]) -> int:
        index = self._seen.get(rows)
        if index is None:
            key = rows if self._key is None else self._key(tuple(self.domain[row] for row in rows))
            index = self._numbers.setdefault(key, len(self._examples))
            if index == len(self._examples):
                self._examples.append(rows)
                self.keys.append(key)
            self._seen[rows] = index
        return index

    def pairs(self, max_rows: int, relation: Relation, ordered: bool) -> list[tuple[int, int]]:
        pairs: dict[tuple[int, int], None] = {}
        for family in neighbouring_families(len(self.domain), max_rows, relation, ordered=ordered):
            numbers = sorted({self.number(rows) for rows in family})
            pairs.update(dict.fromkeys(itertools.combinations(numbers, 2)))
        if not self._examples:
            self.number(())
        return list(pairs)


def _check_law(law: Mapping[Any, float]) -> None:
    total = math.fsum(law.values())
    if not abs(total - 1.0) < 1e-9 or not all(probability >= 0.0 for probability in law.values()):
        raise ValueError(f"a law must hold probabilities that sum to 1; they sum to {total!r}")


def _worst(logs: np.ndarray[Any, Any], pairs: Sequence[tuple[int, int]]) -> tuple[float, int, int, int]:
    best = (0.0, 0, 0, 0)
    numbers = np.asarray(pairs, dtype=np.intp).reshape(-1, 2)
    step = max(1, _BLOCK // max(1, logs.shape[1]))
    for start in range(0, len(numbers), step):
        block = numbers[start : start + step]
        with np.errstate(invalid="ignore"):
            difference = logs[block[:, 0]] - logs[block[:, 1]]
        difference[np.isnan(difference)] = 0.0  # impossible on both tables
        index = int(np.argmax(np.abs(difference)))
        row, column = divmod(index, difference.shape[1])
        loss = float(difference[row, column])
        if abs(loss) > best[0]:
            first, second = (int(number) for number in block[row])
            best = (abs(loss), first, second, column) if loss > 0 else (abs(loss), second, first, column)
    return best

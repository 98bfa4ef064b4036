"""The one seam of the suite: what every mechanism is given, as integers and rows; and entropy that repeats itself."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

import dpsql.engines.driver
import dpsql.engines.duckdb.running
import dpsql.engines.duckdb.session
import dpsql.functions.feature_counts
import dpsql.functions.score_filter
import dpsql.functions.sis
import dpsql.functions.two_stage
import dpsql.kernels.lasso_votes
import dpsql.mechanisms.partition_selection
import dpsql.statistics.votes
import dpsql.udfs.release
import dpsql.udfs.sis
from dpsql.contract.fold import Collector, Fold, Ignoring, RowTransform
from dpsql.engines.duckdb.session import Session
from dpsql.functions.grouped.plan import GroupedCall
from dpsql.mechanisms.aggregates import GroupedNoise, NoisyBlock, on_lattice
from dpsql.mechanisms.interval_scan import ScannedInterval
from dpsql.mechanisms.keyed_aggregates import KeyedNoise
from dpsql.mechanisms.prefix_sums import CumulativeCounts
from dpsql.mechanisms.quantile import GroupQuantileSelection
from dpsql.noise.entropy import OperatingSystemEntropy
from dpsql.progress import Progress
from dpsql.statistics.aggregates import GroupedSums, KeyedSums, Labels, Sums, Words
from dpsql.statistics.auc import ClassScores, Concordance
from dpsql.statistics.presence import NameCounts
from dpsql.testing.bits import SeededBits
from support.broken.planting import planted


class Repeated:
    """Entropy that is the same in every call of one number, whatever the connection."""

    def __init__(self) -> None:
        self.begin(0)

    def begin(self, number: int) -> None:
        """Start a call: its ticket and its bits follow from its number."""
        self._ticket = 1 + number * 1_000_003
        self._bits = SeededBits(number)
        self._lock = threading.Lock()

    def words(self, size: int, /) -> NDArray[np.uint64]:
        """Return the next words of the call."""
        with self._lock:
            return self._bits.words(size)

    def randbits(self, bits: int) -> int:
        """Return the next ticket: a statement may hold several calls."""
        with self._lock:
            self._ticket += 1
            return self._ticket % (1 << bits)

    def token_bytes(self, size: int) -> bytes:
        """Return the sampling key of a session, and the key of a call."""
        return bytes(range(1, size + 1))


class Zeros:
    """For what is drawn row by row: such numbers depend on the order of the rows, so all are alike."""

    def words(self, size: int, /) -> NDArray[np.uint64]:
        """Return zeros."""
        return np.zeros(size, dtype=np.uint64)


def fixed_entropy(entropy: Repeated) -> list[tuple[Any, str, Any]]:
    """Return what makes sampling keys, tickets and noise repeatable: the one place to adapt when they are made anew."""
    in_rows = [dpsql.udfs.release, dpsql.statistics.votes]
    return [
        (dpsql.engines.duckdb.session, "secrets", entropy),
        (dpsql.engines.duckdb.running, "secrets", entropy),
        (OperatingSystemEntropy, "words", lambda self, size, /: entropy.words(size)),
        *((module, "SYSTEM", Zeros()) for module in in_rows),
        (dpsql.kernels.lasso_votes, "_uniform", lambda size, source: np.arange(size) / size),  # keyed on engines
    ]


@dataclass
class Pass:
    """What one pass over the rows gave.

    Attributes
    ----------
    integers : tuple of int or None
        What was counted or summed, flat.
    rows : ndarray of int64, shape (n, columns)
        The rows that came to a collector, as the bits of their doubles in ascending order, and the hash that decides
        their block.
    named : mapping or None
        Rows by name of a private vocabulary.
    state : tuple or None
        Of a fold: all that its state holds.
    given : tuple or None
        Of a call with groups: the part that adds noise, and what it is given.
    numbers : mapping or None
        Of private keys: the place of each key's sums in what the part before was given.
    """

    integers: tuple[int, ...] | None = None
    rows: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 0), np.int64))
    named: Mapping[str, int] | None = None
    state: tuple[tuple[int, ...], ...] | None = None
    given: tuple[Any, ...] | None = None
    numbers: Mapping[tuple[str | None, ...], int] | None = None

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Pass)
        return (self.integers, self.named) == (other.integers, other.named) and np.array_equal(self.rows, other.rows)

    def differs(self, other: Pass) -> str:
        """Say in what two passes differ."""
        if self.named != other.named:
            counted = {*(self.named or {}).items()} ^ {*(other.named or {}).items()}
            return f"{len(counted)} counts of names, such as {min(counted, key=repr)}"
        if len(self.rows) != len(other.rows):
            return f"{len(self.rows)} rows instead of {len(other.rows)}"
        if self.rows.shape != other.rows.shape or not np.array_equal(self.rows, other.rows):
            moved = (self.rows != other.rows).any(axis=1).sum() if self.rows.shape == other.rows.shape else "all"
            return f"{moved} of {len(self.rows)} rows are others"
        assert self.integers is not None
        assert other.integers is not None
        if len(self.integers) != len(other.integers):
            return f"{len(self.integers)} integers instead of {len(other.integers)}"
        pairs = [
            (place, a, b) for place, (a, b) in enumerate(zip(self.integers, other.integers, strict=True)) if a != b
        ]
        return f"{len(pairs)} integers, such as {pairs[0][1]} instead of {pairs[0][2]} at {pairs[0][0]}"


@dataclass
class Seen:
    """What a call came to: the passes of its statistic, or the rows of its answer, or an error.

    Attributes
    ----------
    passes : list of Pass
    plan : Plan or None
        Of a table function whose arguments are good.
    call : Call or None
        As the mechanism finds it, with its plan.
    rows : list of tuple or None
        Of a call that was let through.
    error : str or None
        A code of ours, or DuckDB's own first line.
    """

    passes: list[Pass] = field(default_factory=list)
    plan: Any = None
    call: Any = None
    rows: list[tuple[Any, ...]] | None = None
    error: str | None = None

    def differs(self, other: Seen) -> str | None:
        """Say in what two calls differ, None when they agree."""
        if self.error or other.error:
            return None if self.error == other.error else f"{self.error} instead of {other.error or 'an answer'}"
        if self.rows != other.rows:
            pairs = zip(self.rows or (), other.rows or (), strict=False)
            return next((f"{a} instead of {b}" for a, b in pairs if a != b), "more rows, or fewer")[:150]
        if len(self.passes) != len(other.passes):
            return f"{len(self.passes)} passes instead of {len(other.passes)}"
        wrong = [(n, a.differs(b)) for n, (a, b) in enumerate(zip(self.passes, other.passes, strict=True), 1) if a != b]
        return f"pass {wrong[0][0]}: {wrong[0][1]}" if wrong else None


class _Stop(Exception):
    """Ends a call once its statistic is known: nothing is drawn or charged."""


# How parts draw the noise of groups.
_GROUP_DRAWS = (
    (GroupedNoise, "draw"),
    (CumulativeCounts, "draw"),
    (GroupQuantileSelection, "draw_groups"),
    (ScannedInterval, "draw_groups"),
)


class Watch:
    """Calls SQL and keeps what the mechanisms see.

    Parameters
    ----------
    entropy : Repeated
    """

    def __init__(self, entropy: Repeated) -> None:
        self._entropy = entropy
        self._seen = Seen()
        self._through = False
        self._batches: list[NDArray[np.int64]] = []
        self._lock = threading.Lock()
        self._depth = threading.local()

    def ask(self, connection: Any, sql: str, number: int, *, through: bool = False) -> Seen:
        """Run one statement that holds one call.

        Parameters
        ----------
        connection : object
        sql : str
        number : int
            Of the call: one number, one entropy.
        through : bool
            Let the call draw and answer, rather than end it where its statistic is known.
        """
        self._entropy.begin(number)
        self._seen, self._through, self._batches = Seen(), through, []
        try:
            answer = connection.execute(sql).fetchall()
        except duckdb.Error as error:
            if self._seen.call is None or through:
                self._seen.error = _first_line(str(error))
        else:
            self._seen.rows = [_comparable(row) for row in answer]
            if not through:
                self._seen.rows.sort(key=repr)
        return self._seen

    def patches(self) -> list[tuple[Any, str, Any]]:
        """Return what is put in the place of the product's parts."""
        finish, turn = Session.finish, Session.turn
        watch = self

        def watched_finish(session: Session, ticket: int, running: Any, statistic: Any) -> Any:
            if watch._through:
                return finish(session, ticket, running, statistic)
            watch._end_pass(statistic)
            watch._seen.call = running.call
            if isinstance(running.call, GroupedCall) and not isinstance(statistic, Labels):
                running.call.prepare(statistic, Progress(""))()  # ends at what the part is given
            raise _Stop

        def watched_turn(session: Session, ticket: int, number: int, complete: Any) -> None:
            def completed(running: Any) -> Any:
                collector = complete(running)
                watch._end_pass(collector)
                return collector

            turn(session, ticket, number, completed)

        def vocabulary(names: list[str], counts: Any, selection: Any) -> list[str]:
            return sorted(names)  # what follows is judged for every name

        note = Session.note

        def watched_note(session: Session, function: str, plan: Any, **given: Any) -> None:
            watch._seen.plan = plan
            note(session, function, plan, **given)

        draw = KeyedNoise.draw

        def every_key(part: KeyedNoise, sums: list[Sums]) -> tuple[Any, list[NoisyBlock]]:
            if watch._through:
                return draw(part, sums)
            watch._seen.passes[-1].given = (part, sums)
            laws = zip(part.blocks, part.noise.lattices, sums, strict=True)
            exact = [NoisyBlock(block, law, on_lattice(block.words(given), law.bits)) for block, law, given in laws]
            return np.arange(len(sums[0].n)), exact

        def given_to(draw: Any) -> Any:
            def stopped(part: Any, *given: Any) -> Any:
                if watch._through:
                    return draw(part, *given)
                watch._seen.passes[-1].given = (part, *given)
                raise _Stop

            return stopped

        def center(plan: Any, high: int, low: int) -> int:
            watch._seen.passes = [
                Pass(integers=(int(high), int(low)))
            ]  # on an engine, instead of the sums it came from
            return 12_345  # what follows is judged for any one centre

        collectors = [kind for kind in _subclasses(Collector) if "add" in vars(kind)]
        return [
            (Session, "finish", watched_finish),
            (Session, "turn", watched_turn),
            (Session, "note", watched_note),
            (dpsql.mechanisms.partition_selection, "select_partitions", vocabulary),
            (KeyedNoise, "draw", every_key),
            *((kind, name, given_to(vars(kind)[name])) for kind, name in _GROUP_DRAWS),
            (dpsql.udfs.sis, "draw_center", center),
            (dpsql.functions.sis, "draw_center", center),
            *((kind, "add", self._watched_add(vars(kind)["add"])) for kind in collectors),
        ]

    def _watched_add(self, add: Any) -> Any:
        def watched(collector: Any, target: Any, features: Any, batch: Any) -> None:
            depth = self._depth.__dict__.setdefault("now", 0)
            if depth == 0 and not self._through:  # collectors may hold others
                kept = _bits(target, features, batch.keys)
                with self._lock:
                    self._batches.append(kept)
            self._depth.now = depth + 1
            try:
                add(collector, target, features, batch)
            finally:
                self._depth.now = depth

        return watched

    def _end_pass(self, statistic: Any) -> None:
        batches, self._batches = self._batches, []
        rows = np.concatenate(batches) if batches else np.empty((0, 0), np.int64)
        if isinstance(statistic, Labels):
            numbers = {labels: number - 1 for number, (_, labels) in statistic.entries.items()}
            self._seen.passes.append(Pass(named={repr(labels): 1 for labels in numbers}, numbers=numbers))
            return
        if isinstance(statistic, NameCounts):  # whose names come in any order
            names = [name.decode() for name in statistic.vocabulary.names]
            self._seen.passes.append(Pass(named=dict(zip(names, statistic.counts.tolist(), strict=True))))
            return
        rows = rows[np.lexsort(rows.T)] if rows.size else rows
        self._seen.passes.append(Pass(_integers(statistic), rows, state=_state(statistic)))


@contextmanager
def watching() -> Iterator[Watch]:
    """Watch the calls of every connection that is opened in this context."""
    entropy = Repeated()
    watch = Watch(entropy)
    with planted(*fixed_entropy(entropy), *watch.patches()):
        yield watch


def _integers(statistic: Any) -> tuple[int, ...] | None:
    """Return what was summed or counted; None of a collector that keeps rows as they come."""
    if isinstance(statistic, np.ndarray):
        return tuple(map(int, statistic.tolist()))
    if isinstance(statistic, RowTransform) and isinstance(statistic.inner, GroupedSums):
        return _of_groups(statistic.inner.sums())
    if isinstance(statistic, GroupedSums):
        return _of_groups(statistic.sums())
    if isinstance(statistic, ClassScores):  # of which SQL gives these integers
        return astuple(Concordance.of_scores(*statistic.scores))
    if isinstance(statistic, KeyedSums):  # whose keys have numbers in any order
        sums = statistic.sums()
        groups = [_of_groups([one.take(np.array([place])) for one in sums]) for place in range(len(sums[0].n))]
        return tuple(number for group in sorted(groups) for number in group)
    for name in ("counts", "total", "sums", "cells"):
        value = getattr(statistic, name, None)
        if value is None or type(statistic).__name__ == "WholeTable":  # whose counting takes its rows away
            continue
        value = value() if callable(value) else value
        value = getattr(value, "counts", value)
        return tuple(map(int, np.asarray(value, dtype=object).ravel().tolist()))
    return None


def _state(statistic: Any) -> tuple[tuple[int, ...], ...] | None:
    while isinstance(statistic, RowTransform):
        statistic = statistic.inner
    if isinstance(statistic, Ignoring):
        return ()
    if not isinstance(statistic, Fold) or isinstance(statistic, KeyedSums):  # keys are no integers
        return None
    return tuple(tuple(map(_integer, column.flatten().to_pylist())) for column in statistic.state().columns)


def _integer(value: Any) -> int:
    return int.from_bytes(value) if isinstance(value, bytes) else int(value)


def _of_groups(sums: list[Sums]) -> tuple[int, ...]:
    """Return the sums of groups, target by target."""
    found: list[int] = []
    for one in sums:
        squares = one.s2.integers() if isinstance(one.s2, Words) else [] if one.s2 is None else one.s2
        found += [*map(int, one.n), *map(int, one.s1), *map(int, squares)]
    return tuple(found)


def _bits(target: Any, features: Any, keys: Any) -> NDArray[np.int64]:
    """Return rows as integers, NaN and zero in one form each."""
    values = np.concatenate([np.asarray(target, np.float64)[np.newaxis], features]).T + 0.0
    values[np.isnan(values)] = np.nan
    hashes = np.zeros(len(values), np.uint64) if keys is None else keys
    return np.column_stack([np.ascontiguousarray(values).view(np.int64), hashes.view(np.int64)])


def _comparable(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(map(_comparable, value))
    if isinstance(value, dict):
        return tuple((name, _comparable(item)) for name, item in value.items())
    return repr(value) if isinstance(value, float) else value


def _first_line(text: str) -> str:
    code = re.search(r"DPSQL-[A-Z]\d+", text)
    return code.group() if code else text.splitlines()[0][:160]


def _subclasses(kind: type) -> Iterable[type]:
    for below in kind.__subclasses__():
        yield below
        yield from _subclasses(below)

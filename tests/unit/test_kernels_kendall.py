"""Pair counts: the compiled kernels, NumPy and brute force agree, whatever the ties, blocks and threads."""

from __future__ import annotations

import bisect
import itertools
import subprocess
import sys
import time
import types
import weakref
from collections.abc import Iterator
from dataclasses import asdict
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from dpsql.kernels import kendall
from dpsql.kernels.kendall import RankedTable, pair_counts, rank_column
from dpsql.kernels.workers import Compiled
from support.cases import cases

NAN, INF = np.nan, np.inf


@pytest.fixture(params=["numpy", "tables", "listed", "ranked"])
def path(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """NumPy, or compiled: by tables of counts, by lists of distinct values without tables, or by ranks alone."""
    use(request.param, monkeypatch)
    return str(request.param)


KERNELS = kendall.compiled_kernels  # held here, because tests put other ones in its place


@lru_cache
def compiled() -> Any:
    KERNELS.start().join()
    return KERNELS.kernels


def use(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = None if path == "numpy" else compiled()
    monkeypatch.setattr(kendall, "compiled_kernels", lambda work: kernels)
    monkeypatch.setattr(kendall, "_FEW", 64 if path == "tables" else 0)
    monkeypatch.setattr(kendall, "_REPEATED", 1 << 40 if path == "ranked" else 1)


def brute(x: np.ndarray, y: np.ndarray) -> tuple[int, int]:
    sign = [np.greater.outer(v, v).astype(int) - np.less.outer(v, v) for v in (x, y)]
    product = sign[0] * sign[1]
    return int((product > 0).sum()) // 2, int((product < 0).sum()) // 2


def in_order(x: np.ndarray, y: np.ndarray) -> tuple[int, int]:
    """Count by insertion into a sorted list, group by group of x; another algorithm than the kernels'."""
    here = ~(np.isnan(x) | np.isnan(y))
    seen: list[float] = []
    concordant = discordant = 0
    for _, group in itertools.groupby(sorted(zip(x[here].tolist(), y[here].tolist(), strict=True)), lambda p: p[0]):
        values = [p[1] for p in group]
        concordant += sum(bisect.bisect_left(seen, v) for v in values)
        discordant += sum(len(seen) - bisect.bisect_right(seen, v) for v in values)
        for value in values:
            bisect.insort(seen, value)
    return concordant, discordant


def columns_of(seed: int, n: int) -> list[np.ndarray]:
    """Columns with every kind of tie, missing values, infinities, zeros of both signs, and close neighbours."""
    draw = np.random.default_rng(seed)
    plain = draw.standard_normal(n)
    coarse = np.round(plain + draw.standard_normal(n), 1)
    holes = np.where(draw.random(n) < 0.2, NAN, draw.standard_normal(n))
    ends = np.where(draw.random(n) < 0.3, draw.choice([INF, -INF, 0.0, -0.0, NAN], n), coarse)
    return [
        plain,
        plain[::-1].copy(),
        coarse,
        holes,
        ends,
        draw.integers(0, 2, n).astype(float),
        np.zeros(n),
        np.full(n, NAN),
        1 + draw.integers(0, 200, n) * 2.0**-52,
        np.arange(n)[::-1] * 1e-300,
        np.where(draw.random(n) < 0.5, NAN, draw.integers(-1, 2, n).astype(float)),
    ]


def check(x: list[np.ndarray], expected: Any, bases: Any = None) -> None:
    table = RankedTable(x)
    for base in range(len(x)) if bases is None else bases:
        concordant, discordant = table.counts(base, range(len(x)))
        assert concordant.dtype == discordant.dtype == np.int64
        found = list(zip(concordant[0].tolist(), discordant[0].tolist(), strict=True))
        assert found == [expected(x[base], column) for column in x], base


@cases("n", [0, 1, 2, 3, 16, 17, 63, 64, 65, 127, 129, 200], quick=3)
def test_small_tables_against_brute_force(path: str, n: int) -> None:
    check(columns_of(n, n), brute)


@cases("n", [1, 2, 3, 4], quick=3)
def test_every_pair_of_tiny_columns(path: str, n: int) -> None:
    check([np.array(values) for values in itertools.product([NAN, 0.0, 1.0], repeat=n)], brute)


@cases("n", [1023, 1024, 1025, 2047, 2048, 2049], quick=1)
def test_around_the_first_boundaries(path: str, n: int) -> None:
    check(columns_of(n, n), in_order, bases=(0, 2, 4))


@lru_cache
def wider(n: int) -> tuple[list[np.ndarray], list[tuple[int, int]]]:
    x = columns_of(n, n)[:5]
    return x, [in_order(x[i], x[j]) for i in (0, 4) for j in (1, 4)]


@pytest.mark.long
@cases("n", [2**15 + 1, 2**16 - 1, 2**16 + 1])
def test_around_the_wider_boundaries(path: str, n: int) -> None:
    x, expected = wider(n)
    ranked = [rank_column(column) for column in x]
    found = [pair_counts(ranked[base], [ranked[1], ranked[4]]) for base in (0, 4)]
    assert [tuple(pair) for counts in found for pair in np.transpose(counts).tolist()] == expected


@pytest.mark.long
@pytest.mark.parametrize("n", [2**17 + 3, 2**21 + 5])
def test_long_columns_agree_between_the_paths(monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    draw = np.random.default_rng(n)
    x = draw.standard_normal(n)
    y = np.where(draw.random(n) < 0.1, NAN, x + draw.integers(0, 5, n))
    found = []
    for path in ("numpy", "ranked", "listed"):
        use(path, monkeypatch)
        ranked = [rank_column(column) for column in (x, y.astype(np.float32))]
        found.append(np.array(pair_counts(ranked[1], ranked[:1])).tolist())
    assert found[0] == found[1] == found[2]


@cases("size", [2**21, 2**21 + 1, 2**25 + 1, 2**27], quick=1)
@cases("tied", [False, True])
def test_sparse_far_ranks(size: int, tied: bool) -> None:
    """The counts at the widest distances, on ranks as a table of `size` rows would have them."""
    kernels = compiled()
    draw = np.random.default_rng(size)
    if tied:  # with room behind each rank, as a group of equal values has
        ranks = (draw.integers(0, 300, 2000) * (size // 300)).astype(np.int32)
    else:
        ranks = draw.permutation(np.unique(draw.integers(0, size, 2000))).astype(np.int32)
    rows = len(ranks)
    counted = np.zeros((2, 1), dtype=np.int64)
    present, done, stop = np.array([rows]), np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.uint8)
    order = np.arange(rows, dtype=np.int32)
    space, none, offsets = kernels.Workspace(size).arrays, np.zeros(0, dtype=np.int32), np.array([0, size])
    kernels.count(order, present, False, ranks, none, tied, offsets, space, stop, done, 0, counted[0], counted[1])
    assert tuple(counted[:, 0].tolist()) == in_order(np.arange(rows), ranks.astype(float))
    assert done[0] == rows


def test_kendalltau_agrees(path: str) -> None:
    from scipy.stats import kendalltau

    draw = np.random.default_rng(3)
    x = draw.standard_normal(3000)
    for y in (draw.standard_normal(3000), x + draw.standard_normal(3000), np.exp(x), -x):
        [score] = RankedTable([x, y]).scores(0, [1])[0]
        assert score == round(kendalltau(x, y).statistic * (3000 * 2999 // 2))
    x, y = np.round(x, 1), np.round(x + draw.standard_normal(3000))
    [score] = RankedTable([x, y]).scores(0, [1])[0]
    untied = [3000 * 2999 / 2 - sum(c * (c - 1) / 2 for c in np.unique(v, return_counts=True)[1]) for v in (x, y)]
    assert score / np.sqrt(untied[0] * untied[1]) == pytest.approx(kendalltau(x, y).statistic, rel=1e-12)


def test_blocks_are_tables_of_their_own(path: str) -> None:
    draw = np.random.default_rng(1)
    x = columns_of(2, 700)
    blocks = draw.choice([0, 1, 3, 4, 6], 700, p=[0.5, 0.3, 0.1, 0.099, 0.001]).astype(np.int32)
    table = RankedTable(iter(x), blocks)
    assert table.sizes.tolist() == np.bincount(blocks, minlength=7).tolist()
    for base in range(len(x)):
        scores = table.scores(base, range(len(x)))
        assert scores.shape == (7, len(x))
        for block in range(7):
            rows = blocks == block
            counts = [brute(x[base][rows], column[rows]) for column in x]
            assert scores[block].tolist() == [c - d for c, d in counts]


def test_many_small_blocks(path: str) -> None:
    draw = np.random.default_rng(4)
    x, y = np.round(draw.standard_normal((2, 3000)), 1)
    blocks = draw.integers(0, 800, 3000)
    scores = RankedTable([x, y], blocks).scores(1, [0])[:, 0]
    expected = [brute(x[blocks == b], y[blocks == b]) for b in range(len(scores))]
    assert scores.tolist() == [c - d for c, d in expected]


def test_no_rows_and_no_columns(path: str) -> None:
    empty = np.zeros(0)
    assert RankedTable([empty, empty]).scores(0, [1]).tolist() == [[0]]
    assert RankedTable([empty, empty], np.zeros(0, dtype=np.int32)).scores(0, [1]).tolist() == [[0]]
    assert RankedTable([]).sizes.tolist() == [0]
    assert RankedTable([np.arange(3.0)]).scores(0, []).shape == (1, 0)


@pytest.mark.parametrize("repeated", [1, 8, 1 << 40])
def test_ranks_do_not_depend_on_the_path(monkeypatch: pytest.MonkeyPatch, repeated: int) -> None:
    blocks = np.sort(np.random.default_rng(0).integers(0, 9, 5000)).astype(np.int32)
    for block_of_row in (None, blocks):
        for column in columns_of(5, 5000):
            found = []
            for path in ("numpy", "tables"):
                use(path, monkeypatch)
                monkeypatch.setattr(kendall, "_REPEATED", repeated)
                found.append(asdict(kendall._rank(column, block_of_row)))
            for name in ("codes", "starts"):
                ours, theirs = (one.pop(name) for one in found)
                assert ours.dtype == theirs.dtype == np.int32
                assert ours.tolist() == theirs.tolist()
            assert found[0] == found[1]


def test_what_is_kept_of_a_column(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.array([2.0, NAN, -0.0, 5.0, 0.0, INF, -INF])
    for path in ("numpy", "ranked"):
        use(path, monkeypatch)
        monkeypatch.setattr(kendall, "_REPEATED", 8)
        ranked = rank_column(values)
        assert ranked.codes.tolist() == [3, -1, 1, 4, 1, 5, 0]
        assert (ranked.starts.tolist(), ranked.missing, ranked.tied, ranked.plain) == ([], 1, True, False)
        assert rank_column(np.array([3.0, 1.0, 2.0])).plain
        often = rank_column(np.tile(values, 12))
        assert often.codes.tolist() == [2, -1, 1, 3, 1, 4, 0] * 12
        assert often.starts.tolist() == [0, 12, 36, 48, 60]
        assert sum(array.nbytes for array in (often.codes, often.starts)) <= 4.5 * 12 * len(values)


def test_values_that_differ_in_their_last_bits_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than are sorted in place: the compiled ranking leaves them to NumPy."""
    use("ranked", monkeypatch)
    values = 1 + np.random.default_rng(0).permutation(500) * 2.0**-52
    assert kendall._rank_compiled(compiled(), values, None) is None
    assert rank_column(values).codes.tolist() == np.argsort(np.argsort(values)).tolist()


def test_rows_in_any_order_and_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    use("ranked", monkeypatch)
    monkeypatch.setattr(kendall, "_WORTH_THREADS", 0)
    monkeypatch.setattr(kendall, "_BATCH", 2000)
    x = columns_of(7, 5000)
    first = RankedTable(x, threads=1).counts(4, range(len(x)), threads=1)
    shuffled = np.random.default_rng(1).permutation(5000)
    for threads in (None, 2, 5):
        again = RankedTable([column[shuffled] for column in x], threads=threads).counts(4, range(len(x)), threads)
        assert all((a == b).all() for a, b in zip(first, again, strict=True))


def test_input_need_not_be_contiguous_writable_or_double(path: str) -> None:
    matrix = np.random.default_rng(2).integers(0, 50, (300, 3))
    fixed = matrix.astype(float)
    fixed.flags.writeable = False
    expected = RankedTable(list(fixed.T.copy())).scores(0, [1, 2])
    assert (RankedTable(fixed.T).scores(0, [1, 2]) == expected).all()
    assert (RankedTable([matrix[:, j].tolist() for j in range(3)]).scores(0, [1, 2]) == expected).all()


class Interrupted(Exception):
    pass


def interrupt(share: float) -> None:
    raise Interrupted


class Columns(list[Any]):
    """Columns that count how often one is taken."""

    taken = 0

    def __getitem__(self, number: Any) -> Any:
        self.taken += 1
        return super().__getitem__(number)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_exception_in_progress_stops_the_work(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    use("ranked", monkeypatch)
    ranked = rank_column(np.random.default_rng(0).standard_normal(200_000))
    columns = Columns([ranked] * 5000)
    with pytest.raises(Interrupted):
        pair_counts(ranked, columns, threads, interrupt)
    assert columns.taken < 2500


def test_the_kernel_reads_the_stop_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    use("ranked", monkeypatch)
    kernels = compiled()
    ranked = rank_column(np.arange(5000.0))
    column = (ranked.codes, ranked.starts, False)
    counted, done = np.zeros((2, 1), dtype=np.int64), np.zeros(1, dtype=np.int64)
    stop = np.ones(1, dtype=np.uint8)
    arguments = (np.array([0, 5000]), kernels.Workspace(5000).arrays, stop, done, 0, counted[0], counted[1])
    kernels.count(ranked.codes, np.array([5000]), False, *column, *arguments)
    assert done[0] == counted.sum() == 0
    stop[0] = 0
    kernels.count(ranked.codes, np.array([5000]), False, *column, *arguments)
    assert (done[0], counted[0, 0]) == (5000, 5000 * 4999 // 2)


def test_ranking_can_be_interrupted(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kendall, "_BATCH", 1)
    taken = []

    def columns() -> Iterator[np.ndarray]:
        for j in range(10_000):
            taken.append(j)
            time.sleep(0.001)
            yield np.arange(50_000.0)[::-1].copy()

    with pytest.raises(Interrupted):
        RankedTable(columns(), threads=1, progress=interrupt)
    assert len(taken) < 1000


@cases("threads", [1, 2], quick=2, alone=True)
def test_progress_rises_to_one(path: str, monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    monkeypatch.setattr(kendall, "_WORTH_THREADS", 0)
    shares: list[float] = []
    ranked = rank_column(np.random.default_rng(0).standard_normal(20_000))
    pair_counts(ranked, [ranked] * 50, threads, shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert all(0 <= share <= 1 for share in shares)


def test_an_error_in_a_thread_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    use("ranked", monkeypatch)
    monkeypatch.setattr(kendall, "_WORTH_THREADS", 0)
    with pytest.raises(AttributeError):
        pair_counts(rank_column(np.arange(9.0)), [rank_column(np.arange(9.0)), None], 2)  # type: ignore[list-item]
    monkeypatch.setattr(kendall, "_BATCH", 1)
    with pytest.raises(ValueError, match="could not convert"):
        RankedTable([[1.0], ["word"]])


def test_values_are_not_kept(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kendall, "_BATCH", 1)
    given: list[weakref.ref[Any]] = []
    most = 0

    def alive() -> int:
        return sum(one() is not None for one in given)

    def columns() -> Iterator[np.ndarray]:
        nonlocal most
        for _ in range(20):
            column = np.arange(100.0)
            given.append(weakref.ref(column))
            most = max(most, alive())
            yield column
            del column

    table = RankedTable(columns(), threads=2)
    assert len(table.columns) == 20
    assert alive() == 0
    assert most <= 3, "one in each thread, one to come"


def test_kernels_are_compiled_for_one_type_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one would be compiled in the middle of a call."""
    kernels = compiled()
    x = columns_of(1, 300)
    for path in ("tables", "listed", "ranked"):
        use(path, monkeypatch)
        for blocks in (None, np.arange(300) % 3, (np.arange(300) % 3).astype(np.int32)):
            RankedTable(x, blocks).counts(2, range(len(x)))
    for name in ("pack", "unpack", "rank_within_blocks", "base_order", "count", "tabulate"):
        assert len(getattr(kernels, name).signatures) == 1, name


@pytest.mark.long
def test_small_work_loads_no_compiler() -> None:
    code = (
        "import sys, threading, numpy as np; from dpsql.kernels.kendall import RankedTable; "
        "table = RankedTable(np.random.default_rng(0).random((20, 1000))); "
        "[table.scores(j, range(20)) for j in range(5)]; "
        "assert 'numba' not in sys.modules and 'scipy' not in sys.modules; assert threading.active_count() == 1"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_kernels_load_late(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("made_up_kernels")
    calls: list[int] = []
    module.compile_all = lambda: calls.append(1)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "made_up_kernels", module)
    late = Compiled("made_up_kernels", worth=10, worth_waiting=100)
    assert late(10) is None
    assert not calls
    late(1)
    late.start().join()
    assert late(0) is module
    assert calls == [1]
    assert Compiled("made_up_kernels", worth=1000, worth_waiting=100)(101) is module, "worth waiting for"
    assert Compiled("made_up_kernels", worth=1000)(101) is None

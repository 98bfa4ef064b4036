"""Every order is total: decided by contents and position, never by how a processor happens to sort equal keys."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from dpsql.kernels.lasso_votes import _largest
from dpsql.mechanisms import one_shot as clm_module
from dpsql.mechanisms import ranking as ranking_module
from dpsql.mechanisms.one_shot import SubsetRace
from dpsql.mechanisms.ranking import Ranking
from dpsql.noise.entropy import WordReader
from dpsql.noise.race import integer_scores
from dpsql.testing.bits import SeededBits
from dpsql.testing.distribution import fit
from support.cases import cases
from support.laws.selection import canonical_lipschitz_law

ROOT = Path(__file__).resolve().parents[2]


def tied(seed: int, size: int) -> np.ndarray:
    """Return scores most of which are shared, that fall into one rounded level or into a few."""
    generator = np.random.default_rng(seed)
    if seed % 3 == 0:
        return generator.integers(0, 3, size)
    if seed % 3 == 1:
        return generator.integers(0, 2, size) + 10**12 * (generator.random(size) < 0.1)
    return np.array([int(value) * 2**70 for value in generator.integers(0, 4, size)], dtype=object)


def ordered(scores: np.ndarray) -> list[int]:
    return sorted(range(len(scores)), key=lambda j: (-int(scores[j]), j))


def at_place(ranking: Ranking, place: int) -> int:
    """Return the position at place k + `place`, the only member of a class (k - 1, t) that is not in the head."""
    return ranking.subset(ranking.k - 1, place, WordReader(SeededBits(0)))[-1]


def one_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all places behind the head searched in one level, however few they are."""
    monkeypatch.setattr(ranking_module, "_SORT_ALL", 0)
    monkeypatch.setattr(ranking_module, "_LEVELS", 1)


@cases("sort_all", [0, 256], quick=1)
@cases("size", [6, 40, 300, 2000])
@cases("seed", range(6))
def test_every_place_holds_one_position(monkeypatch, seed, size, sort_all):
    monkeypatch.setattr(ranking_module, "_SORT_ALL", sort_all)
    scores = integer_scores(tied(seed, size))
    k = 1 + seed % 4
    ranking = Ranking(scores, k)
    # One coefficient gives every gap a level of its own, the other puts nearly all into one level.
    ranking.blocks(Fraction(1) if seed % 2 else Fraction(1, 10**9), 40.0)
    places = np.random.default_rng(seed).permutation(np.repeat(np.arange(1, size - k + 1), 2)).tolist()
    expected = ordered(scores)
    assert ranking.subset(k - 1, 0, WordReader(SeededBits(0))) == expected[:k]
    if size > 300:
        places = [*places[:150], 1, size - k]
    for place in places:
        assert at_place(ranking, place) == expected[k + place - 1]
        assert ranking.gap(place) == int(scores[expected[k - 1]]) - int(scores[expected[k + place - 1]])
    if size <= 300:
        assert sorted(at_place(ranking, place) for place in range(1, size - k + 1)) == sorted(expected[k:])


@cases("scores", [[9, 8, 5, 5, 5, 5, 4], [9, 9, 1, 1, 1, 1, 1, 0], [3, 3, 3, 3, 3, 3, 2]], quick=1)
def test_a_class_is_uniform_over_its_members(monkeypatch, scores):
    """Classes are those of one order, and queries in between change nothing. False-alarm rate 1e-8 per case."""
    one_level(monkeypatch)
    k = 2
    ranking = Ranking(integer_scores(scores), k)
    ranking.blocks(Fraction(1, 1000), 40.0)
    order, reader = ordered(np.array(scores)), WordReader(SeededBits(3))
    for included, last in [(0, 4), (0, len(scores) - k), (0, 2), (1, 3)]:
        drawn = []
        for number in range(400):
            drawn.append(tuple(sorted(ranking.subset(included, last, reader))))
            ranking.gap(1 + number % (len(scores) - k))
        free = order[included + 1 : k + last - 1]
        members = [
            tuple(sorted((*order[:included], *body, order[k + last - 1])))
            for body in itertools.combinations(free, k - included - 1)
        ]
        assert fit(drawn, dict.fromkeys(members, 1 / len(members)), false_alarm=1e-8).accepted


@pytest.mark.long
@cases("scores", [[2, 1, 1, 1, 1, 0], [1, 1, 1, 1, 0], [5, 5, 5, 5, 5]])
@cases("room", [2.0**-30, 0.5])
def test_the_canonical_mechanism_knows_every_tie(monkeypatch, scores, room):
    """The law by enumeration, also where a row's total leaves much room beside its blocks. False-alarm rate 1e-8."""
    one_level(monkeypatch)
    monkeypatch.setattr(clm_module, "_ROOM", room)
    half = Fraction(1, 2)
    race = SubsetRace(Ranking(integer_scores(scores), 1), Fraction(1), half)
    reader = WordReader(SeededBits(5))
    drawn = [tuple(race.draw(reader).tolist()) for _ in range(800)]
    law = canonical_lipschitz_law(scores, utility_range=1, epsilon=Fraction(1), k=1, gamma=half)
    assert fit(drawn, law, false_alarm=1e-8).accepted


def test_entering_columns_are_the_largest_and_of_equal_ones_the_first():
    for seed in range(20):
        generator = np.random.default_rng(seed)
        excess = generator.integers(0, 4, 500).astype(float)
        columns = np.sort(generator.choice(10_000, 500, replace=False))
        count = int(generator.integers(1, 500))
        expected = sorted(sorted(range(500), key=lambda j: (-excess[j], j))[:count])
        assert _largest(columns, excess, count).tolist() == columns[expected].tolist()


# A convention. Sorting, partly or wholly, is stable and by position, or is listed here with the reason why equal keys,
# left in any order, change nothing. By file, function and call.
VALUES = "sorts values alone: equal ones are the same"
LIMIT = "takes a value at a place, which the contents decide"
BOUND = "a sum of the largest doubles enters a bound with a margin for rounding in any order"
SHOWN = "order of noisy numbers or of names that are shown"
ALLOWED = {
    ("dpsql/contract/periods.py", "read", "sorted"): "by the number of the period, of which each has its own",
    ("dpsql/contract/query/condition.py", "_items", "sorted"): "columns by their place in a text, for messages alone",
    (
        "dpsql/contract/query/relations.py",
        "bound",
        "sorted",
    ): "public SQL texts by length, so that a part is not replaced first",
    ("dpsql/ledger/blocks.py", "live", "sorted"): "by the number of the period, of which each has its own",
    ("dpsql/ledger/transaction.py", "releases_of", "sorted"): "by the number of the entry, which is unique",
    (
        "dpsql/engines/duckdb/lineage/sources.py",
        "declarations",
        "sorted",
    ): "by the number of the entry, which is unique",
    ("dpsql/gateway/desk.py", "_asked_anew", "sorted"): "stable, and says only which call runs first",
    ("dpsql/engines/datafusion.py", "fold_parts", "sort"): "groups rows by their part, in which any order will do",
    ("dpsql/engines/polars.py", "fold_parts", "sort"): "groups rows by their part, in which any order will do",
    ("udfs/keys.py", "_first_twice", "lexsort"): "stable, by all parts of public keys",
    ("dpsql/kernels/ball_least_squares.py", "_columns", "sort"): VALUES,
    ("dpsql/statistics/auc.py", "scores", "sort"): VALUES,
    ("udfs/rows.py", "compare", "sort"): VALUES,
    ("dpsql/statistics/auc.py", "of_scores", "sorted"): "of two lists, stable; either order gives the same count",
    ("dpsql/kernels/shuffles.py", "_largest", "partition"): VALUES,
    ("dpsql/kernels/shuffles.py", "_counted", "partition"): VALUES,
    ("dpsql/kernels/best_subsets.py", "add", "sort"): VALUES,
    ("dpsql/kernels/best_subsets.py", "_listed", "lexsort"): "by score, then by all members: distinct subsets",
    ("dpsql/kernels/best_subsets_bounds.py", "kappa", "partition"): BOUND,
    ("dpsql/kernels/best_subsets_bounds.py", "sparse_eigenvalues", "partition"): VALUES + "; sorted after that",
    ("dpsql/kernels/best_subsets_bounds.py", "sparse_eigenvalues", "sort"): VALUES,
    ("dpsql/kernels/best_subsets_numpy.py", "_expand", "partition"): BOUND,
    (
        "dpsql/kernels/kendall.py",
        "_rank_compiled",
        "sort",
    ): "keys hold the row's number: distinct, but for missing values",
    ("dpsql/kernels/xty.py", "distinct_features", "sort"): VALUES,
    ("dpsql/kernels/identity.py", "first_by_key", "argsort"): "ties are looked for, and settled by all keys",
    (
        "dpsql/kernels/identity.py",
        "first_by_key",
        "lexsort",
    ): "the last keys are what the items are: equal items tie",
    ("dpsql/kernels/kendall_compiled.py", "compile_all", "sort"): "compiles, and counts nothing",
    ("dpsql/kernels/kendall.py", "number", "argsort"): "equal values get one number; their order is lost",
    ("dpsql/kernels/kendall.py", "_inversions", "sort"): VALUES,
    ("dpsql/kernels/lasso_votes.py", "_largest", "partition"): LIMIT,
    ("dpsql/kernels/lasso_votes.py", "vote", "partition"): LIMIT,
    ("dpsql/kernels/subset_strata.py", "_largest", "sort"): VALUES,
    ("dpsql/mechanisms/ranking.py", "_locate", "partition"): LIMIT,
    ("dpsql/mechanisms/sparse_vector.py", "_random_order", "argsort"): "words are drawn again until all differ",
    ("dpsql/mechanisms/subsets.py", "__init__", "sort"): VALUES,
    ("dpsql/mechanisms/subset_exponential.py", "_proposals", "sort"): VALUES,
    ("dpsql/mechanisms/subsets.py", "uniform_subsets", "sort"): VALUES,
    ("dpsql/mechanisms/subset_selection.py", "_sets", "sort"): VALUES,
    ("dpsql/mechanisms/tukey.py", "__init__", "sort"): VALUES,
    ("dpsql/noise/race.py", "top_k", "sort"): "by exact comparison of real numbers that are never equal",
    ("dpsql/noise/race.py", "kth_largest", "partition"): LIMIT,
    ("dpsql/released/plots.py", "_by_size", "sorted"): SHOWN,
    ("dpsql/released/model.py", "by_feature", "sorted"): SHOWN,
    ("dpsql/engines/duckdb/macros.py", "sql_texts", "sorted"): SHOWN,
    ("dpsql/engines/polars.py", "check", "sort"): "one row",
    ("dpsql/manual/catalogue.py", "named_by", "sorted"): SHOWN,
    ("udfs/release.py", "_release_rows", "sort"): VALUES,
}
NAMES = {"argsort", "argpartition", "partition", "sort", "lexsort", "sort_complex", "nsmallest", "nlargest", "sorted"}


def source_files() -> Iterator[Path]:
    """Yield the files of the package; `dpsql.testing` draws nothing for anybody."""
    for folder in ("dpsql", "udfs"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "testing" not in path.parts:
                yield path


def is_stable(call: ast.Call, name: str) -> bool:
    """Whether a call is stable by its arguments, or does not sort: `text.partition(":")`, `sorted(names)`."""
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    kind = given.get("kind")
    if name in {"argsort", "sort"} and isinstance(kind, ast.Constant) and kind.value == "stable":
        return True
    if name == "partition":
        of_module = isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name)
        return not (of_module and call.func.value.id == "np") and len(call.args) == 1 and is_text(call.args[0])
    return name == "sorted" and "key" not in given


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def unstable_calls(tree: ast.AST, function: str = "") -> Iterator[tuple[str, str]]:
    """Yield (function, call) of every call that sorts and does not say that it is stable."""
    for node in ast.iter_child_nodes(tree):
        inside = node.name if isinstance(node, ast.FunctionDef) else function
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in NAMES and not is_stable(node, called):
                yield inside, called
        yield from unstable_calls(node, inside)


@lru_cache(maxsize=1)
def found_calls() -> set[tuple[str, str, str]]:
    return {
        (path.relative_to(ROOT).as_posix(), *found)
        for path in source_files()
        for found in unstable_calls(ast.parse(path.read_text(encoding="utf-8")))
    }


@pytest.mark.long
def test_a_sort_is_stable_or_has_a_reason():
    missing = sorted(found_calls() - set(ALLOWED))
    assert not missing, f'say kind="stable", or add a reason to ALLOWED: {missing}'


@pytest.mark.long
def test_no_reason_outlives_its_sort():
    assert not sorted(set(ALLOWED) - found_calls())


@cases(
    ("text", "found"),
    [
        ("np.argsort(x)", ["argsort"]),
        ("np.argsort(x, kind='stable')", []),
        ("np.argsort(x, kind='quicksort')", ["argsort"]),
        ("x.sort()", ["sort"]),
        ("np.partition(x, 3)", ["partition"]),
        ("x.partition(3)", ["partition"]),
        ("text.partition(':')", []),
        ("sorted(x)", []),
        ("sorted(x, key=f)", ["sorted"]),
        ("heapq.nsmallest(3, x)", ["nsmallest"]),
    ],
)
def test_the_convention_sees_calls(text, found):
    assert [call for _, call in unstable_calls(ast.parse(text))] == found

"""The recorded cases: named statements over small tables that are the same on every machine.

A case is a script of SQL statements. It runs on a connection that all cases share, unless it declares budgets, lists
all releases or names one that others name too: then it has a connection of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# Every value is an integer, or one divided by one: no database rounds them otherwise than another.
_SHARE = "((i * {factor} + {more}) % {prime})::DOUBLE / {prime}::DOUBLE"
_LETTERS = "abcdef"
_PLACES = {"a": (7919, 3, 1009), "b": (31, 5, 101), "c": (57, 1, 211), "d": (131, 7, 307), "e": (17, 2, 89)}
_COLUMNS = {name: _SHARE.format(factor=one, more=two, prime=three) for name, (one, two, three) in _PLACES.items()}
_FEATURES = ", ".join(f"{sql} AS {name}" for name, sql in _COLUMNS.items())
_WORDS = ("ant", "bee", "cat", "dog", "elk")

TABLES = (
    f"""CREATE TABLE people AS SELECT *,
        8 * a + b - 3 * c + ((i * 97) % 53)::DOUBLE / 53::DOUBLE AS y,
        (i * 37) % 100 < 20 + 60 * a AS relapse,
        CASE WHEN (i * 41) % 97 = 0 THEN 'maybe' WHEN (i * 37) % 100 < 20 + 60 * b THEN 'yes' ELSE 'no' END AS word
    FROM (SELECT i, i AS id, CASE WHEN i % 29 = 0 THEN NULL ELSE i // 3 END AS person, {_FEATURES},
        (a * b + c) / 2 AS f FROM range(600) AS r(i))""",
    """CREATE TABLE odd AS SELECT id, person,
        CASE WHEN id % 7 = 0 THEN NULL WHEN id % 11 = 0 THEN 'nan'::DOUBLE WHEN id % 13 = 0 THEN 'inf'::DOUBLE
            WHEN id % 17 = 0 THEN '-inf'::DOUBLE WHEN id % 19 = 0 THEN 1e300 ELSE a END AS a,
        CASE WHEN id % 5 = 0 THEN NULL ELSE (b * 10)::INTEGER END AS b, 0.5::DOUBLE AS c, c::FLOAT AS d,
        CASE WHEN id % 3 = 0 THEN NULL ELSE e END AS e, 'nan'::DOUBLE AS f,
        CASE WHEN id % 23 = 0 THEN NULL WHEN id % 31 = 0 THEN 'nan'::DOUBLE WHEN id % 37 = 0 THEN 'inf'::DOUBLE
            ELSE y END AS y,
        CASE WHEN id % 6 = 0 THEN NULL ELSE relapse END AS relapse, word, 'text' AS remark FROM people""",
    """CREATE VIEW vectors AS SELECT id, person, y, relapse, word, [a, b, c, d, e, f]::FLOAT[6] AS x FROM people""",
    """CREATE VIEW lists AS SELECT id, person, y, relapse, word, CASE WHEN id % 41 = 0 THEN NULL
        ELSE list_slice([a, b, c, d, e, f, 9], 1, 4 + (id % 4)::INTEGER) END AS x FROM people""",
    """CREATE VIEW rowsets AS SELECT id, person, y, relapse, {'a': a, 'b': b, 'c': c, 'd': d} AS x FROM people""",
    """CREATE VIEW cells AS SELECT id, person, y, relapse, word, feature, v FROM
        (UNPIVOT people ON a, b, c, d, e, f INTO NAME feature VALUE v) WHERE (id + ascii(feature)) % 4 > 0""",
    f"""CREATE VIEW tokens AS SELECT id, person, relapse, word, y, token, weight FROM (SELECT *, 1 + id % 3 AS weight,
        unnest(list_filter({list(_WORDS)}, lambda w: (id * (ascii(w) - 90) + ascii(w)) % 100 <
        CASE WHEN w = 'bee' AND relapse THEN 80 WHEN w = 'dog' AND NOT relapse THEN 70 ELSE 35 END)) AS token
        FROM people)""",
    "CREATE VIEW doubled AS FROM tokens UNION ALL FROM tokens UNION ALL SELECT id, person, relapse, word, y, NULL, 0 FROM people",
    f"""CREATE VIEW flags AS SELECT id, person, relapse, word, y, {
        ", ".join(f"coalesce(list_contains(l, '{w}'), false) AS {w}" for w in _WORDS)
    } FROM people LEFT JOIN (SELECT id, list(token) AS l FROM tokens GROUP BY id) USING (id) ORDER BY id""",
    f"CREATE VIEW bits AS SELECT id, person, relapse, word, [{', '.join(_WORDS)}]::BOOLEAN[5] AS x FROM flags",
    """CREATE TABLE scored AS SELECT id, person, relapse, word, y, least(1, (a + 2 * b) / 3 + 0.1 * relapse::INTEGER) AS p,
        y + 2 * (c - 0.5) AS guess FROM people""",
    """CREATE VIEW odd_scores AS SELECT id, person, CASE WHEN id % 9 = 0 THEN NULL ELSE relapse END AS relapse, word,
        CASE WHEN id % 7 = 0 THEN NULL WHEN id % 11 = 0 THEN 'nan'::DOUBLE WHEN id % 13 = 0 THEN 'inf'::DOUBLE
            WHEN id % 17 = 0 THEN -3 ELSE p END AS p,
        CASE WHEN id % 8 = 0 THEN NULL WHEN id % 10 = 0 THEN '-inf'::DOUBLE ELSE guess END AS guess,
        CASE WHEN id % 12 = 0 THEN 'nan'::DOUBLE ELSE y END AS y FROM scored""",
    "CREATE VIEW nobody AS FROM people WHERE false",
    "CREATE VIEW no_tokens AS FROM tokens WHERE false",
    "CREATE VIEW no_scores AS FROM scored WHERE false",
    f"""CREATE TABLE many AS SELECT i AS id, i // 2 AS person, a, b, 2 * a - b + (((i * 37) % 41) - 20)::DOUBLE / 4000::DOUBLE AS y
        FROM (SELECT i, {_FEATURES} FROM range(4000) AS r(i))""",
)

# Per layout: the source, and the arguments that say so.
WIDE = {"features": list(_LETTERS)}
LAYOUTS: dict[str, tuple[str, dict[str, Any]]] = {
    "wide": ("people", WIDE),
    "array": ("vectors", {"features": "x"}),
    "array with names": ("vectors", {"features": "x", "names": list("uvwxyz")}),
    "list": ("lists", {"features": "x", "n_features": 6}),
    "struct": ("rowsets", {"features": "x"}),
    "long": ("cells", {"features": "feature", "row_id": "id", "value": "v", "names": list(_LETTERS)}),
    "long presence": ("tokens", {"features": "token", "row_id": "id", "names": [*_WORDS, "fox"]}),
}
BINARY: dict[str, tuple[str, dict[str, Any]]] = {
    "wide": ("flags", {"features": list(_WORDS)}),
    "all columns": ("flags", {"row_id": "id", "privacy_unit": "person", "max_rows_per_unit": 2, "present_above": 0.5}),
    "numbers": ("people", {**WIDE, "present_above": 0.6}),
    "vector of numbers": ("vectors", {"features": "x", "present_above": 0.6}),
    "array": ("bits", {"features": "x"}),
    "array with names": ("bits", {"features": "x", "names": list(_WORDS)}),
    "list": ("lists", {"features": "x", "n_features": 6, "present_above": 0.6}),
    "long": ("tokens", {"features": "token", "row_id": "id", "names": [*_WORDS, "fox"]}),
    "long with values": ("tokens", {"features": "token", "row_id": "id", "names": list(_WORDS), "value": "weight"}),
    "long with duplicates": ("doubled", {"features": "token", "row_id": "id", "names": list(_WORDS)}),
}
UNIT = {"privacy_unit": "person", "max_rows_per_unit": 2}
REPLACE = {"neighbours": "replace"}
_RELATIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("replace", REPLACE),
    ("unit", UNIT),
    ("unit, replace", {**UNIT, **REPLACE}),
)
BOUNDS = {"lower": 0, "upper": 1}
TARGET = {"target_lower": 0, "target_upper": 10}


@dataclass(frozen=True)
class Case:
    """One script.

    Attributes
    ----------
    name : str
        Seeds its entropy.
    statements : tuple of str
        The rows of all of them are the result.
    alone : bool
        Whether it has a connection of its own.
    """

    name: str
    statements: tuple[str, ...]
    alone: bool = False


class Sql(str):
    """An expression, where a text would be a literal."""


def literal(value: Any) -> str:
    """Return a value as SQL."""
    if isinstance(value, Sql):
        return str(value)
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{literal(name)}: {literal(one)}" for name, one in value.items()) + "}"
    return repr(value)


def options(given: dict[str, Any]) -> str:
    return ", ".join(f"{name} := {literal(value)}" for name, value in given.items())


def table(function: str, source: str, **given: Any) -> str:
    """Return a call of the table form."""
    return f"SELECT * FROM {function}({literal(source)}, {options(given)})"


def aggregate(function: str, columns: str, rows: str, **given: Any) -> str:
    """Return a call of the aggregate form; `rows` is what follows FROM."""
    return f"SELECT {function}({columns}, {options(given)}) FROM {rows}"


def _by_group(function: str, columns: str, rows: str, **given: Any) -> str:
    return f"SELECT id % 2 AS g, {function}({columns}, {options(given)}) FROM {rows} GROUP BY g ORDER BY g"


def _columns_of(function: str, base: dict[str, Any], target: dict[str, Any], *, grouped: bool = True) -> Iterator[Case]:
    """Cases of a function of numeric features that hold for all of them: layouts, neighbours, units, targets, rows."""
    numeric = {"target": "y", **base, **target}
    for layout, (source, columns) in LAYOUTS.items():
        more = {"lower": -1, "upper": 1} if layout == "long presence" and "lower" in base else {}
        yield Case(f"{function}: {layout}", (table(function, source, **{**numeric, **columns, **more}),))
    for name, more in _RELATIONS:
        yield Case(f"{function}: {name}", (table(function, "people", **numeric, **WIDE, **more),))
    unit = {**UNIT, **LAYOUTS["long"][1]}
    yield Case(f"{function}: unit of long rows", (table(function, "cells", **numeric, **unit),))
    yield Case(
        f"{function}: unit, rows told apart", (table(function, "people", **numeric, **WIDE, **UNIT, row_id="id"),)
    )
    yield Case(f"{function}: odd rows", (table(function, "odd", **numeric, **WIDE),))
    yield Case(f"{function}: odd rows of units", (table(function, "odd", **numeric, **UNIT),))
    yield Case(f"{function}: no rows", (table(function, "nobody", **numeric, **WIDE),))
    yield Case(f"{function}: boolean target", (table(function, "people", **{**base, **WIDE, "target": "relapse"}),))
    levels = {**base, **WIDE, "target": "word", "target_levels": ["no", "yes"]}
    yield Case(f"{function}: text target", (table(function, "people", **levels),))
    yield Case(f"{function}: aggregate", (aggregate(function, "x, y", "vectors", **base, **target),))
    lists = {**base, **target, **REPLACE, "n_features": 6}
    yield Case(f"{function}: aggregate of lists, replace", (aggregate(function, "x, y", "lists", **lists),))
    if grouped:
        yield Case(f"{function}: aggregate by group", (_by_group(function, "x, y", "vectors", **base, **target),))


def _binary_of(function: str, base: dict[str, Any]) -> Iterator[Case]:
    """The same for functions of binary features."""
    given = {"target": "relapse", **base}
    for layout, (source, columns) in BINARY.items():
        yield Case(f"{function}: {layout}", (table(function, source, **given, **columns),))
    _, long = BINARY["long"]
    for name, more in _RELATIONS:
        yield Case(f"{function}: {name}", (table(function, "tokens", **given, **long, **more),))
    few = {**given, "max_features_per_row": 1}
    yield Case(f"{function}: one feature per row, wide", (table(function, "flags", **few, **BINARY["wide"][1]),))
    yield Case(f"{function}: one feature per row, long", (table(function, "tokens", **few, **long),))
    yield Case(f"{function}: one feature per row, units", (table(function, "doubled", **few, **UNIT, **long),))
    yield Case(f"{function}: no rows", (table(function, "no_tokens", **given, **long),))
    yield Case(f"{function}: odd rows", (table(function, "odd", **given, features=list("abcde"), present_above=0.4),))
    levels = {**given, **long, "target": "word", "target_levels": ["no", "yes"]}
    yield Case(f"{function}: text target", (table(function, "tokens", **levels),))
    yield Case(f"{function}: aggregate", (aggregate(function, "x, relapse", "bits", **base),))
    numbers = {**base, **REPLACE, "n_features": 6, "present_above": 0.6, "max_features_per_row": 2}
    yield Case(f"{function}: aggregate of lists, replace", (aggregate(function, "x, relapse", "lists", **numbers),))
    yield Case(f"{function}: aggregate by group", (_by_group(function, "x, relapse", "bits", **base),))


def _column_of(
    function: str, source: str, base: dict[str, Any], names: tuple[str, ...], columns: str
) -> Iterator[Case]:
    """The same for functions of one or two columns."""
    for name, more in (("table", {}), *_RELATIONS):
        yield Case(f"{function}: {name}", (table(function, source, **base, **more),))
    yield Case(f"{function}: unit, rows told apart", (table(function, source, **base, **UNIT, row_id="id"),))
    odd = {"people": "odd", "scored": "odd_scores"}[source]
    yield Case(f"{function}: odd rows", (table(function, odd, **base),))
    yield Case(f"{function}: no rows", (table(function, {"people": "nobody", "scored": "no_scores"}[source], **base),))
    rest = {name: value for name, value in base.items() if name not in names}
    yield Case(f"{function}: aggregate", (aggregate(function, columns, source, **rest),))
    yield Case(f"{function}: aggregate, replace", (aggregate(function, columns, odd, **rest, **REPLACE),))
    yield Case(f"{function}: aggregate by group", (_by_group(function, columns, source, **rest),))


def _options_of(function: str, source: str, base: dict[str, Any], ways: dict[str, dict[str, Any]]) -> Iterator[Case]:
    """One case per way, told apart by its name."""
    for name, way in ways.items():
        given = {name: value for name, value in {**base, **way}.items() if value is not None}
        yield Case(f"{function}: {name}", (table(function, given.pop("source", source), **given),))


def selectors() -> Iterator[Case]:
    sis = {"k": 2, "epsilon": 1, **BOUNDS}
    yield from _columns_of("dp_sis", sis, TARGET)
    given = {"target": "y", **WIDE, **sis, **TARGET}
    by_name = {"a": 0, "b": 0, "c": 0.25, "d": 0, "e": 0, "f": -1, "spare": 7}
    ways: dict[str, dict[str, Any]] = {
        "gumbel": {"mechanism": "gumbel"},
        "gumbel, replace": {"mechanism": "gumbel", **REPLACE},
        "canonical": {"mechanism": "canonical_lipschitz"},
        "canonical, gamma": {"mechanism": "canonical_lipschitz", "gamma": 0.3, "k": 3, **REPLACE},
        "canonical of units": {"mechanism": "canonical_lipschitz", **UNIT},
        "centred": {"center": "target"},
        "centred, replace, gumbel": {"center": "target", "center_share": 0.3, "mechanism": "gumbel", **REPLACE},
        "centred of units": {"center": "target", **UNIT},
        "centred long rows": {"source": "cells", "center": "target", **LAYOUTS["long"][1]},
        "bounds by feature": {"lower": [0, 0, 0.1, 0, 0, 0], "upper": [1, 0.5, 1, 1, 1, 2]},
        "bounds by name": {"lower": by_name, "upper": {name: 2 + low for name, low in by_name.items()}},
        "every numeric column": {"features": None, "source": "odd"},
        "every feature": {"k": 6},
        "little budget": {"epsilon": 0.001},
        "large budget": {"epsilon": 100},
        "epsilon in SQL": {"epsilon": Sql("ln(3)")},
    }
    yield from _options_of("dp_sis", "people", given, ways)
    by_rank = {"k": 2, "epsilon": 1, "score": "rank"}
    ways = {
        "by rank, wide": {},
        "by rank, odd rows": {"source": "odd"},
        "by rank, array": {"source": LAYOUTS["array"][0], **LAYOUTS["array"][1]},
        "by rank, long": {"source": "cells", **LAYOUTS["long"][1]},
        "by rank, replace, gumbel": {"mechanism": "gumbel", **REPLACE},
        "by rank, units, canonical": {"mechanism": "canonical_lipschitz", **UNIT},
        "by rank, boolean target": {"target": "relapse"},
        "by rank, two of three levels": {"target": "word", "target_levels": ["no", "yes"]},
        "by rank, no rows": {"source": "nobody"},
        "by rank, without a verdict": {"verdict_share": 0},
        "by rank, scores": {"verdict_share": 0.2, "verdict": "each"},
        "by rank, scores, units replaced": {"verdict_share": 0.2, "verdict": "each", **UNIT, **REPLACE},
        "by rank, scores of two levels": {"target": "relapse", "verdict_share": 0.2, "verdict": "each"},
        "by rank, scores of no rows": {"source": "nobody", "verdict_share": 0.2, "verdict": "each"},
        "by rank, too few rows": {"n_rows": 5},
    }
    yield from _options_of("dp_sis", "people", {"target": "y", **WIDE, **by_rank}, ways)

    kendall = {"k": 3, "epsilon": 1}
    yield from _columns_of("dp_kendall", kendall, {})
    given = {"target": "y", **WIDE, **kendall}
    blocks = {"blocks": 10, "row_id": "id"}
    ways = {
        "exponential": {"mechanism": "exponential"},
        "exponential, scaled, replace": {"mechanism": "exponential", "split": "scaled", **REPLACE},
        "scaled": {"split": "scaled"},
        "scaled, scores": {"split": "scaled", "verdict_share": 0.2, "verdict": "each"},
        "without a verdict": {"verdict_share": 0},
        "blocks": blocks,
        "blocks, replace": {**blocks, **REPLACE},
        "blocks of units": {"blocks": 7, **UNIT},
        "blocks of units, rows told apart": {**blocks, **UNIT},
        "blocks of long rows": {"source": "cells", **LAYOUTS["long"][1], "blocks": 10},
        "blocks of odd rows": {"source": "odd", **blocks, "mechanism": "exponential"},
        "blocks of vectors": {"source": "vectors", "features": "x", "blocks": 10, **UNIT},
        "large budget": {"epsilon": 50},
    }
    yield from _options_of("dp_kendall", "people", given, ways)

    two_stage = {"k": 2, "epsilon": 2, "blocks": 30}
    yield from _columns_of("dp_two_stage", two_stage, {})
    given = {"target": "y", **WIDE, **two_stage}
    ways = {
        "gumbel": {"mechanism": "gumbel"},
        "canonical": {"mechanism": "canonical_lipschitz", "gamma": 0.4},
        "private count": {"blocks": None, "rows_per_block": 15},
        "private count, replace": {"blocks": None, "rows_per_block": 15, "count_share": 0.2, **REPLACE},
        "private count of units": {"blocks": None, "rows_per_block": 15, "count_failure": 0.01, **UNIT},
        "row ids": {"row_id": "id"},
        "penalty": {"penalty": 0.02, "row_id": "id"},
        "as it is": {"standardize": False, "row_id": "id"},
        "no intercept": {"intercept": False, "row_id": "id"},
        "neither": {"intercept": False, "standardize": False, "penalty": 0.5, "row_id": "id"},
    }
    yield from _options_of("dp_two_stage", "people", given, ways)

    subset = {"k": 2, "epsilon": 4, **BOUNDS}
    yield from _columns_of("dp_best_subset", subset, TARGET)
    given = {"target": "y", **WIDE, **subset, **TARGET}
    ways = {
        "intercept": {"intercept": True},
        "intercept, replace": {"intercept": True, **REPLACE},
        "ridge": {"ridge": 2},
        "radius": {"radius": 0.5},
        "few listed": {"list_size": 3},
        "few nodes": {"list_size": 4, "node_limit": 3},
        "top_r": {"method": "top_r"},
        "top_r, gap": {"method": "top_r", "gap": 20, "list_size": 5},
        "top_r, intercept": {"method": "top_r", "intercept": True, **REPLACE},
        "little budget": {"epsilon": 0.01},
        "one of them": {"k": 1},
        "all but one": {"k": 5},
    }
    yield from _options_of("dp_best_subset", "people", given, ways)


def filters() -> Iterator[Case]:
    base = {"threshold": 20, "epsilon": 2}
    yield from _binary_of("dp_score_filter", base)
    _, long = BINARY["long"]
    given = {"target": "relapse", **long, "epsilon": 2}
    ways: dict[str, dict[str, Any]] = {}
    for score in ("total_count", "difference_count", "purity", "information_gain"):
        one = {"score": score, "threshold": 5 if score == "information_gain" else 30}
        limit = {"n_max": 400} if score == "information_gain" else {}
        first = {"score": score, "k": 2}
        ways |= {
            f"{score}, laplace": {**one, "method": "laplace"},
            f"{score}, gaussian": {**one, "method": "gaussian", "delta": 1e-5},
            f"{score}, svt": {**one, "method": "svt", "cutoff": 2, **limit},
            f"{score}, cluster": {"score": score, "method": "cluster"},
            f"{score}, cluster, gaussian": {"score": score, "method": "cluster", "clusters": 3, "delta": 1e-5},
            f"{score}, best two": {**first, **limit},
            f"{score}, best two by counts": {**first, "method": "laplace"},
            f"{score}, one_shot": {**first, "method": "one_shot", **limit},
            f"{score}, gumbel": {**first, "method": "gumbel", **limit},
            f"{score}, canonical": {**first, "method": "canonical_lipschitz", **limit},
            f"{score}, svt, replace": {**one, "method": "svt", "cutoff": 1, **limit, **REPLACE},
            f"{score}, gumbel of units": {**first, "method": "gumbel", **limit, **UNIT, **REPLACE},
        }
    ways |= {
        "delta alone": {"threshold": 20, "delta": 1e-5},
        "false positives": {"threshold": 1, "false_positives": 0.01},
        "false positives, gaussian": {"threshold": 1, "false_positives": 2, "delta": 1e-6},
        "wide, gaussian": {
            **BINARY["wide"][1],
            **dict.fromkeys(("names", "row_id")),
            "source": "flags",
            "k": 2,
            "delta": 1e-5,
        },
    }
    private = {"vocabulary": "private", "names": None, "delta": 1e-3}
    ways |= {
        "private vocabulary": {**private, "threshold": 20},
        "private vocabulary, best two": {**private, "k": 2, "vocabulary_share": 0.3},
        "private vocabulary, replace": {**private, "threshold": 20, **REPLACE},
        "private vocabulary of units": {**private, "threshold": 20, **UNIT},
        "private vocabulary, laplace": {**private, "threshold": 20, "method": "laplace"},
        "private vocabulary, svt": {**private, "threshold": 20, "method": "svt", "cutoff": 2},
        "private vocabulary, gumbel": {**private, "k": 2, "method": "gumbel"},
        "private vocabulary, cluster": {**private, "method": "cluster"},
        "private vocabulary, few per row": {**private, "threshold": 20, "max_features_per_row": 2, "source": "doubled"},
        "private vocabulary, no rows": {**private, "threshold": 20, "source": "no_tokens"},
    }
    yield from _options_of("dp_score_filter", "tokens", given, ways)

    yield from _binary_of("dp_naive_bayes", {"epsilon": 2})
    ways = {
        "gaussian": {"delta": 1e-5},
        "gaussian, replace": {"delta": 1e-5, **REPLACE},
        "gaussian of units": {"delta": 1e-5, **UNIT},
        "no shrinking": {"shrink": False},
        "smoothing": {"smoothing": 10, "count_share": 0.4},
        "levels turned": {"target_levels": [True, False]},
    }
    yield from _options_of("dp_naive_bayes", "tokens", given, ways)


def models() -> Iterator[Case]:
    base = {"epsilon": 2, "delta": 1e-5}
    yield from _columns_of("dp_linear_regression", base, {}, grouped=False)
    given = {"target": "y", **WIDE, **base}
    public = {**BOUNDS, **TARGET}
    tukey = {"source": "many", "features": ["a", "b"], "method": "tukey", "epsilon": 10, "delta": 1e-4}
    ways: dict[str, dict[str, Any]] = {
        "ada_ssp": {"method": "ada_ssp"},
        "ada_ssp, public bounds": {"method": "ada_ssp", **public},
        "ada_ssp, replace": {"method": "ada_ssp", **public, **REPLACE},
        "ada_ssp of units": {"method": "ada_ssp", **public, **UNIT},
        "ada_ssp of long rows": {"source": "cells", "method": "ada_ssp", **public, **LAYOUTS["long"][1]},
        "ada_ssp, row norm": {"method": "ada_ssp", **public, "row_norm": 1.0},
        "ada_ssp, odd rows": {"source": "odd", "method": "ada_ssp", **public},
        "ada_ssp, no rows": {"source": "nobody", "method": "ada_ssp", **public},
        "ada_ssp, levels": {"target": "word", "target_levels": ["no", "yes"], "method": "ada_ssp", **BOUNDS},
        "ada_ssp, private bounds of units": {"method": "ada_ssp", **UNIT, "bounds_share": 0.4, **REPLACE},
        "boosted, public bounds": public,
        "boosted, public features": BOUNDS,
        "boosted, public target": TARGET,
        "boosted, rounds in thirds": {**public, "rounds": 3, "split": "thirds"},
        "boosted, row norm": {**public, "row_norm": 0.7, "scale_share": 0.2},
        "boosted, replace": {**public, **REPLACE},
        "boosted of units": {**public, **UNIT},
        "boosted, large budget": {**public, "epsilon": 50},
        "bounds by name": {"lower": dict.fromkeys(_LETTERS, -0.5), "upper": dict.fromkeys(_LETTERS, 2)},
        "auto with many rows": {**public, "n_rows": 1_000_000},
        "auto with blocks": {**tukey, "method": None, "blocks": 800},
        "tukey": {**tukey, "blocks": 800},
        "tukey, row ids": {**tukey, "blocks": 800, "row_id": "id"},
        "tukey, replace": {**tukey, "blocks": 600, "row_id": "id", **REPLACE},
        "tukey of units": {**tukey, "blocks": 600, **UNIT},
        "tukey, public rows": {**tukey, "n_rows": 3900, "row_id": "id"},
        "tukey, private count": {**tukey, "count_share": 0.1},
        "tukey, too few rows": {"method": "tukey", "features": ["a"]},
        "tukey, test fails": {"source": "people", "features": ["a"], "method": "tukey", "blocks": 40, "target": "e"},
        "tukey, bounds": {**tukey, "blocks": 800, "lower": 0, "upper": 0.9, **TARGET},
    }
    yield from _options_of("dp_linear_regression", "people", given, ways)
    yield Case(
        "dp_linear_regression: aggregate, ada_ssp by group",
        (_by_group("dp_linear_regression", "x, y", "vectors", **base, method="ada_ssp", **public),),
    )
    yield Case(
        "dp_linear_regression: aggregate, tukey",
        (aggregate("dp_linear_regression", "[a, b]::DOUBLE[2], y", "many", epsilon=10, delta=1e-4, blocks=800),),
    )

    pipeline = {"k": 2, "epsilon": 4, "delta": 1e-5}
    yield from _columns_of("dp_pipeline", pipeline, {}, grouped=False)
    given = {"target": "y", **WIDE, **pipeline}
    yield Case("dp_pipeline: no selection", (table("dp_pipeline", "people", **{**given, "k": None}),))
    ways = {
        "two_stage": {"selector": "two_stage", "selection_blocks": 40},
        "two_stage of units": {"selector": "two_stage", "selection_blocks": 40, **UNIT},
        "best_subset": {"selector": "best_subset", **public},
        "best_subset, replace": {"selector": "best_subset", **public, **REPLACE},
        "sis": {"selector": "sis", **public},
        "sis of units": {"selector": "sis", "selection_share": 0.3, **public, **UNIT},
        "kendall, ada_ssp": {"method": "ada_ssp", **public},
        "best_subset, ada_ssp": {"selector": "best_subset", "method": "ada_ssp", **public},
        "sis, tukey": {
            "source": "many",
            "features": ["a", "b"],
            "k": 1,
            "selector": "sis",
            "epsilon": 10,
            "delta": 1e-4,
            **public,
            "blocks": 800,
        },
        "kendall, tukey, private count": {
            "source": "many",
            "features": ["a", "b"],
            "k": 1,
            "method": "tukey",
            "epsilon": 10,
            "delta": 1e-4,
        },
        "thirds": {"split": "thirds", "rounds": 4, "selection_share": 0.2},
    }
    yield from _options_of("dp_pipeline", "people", given, ways)

    logistic = {"epsilon": 2, **BOUNDS}
    for case in _columns_of("dp_logistic_regression", logistic, {}, grouped=False):
        label = tuple(
            one.replace("target := 'y'", "target := 'relapse'").replace("(x, y,", "(x, relapse,")
            for one in case.statements
        )
        if case.name != "dp_logistic_regression: boolean target":
            yield Case(case.name, label)
    given = {"target": "relapse", **WIDE, **logistic}
    ways = {
        "gaussian": {"delta": 1e-5},
        "gaussian, replace": {"delta": 1e-2, **REPLACE},
        "gaussian of units": {"delta": 1e-2, **UNIT},
        "row norm": {"row_norm": 1.0},
        "regularization": {"regularization": 25.0},
        "bounds by feature": {"lower": [0, 0, 0.1, 0, 0, 0], "upper": [1, 0.5, 1, 1, 1, 2]},
        "levels turned": {"target_levels": [True, False]},
        "little budget": {"epsilon": 0.05},
        "large budget": {"epsilon": 60},
        "additive": {"epsilon": 8, "delta": 1e-2, "method": "additive", "standardize": False},
    }
    yield from _options_of("dp_logistic_regression", "people", given, ways)


def summaries() -> Iterator[Case]:
    quantile = {"target": "y", "epsilon": 1, "lower": 0, "upper": 10}
    yield from _column_of("dp_quantile", "people", quantile, ("target",), "y")
    ways: dict[str, dict[str, Any]] = {
        "quartiles": {"quantiles": [0.25, 0.5, 0.75]},
        "many": {"quantiles": [0.05, 0.1, 0.2, 0.5, 0.7, 0.9, 0.95], **REPLACE},
        "of units": {"quantiles": [0.25, 0.75], **UNIT},
        "few cells": {"cells": 3, "quantiles": 0.9},
        "large budget": {"epsilon": 1000, "quantiles": [0.1, 0.9]},
        "integers": {"target": "id", "upper": 5000, "quantiles": [0.25, 0.9]},
        "a few rows told apart": {"epsilon": 0.05, "interval_share": 0.9},
        "no intervals": {"interval_share": 0, "quantiles": [0.25, 0.75]},
    }
    yield from _options_of("dp_quantile", "people", quantile, ways)
    ways = {
        "one": {},
        "replace": {**REPLACE, "quantiles": 0.9},
        "of units": UNIT,
        "integers": {"target": "id", "quantiles": [0.1, 0.5]},
        "odd rows": {"source": "odd"},
        "no rows": {"source": "nobody"},
        "no intervals": {"interval_share": 0},
        "undetermined": {"epsilon": 0.01},
    }
    for name, way in ways.items():
        given = {"target": "y", "epsilon": 2, **way}
        call = table("dp_quantile", given.pop("source", "people"), **given)
        yield Case(f"dp_quantile, no bounds: {name}", (call,))
    found = aggregate("dp_quantile", "y", "people", epsilon=2)
    yield Case("dp_quantile, no bounds: aggregate", (found,))
    quantile = {"target": "y", "epsilon": 20, "bounds_share": 0.25}
    ways = {
        "one": {},
        "replace": REPLACE,
        "of units": UNIT,
        "odd rows": {"source": "odd"},
        "no rows": {"source": "nobody"},
        "quartiles": {"quantiles": [0.25, 0.5, 0.75], "bounds_share": 0.5},
        "undetermined": {"epsilon": 0.1, "quantiles": [0.25, 0.5]},
    }
    for name, way in ways.items():
        given = {**quantile, **way}
        call = table("dp_quantile", given.pop("source", "people"), **given)
        yield Case(f"dp_quantile, private bounds: {name}", (call,))
    found = aggregate("dp_quantile", "y", "people", epsilon=20, bounds_share=0.25)
    yield Case("dp_quantile, private bounds: aggregate", (found,))

    bounds = {"target": "y", "epsilon": 1}
    yield from _column_of("dp_bounds", "people", bounds, ("target",), "y")
    ways = {
        "failure": {"failure": 0.2},
        "integers": {"target": "id"},
        "nothing but NaN": {"source": "odd", "target": "f"},
    }
    yield from _options_of("dp_bounds", "people", bounds, ways)

    matrix = {"epsilon": 1, "delta": 1e-5, **BOUNDS}
    for function in ("dp_covariance", "dp_correlation"):
        for layout, (source, columns) in LAYOUTS.items():
            yield Case(f"{function}: {layout}", (table(function, source, **matrix, **columns),))
        for name, more in _RELATIONS:
            yield Case(f"{function}: {name}", (table(function, "people", **matrix, **WIDE, **more),))
        yield Case(f"{function}: aggregate", (aggregate(function, "x", "vectors", **matrix),))
        ways = {
            "odd rows": {"source": "odd", "features": ["a", "b", "c", "d"]},
            "no rows": {"source": "nobody"},
            "pure": {"features": ["a", "b"], "delta": None},
            "pure, replace, of units": {"features": ["a", "b", "c"], "delta": None, **REPLACE, **UNIT},
            "large budget": {"epsilon": 1000},
        }
        yield from _options_of(function, "people", {**matrix, **WIDE}, ways)
    yield from _options_of("dp_covariance", "people", {**matrix, **WIDE}, {"ddof": {"ddof": 0}})

    metrics = {"target": "y", "prediction": "guess", "epsilon": 1, "lower": 0, "upper": 10}
    yield from _column_of("dp_regression_metrics", "scored", metrics, ("target", "prediction"), "y, guess")
    ways = {"error bound": {"error_bound": 2}, "little budget": {"epsilon": 0.02}, "large budget": {"epsilon": 1000}}
    yield from _options_of("dp_regression_metrics", "scored", metrics, ways)


def curves() -> Iterator[Case]:
    scored = {"label": "relapse", "score": "p"}
    text = {"label": "word", "target_levels": ["no", "yes"]}
    ranged = {"score": "y", "lower": -1, "upper": 12}
    for function in ("dp_roc", "dp_auc", "dp_confusion"):
        given: dict[str, Any] = {**scored, "epsilon": 1}
        yield from _column_of(function, "scored", given, ("label", "score"), "relapse, p")
        ways: dict[str, dict[str, Any]] = {
            "text labels": text,
            "bounds": ranged,
            "large budget": {"epsilon": 1000},
            "little budget": {"epsilon": 0.02},
        }
        yield from _options_of(function, "scored", given, ways)
    given = {**scored, "epsilon": 1}
    ways = {}
    for thresholds in ("recursive", "fixed", "smooth_medians"):
        for curve in ("identity", "tree", "wavelet", "toeplitz"):
            delta = {"delta": 1e-5} if curve == "toeplitz" else {}
            ways[f"{thresholds}, {curve}"] = {"thresholds": thresholds, "curve": curve, **delta}
    ways |= {
        "gaussian": {"delta": 1e-5},
        "gaussian, identity, replace": {"delta": 1e-5, "curve": "identity", **REPLACE},
        "gaussian, tree": {"delta": 1e-5, "curve": "tree", "thresholds": "fixed"},
        "gaussian, wavelet of units": {"delta": 1e-5, "curve": "wavelet", **UNIT},
        "many thresholds": {"n_thresholds": 60, "threshold_share": 0.5},
        "few cells": {"thresholds": "fixed", "n_thresholds": 9, "cells": 10},
        "one median, replace": {"thresholds": "smooth_medians", "n_thresholds": 1, **REPLACE},
        "medians of units": {"thresholds": "smooth_medians", "n_thresholds": 7, **UNIT},
    }
    yield from _options_of("dp_roc", "scored", given, ways)
    ways = {
        "few cells": {"cells": 4},
        "gaussian": {"delta": 1e-5},
        "gaussian of units, replace": {"delta": 1e-5, **REPLACE, **UNIT},
        "smooth": {"method": "smooth"},
        "smooth of units": {"method": "smooth", **UNIT},
    }
    yield from _options_of("dp_auc", "scored", given, ways)
    some = [0.0, 0.1, 0.5, 2 / 3, 1.0]
    ways = {"thresholds": {"thresholds": some}, "thresholds of units": {"thresholds": some, **UNIT}}
    for curve in ("identity", "tree", "wavelet", "toeplitz"):
        ways[curve] = {"thresholds": some, "curve": curve, **({"delta": 1e-5} if curve == "toeplitz" else {})}
    ways["gaussian, replace"] = {"thresholds": some, "delta": 1e-5, **REPLACE}
    yield from _options_of("dp_confusion", "scored", given, ways)


def comparisons() -> Iterator[Case]:
    """Two groups, and two scores of the same rows."""
    groups = {"target": "y", "groups": "word", "keys": ["no", "yes"], "lower": -1, "upper": 12, "epsilon": 1}
    ways: dict[str, dict[str, Any]] = {
        "means": {},
        "of these rows": {"sampling": False},
        "gaussian": {"delta": 1e-5, "noise": "gaussian"},
        "of units, replace": {**UNIT, **REPLACE},
        "another confidence": {"confidence": 0.8},
        "too few rows": {"epsilon": 0.001},
    }
    for name, more in ways.items():
        yield Case(f"dp_compare: {name}", (table("dp_compare", "scored", **{**groups, **more}),))
    scores = {"scores": ["p", "guess"], "label": "relapse", "epsilon": 1}
    bounds = {"lower": 0, "upper": 10}
    ways = {
        "counts": {"of": "count", "groups": "relapse", "epsilon": 1},
        "shares": {"of": "share", "target": "relapse", "groups": "word", "keys": ["no", "yes"], "epsilon": 1},
        "errors": {"of": "error", **scores, **bounds, "thresholds": [0.5, 5]},
        "sizes of errors": {"of": "error", "loss": "squared", **scores, "label": "y", **bounds},
        "areas": {"of": "auc", **scores, **bounds, "cells": 256},
        "areas, gaussian of units": {"of": "auc", **scores, **bounds, "delta": 1e-3, "noise": "gaussian", **UNIT},
        "refused": {"of": "mean", **scores},
    }
    for name, more in ways.items():
        yield Case(f"dp_compare: {name}", (table("dp_compare", "scored", **more),))


def aggregates() -> Iterator[Case]:
    """Aggregates in groups: keys of each form, limits of a unit, both laws of noise."""
    keys = {"by": ["word"], "keys": ["yes", "no", "none"]}
    both = {"by": ["word", "relapse"], "keys": Sql("{'word': ['yes', 'no']}"), "other": True}
    private: dict[str, Any] = {"by": ["word"], "keys": "private", "delta": 1e-6}
    unit = {"privacy_unit": "person", "max_groups_per_unit": 2, "max_rows_per_unit_group": 1}
    ways: dict[str, dict[str, Any]] = {
        "all rows": {},
        "public keys": keys,
        "two columns": both,
        "units": {**keys, **unit, "max_rows_per_unit": 2},
        "units, replace": {**both, **unit, **REPLACE},
        "Gaussian": {**keys, "delta": 1e-6, "noise": "gaussian"},
        "private keys": private,
        "private keys of units": {**private, **unit, "max_rows_per_unit_group": 2},
        "private keys, Gaussian": {**private, **unit, "noise": "gaussian"},
    }
    for name, way in ways.items():
        yield Case(f"dp_count: {name}", (table("dp_count", "people", epsilon=1, **way),))
        for function in ("dp_sum", "dp_avg", "dp_variance", "dp_stddev"):
            call = table(function, "people", target="y", lower=0, upper=8, epsilon=1, **way)
            yield Case(f"{function}: {name}", (call,))
        several = {"aggregates": ["count", "sum", "avg", "stddev"], "target": ["a", "y"], "lower": [0, -2], "upper": 8}
        yield Case(f"dp_aggregate: {name}", (table("dp_aggregate", "odd", epsilon=1, **several, **way),))
        if name not in ("two columns", "private keys"):
            several = {"aggregates": ["count", "avg", "stddev"], "target": ["y", "d"], "epsilon": 60}
            call = table("dp_aggregate", "people", **several, **way)
            yield Case(f"aggregates, private bounds: {name}", (call,))
    sized = {"target": "y", "lower": 0, "upper": 8, "epsilon": 1, "neighbours": "replace", "group_sizes": 600}
    yield Case("dp_avg: public size", (table("dp_avg", "people", **sized),))
    shared = {"target": ["y", "id"], "lower": [0, 0], "upper": [8, 600], "epsilon": 1, "nulls": "middle", **keys}
    yield Case("dp_avg: one count for two targets", (table("dp_avg", "people", **shared),))
    bare = "SELECT dp_sum(y, epsilon := 20, bounds_share := 0.5), dp_avg(y, epsilon := 0.1) FROM people"
    yield Case("aggregates, private bounds: aggregate form", (bare,))
    nothing = table("dp_avg", "nobody", target="y", epsilon=1, **keys)
    yield Case("aggregates, private bounds: no rows", (nothing,))
    summed = {"target": "y", "lower": -8, "upper": 8, "unit_value": "sum", "epsilon": 1}
    owner = {"privacy_unit": "person", "max_groups_per_unit": 1}
    yield Case("dp_sum: sums of units", (table("dp_sum", "people", **summed, **keys, **owner),))
    for item in ("person", "id"):
        call = table("dp_count", "people", distinct_of=item, epsilon=1, **keys, **unit)
        yield Case(f"dp_count: different {item}", (call,))
    yield Case(
        "aggregates: no rows",
        (
            table("dp_stddev", "nobody", target="y", lower=0, upper=8, epsilon=1, **keys),
            table("dp_stddev", "nobody", target="y", lower=0, upper=8, epsilon=1, **private),
        ),
    )
    yield Case(
        "aggregates: aggregate form",
        (
            "SELECT dp_count(y, epsilon := 1), dp_sum(y, lower := 0, upper := 8, epsilon := 1) FROM people",
            "SELECT word, dp_aggregate(y, aggregates := ['avg', 'variance'], lower := 0, upper := 8, epsilon := 1) "
            "FROM people GROUP BY word ORDER BY word",
        ),
    )


def views() -> Iterator[Case]:
    """Releases with a name, and what may be read of them for nothing."""
    curve = table(
        "dp_roc", "scored", label="relapse", score="p", epsilon=1, thresholds="fixed", n_thresholds=7, release="roc"
    )
    yield Case(
        "views of a curve",
        (curve, "FROM dp_precision_recall('roc')", "FROM dp_calibration('roc')", "FROM dp_calibration(1)"),
        alone=True,
    )
    yield Case("area of a curve", (curve, "FROM dp_auc(release := 'roc')", "FROM dp_auc(release := 1)"), alone=True)
    chosen = table("dp_sis", "people", target="y", k=2, epsilon=1, **BOUNDS, **TARGET, **WIDE, release="sel")
    features = Sql("release('sel')")
    fit = table("dp_linear_regression", "people", target="y", features=features, epsilon=2, delta=1e-5, release="model")
    listed = (
        'SELECT model, ledger_id, dataset, "function", method, target, features, status, guarantee FROM dp_models()'
    )
    yield Case(
        "select, fit, predict",
        (
            chosen,
            fit,
            listed,
            "SELECT dp_predict('model', people) FROM people ORDER BY id LIMIT 20",
            "SELECT dp_predict('model', {'a': a, 'b': b, 'c': c, 'd': d, 'e': e, 'f': f}) FROM odd ORDER BY id LIMIT 20",
            "SELECT sum(dp_predict(2, people)) FROM people",
            fit,
            chosen,
        ),
        alone=True,
    )
    long = BINARY["long"][1]
    words = table("dp_score_filter", "tokens", target="relapse", **long, k=3, epsilon=3, release="words")
    bayes = table(
        "dp_naive_bayes", "tokens", target="relapse", features=Sql("release('words')"), epsilon=3, release="filter"
    )
    yield Case(
        "filter, naive Bayes, predict",
        (
            words,
            bayes,
            "SELECT id, dp_predict('filter', list(token)), dp_predict_class('filter', list(token)) FROM tokens "
            "GROUP BY id ORDER BY id LIMIT 20",
            "SELECT dp_predict('filter', flags), dp_predict_class('filter', flags) FROM flags ORDER BY id LIMIT 20",
            listed,
        ),
        alone=True,
    )
    vector = table("dp_kendall", "vectors", target="relapse", features="x", k=3, epsilon=3, release="sel")
    logistic = table(
        "dp_logistic_regression", "vectors", target="relapse", features=features, epsilon=3, **BOUNDS, release="model"
    )
    yield Case(
        "kendall on vectors, logistic, predict",
        (
            vector,
            logistic,
            "SELECT dp_predict('model', x), dp_predict_class('model', x) FROM vectors ORDER BY id LIMIT 20",
            listed,
        ),
        alone=True,
    )
    cells = LAYOUTS["long"][1]
    yield Case(
        "best subset of long rows, fit",
        (
            table("dp_best_subset", "cells", target="y", k=2, epsilon=9, **BOUNDS, **TARGET, **cells, release="sel"),
            table("dp_linear_regression", "cells", target="y", features=features, epsilon=2, delta=1e-5, release="m"),
            listed,
        ),
        alone=True,
    )
    pipeline = table("dp_pipeline", "people", target="y", **WIDE, k=2, epsilon=2, delta=1e-5, release="both")
    yield Case("dp_pipeline: by name, again", (pipeline, pipeline, listed), alone=True)
    named = aggregate("dp_quantile", "y", "people", epsilon=1, lower=0, upper=10, release="median")
    yield Case("dp_quantile: aggregate by name, again", (named, named), alone=True)
    failed = table(
        "dp_linear_regression",
        "people",
        target="e",
        features=["a"],
        epsilon=2,
        delta=1e-5,
        method="tukey",
        blocks=40,
        release="m",
    )
    yield Case("a model that was not released", (failed, listed), alone=True)


def budgets() -> Iterator[Case]:
    """Calls under budgets, and what is left of these."""
    median = table("dp_quantile", "people", target="y", epsilon=0.1, lower=0, upper=10)
    fit = table("dp_linear_regression", "people", target="y", **WIDE, epsilon=1, delta=1e-7, **BOUNDS, **TARGET)
    select = table("dp_sis", "people", target="y", **WIDE, k=2, epsilon=0.5, **BOUNDS, **TARGET)
    left = "FROM dp_budget()"
    calls = (median, fit, select, median)
    yield Case("budget: none", (*calls, left), alone=True)
    for accountant in ("basic", "rdp"):
        protect = f"SELECT dp_protect('people', epsilon := 2, delta := 1e-6, accountant := '{accountant}')"
        yield Case(f"budget: {accountant}", (protect, *calls, left, fit, left), alone=True)
    yield Case("budget: zCDP", ("SELECT dp_protect('people', rho := 0.4)", median, select, left, fit), alone=True)
    stated = (
        "SELECT dp_protect('people', epsilon := 5, delta := 1e-6, neighbours := 'replace', privacy_unit := 'person', "
        "max_rows_per_unit := 2, lower := 0, upper := 1, target_lower := 0, target_upper := 10)"
    )
    bare = table("dp_sis", "people", target="y", **WIDE, k=2, epsilon=1)
    unlike = table("dp_sis", "people", target="y", **WIDE, k=2, epsilon=1, neighbours="add_remove")
    yield Case("budget: what the owner stated", (stated, bare, unlike, left), alone=True)
    yield Case(
        "budget: a view, and two tables",
        (
            "CREATE TABLE wards AS SELECT i AS ward, 10 * i AS beds FROM range(3) AS r(i)",
            "SELECT dp_protect('people', epsilon := 2)",
            "SELECT dp_protect('scored', epsilon := 2)",
            "SELECT dp_public('wards')",
            "CREATE VIEW stacked AS SELECT y FROM people WHERE a > 0.2 UNION ALL SELECT y FROM scored",
            table("dp_bounds", "stacked", target="y", epsilon=0.5),
            table("dp_bounds", "many", target="y", epsilon=0.5),
            "SELECT dp_derive('many', 'people', one_row_each := true)",
            table("dp_bounds", "many", target="y", epsilon=0.5),
            left,
        ),
        alone=True,
    )
    some = (
        median,
        table("dp_kendall", "people", target="y", **WIDE, k=2, epsilon=0.2),
        table("dp_roc", "people", label="relapse", score="a", epsilon=0.3, delta=1e-8),
        table("dp_score_filter", "people", target="relapse", **WIDE, present_above=0.5, k=2, epsilon=0.2),
        table("dp_naive_bayes", "people", target="relapse", **WIDE, present_above=0.5, epsilon=0.2),
        table("dp_logistic_regression", "people", target="relapse", **WIDE, epsilon=0.3, **BOUNDS),
        table("dp_auc", "people", label="relapse", score="a", epsilon=0.2),
        table("dp_regression_metrics", "people", target="y", prediction="a", epsilon=0.2, lower=0, upper=10),
        table("dp_two_stage", "people", target="y", **WIDE, k=2, epsilon=0.2, blocks=20),
        table("dp_best_subset", "people", target="y", **WIDE, k=2, epsilon=0.2, **BOUNDS, **TARGET),
        table("dp_pipeline", "people", target="y", **WIDE, k=2, epsilon=0.5, delta=1e-8),
    )
    protect = "SELECT dp_protect('people', epsilon := 4, delta := 1e-6, accountant := 'rdp')"
    yield Case("budget: a call of many kinds", (protect, *some, left), alone=True)


def estimates() -> Iterator[Case]:
    columns = {"n_features": 20, "n_rows": 5000, "epsilon": 1}
    classes = {**columns, "max_features_per_row": 5}
    ways: dict[str, dict[str, Any]] = {
        "dp_sis": {**columns, "k": 5},
        "dp_sis, gumbel, centred": {**columns, "k": 5, "mechanism": "gumbel", "center": "target", **REPLACE},
        "dp_sis, by rank": {**columns, "k": 5, "score": "rank"},
        "dp_sis, by rank, two levels": {**columns, "k": 5, "score": "rank", "target_levels": [0, 1]},
        "dp_kendall": {**columns, "k": 5, "split": "scaled"},
        "dp_two_stage": {**columns, "k": 5, "rows_per_block": 50},
        "dp_best_subset": {**columns, "k": 3, "intercept": True},
        "dp_linear_regression": {**columns, "delta": 1e-6},
        "dp_linear_regression, ada_ssp": {**columns, "delta": 1e-6, "method": "ada_ssp", **BOUNDS, **TARGET},
        "dp_linear_regression, tukey": {**columns, "delta": 1e-6, "method": "tukey"},
        "dp_pipeline": {**columns, "k": 5, "delta": 1e-6},
        "dp_score_filter": {**classes, "threshold": 20, "delta": 1e-6},
        "dp_score_filter, svt": {**classes, "threshold": 20, "method": "svt", "cutoff": 3},
        "dp_naive_bayes": classes,
        "dp_logistic_regression": {**columns, **BOUNDS},
        "dp_logistic_regression, gaussian": {**columns, **BOUNDS, "delta": 1e-6},
        "dp_quantile": {"epsilon": 1, "n_rows": 5000, "lower": 0, "upper": 10, "quantiles": [0.25, 0.5, 0.75]},
        "dp_quantile, private bounds": {"epsilon": 1, "n_rows": 5000, "bounds_share": 0.5},
        "dp_sum, private bounds": {"epsilon": 1, "n_rows": 5000},
        "dp_bounds": {"epsilon": 1, "n_rows": 5000},
        "dp_covariance": {**columns, "delta": 1e-6},
        "dp_correlation, pure of units": {"n_features": 2, "epsilon": 1, "max_rows_per_unit": 3},
        "dp_regression_metrics": {"epsilon": 1, "n_rows": 5000, "lower": 0, "upper": 10, "error_bound": 2},
        "dp_roc": {"epsilon": 1, "n_rows": 5000, "n_thresholds": 15, "curve": "tree"},
        "dp_roc, gaussian of units": {"epsilon": 1, "n_rows": 5000, "delta": 1e-6, "max_rows_per_unit": 3},
        "dp_auc": {"epsilon": 1, "n_rows": 5000},
        "dp_auc, gaussian": {"epsilon": 1, "n_rows": 5000, "delta": 1e-6},
        "dp_auc, smooth": {"epsilon": 1, "n_rows": 5000, "method": "smooth"},
        "dp_confusion": {"epsilon": 1, "n_rows": 5000, "thresholds": [0.2, 0.5]},
        "dp_compare": {"epsilon": 1, "n_rows": 5000, "lower": 0, "upper": 10},
        "dp_compare, areas": {"epsilon": 1, "n_rows": 5000, "of": "auc"},
    }
    for name, given in ways.items():
        function = literal(name.split(",")[0])
        yield Case(f"dp_estimate: {name}", (f"SELECT * FROM dp_estimate({function}, {options(given)})",))


def exact_functions() -> Iterator[Case]:
    bounded = {**BOUNDS, **TARGET}
    for layout, (source, columns) in LAYOUTS.items():
        yield Case(
            f"exact: {layout}",
            (
                table("exact_xty", source, target="y", **bounded, **columns),
                table("exact_discordant", source, target="y", **columns),
            ),
        )
    yield Case(
        "exact: units and odd rows",
        (
            table("exact_xty", "odd", target="y", **bounded, **WIDE),
            table("exact_xty", "people", target="y", **bounded, **WIDE, **UNIT),
            table(
                "exact_xty", "people", target="word", target_levels=["no", "yes"], **BOUNDS, **WIDE, **UNIT, row_id="id"
            ),
            table("exact_discordant", "odd", target="y", **WIDE),
            table("exact_discordant", "people", target="relapse", **WIDE, **UNIT),
        ),
    )
    yield Case(
        "exact: in SQL alone",
        (
            "SELECT exact_xty(a, y, 0, 1, 0, 10), exact_xty(f, y, 0, 1, 0, 10) FROM odd",
            "SELECT * FROM exact_kendall_sql('people', 'a', 'y')",
            "SELECT * FROM exact_kendall_sql('odd', 'a', 'y')",
            "SELECT * FROM exact_gram_sql('vectors', 'x', 'y', 0, 1, 0, 10) ORDER BY i, j",
            "SELECT * FROM exact_gram_sql('vectors', 'x', 'y', 0, 1, 0, 10, row_norm := 0.9) ORDER BY i, j",
            "SELECT exact_fixed_point(v, 0.5, 2097152.0), exact_double(v) FROM (VALUES (NULL), (0.25), ('nan'::DOUBLE), "
            "('inf'::DOUBLE), (-7)) AS t(v)",
        ),
    )


def refusals() -> Iterator[Case]:
    """What is refused leaves nothing in the ledger, and its text is public."""
    sis = {"target": "y", "k": 2, "epsilon": 1, **BOUNDS, **TARGET, **WIDE}
    ways: dict[str, dict[str, Any]] = {
        "k": {"k": 7},
        "epsilon": {"epsilon": 0},
        "mechanism": {"mechanism": "laplace"},
        "no bounds": {"lower": None, "upper": None},
        "bounds turned": {"lower": 1, "upper": 0},
        "a column that is not there": {"features": ["a", "z"]},
        "a text as feature": {"source": "odd", "features": ["a", "remark"]},
        "a unit alone": {"privacy_unit": "person"},
        "a release of nothing": {"features": Sql("release('nothing')")},
    }
    for name, way in ways.items():
        given = {part: value for part, value in {**sis, **way}.items() if value is not None}
        yield Case(f"refused: {name}", (table("dp_sis", given.pop("source", "people"), **given),))


def grouped_counts() -> Iterator[Case]:
    """Histograms, tables with margins, and quantiles and bounds of groups."""
    words = {"by": "word", "keys": ["no", "yes", "never"]}
    limits = {"privacy_unit": "person", "max_groups_per_unit": 2, "max_rows_per_unit_group": 2}
    histogram = {"target": "y", "lower": 0, "upper": 10, "n_bins": 5, "epsilon": 2}
    ways: dict[str, dict[str, Any]] = {
        "even bins": {},
        "edges": {"lower": None, "upper": None, "n_bins": None, "bins": [1, 2.5, 7]},
        "groups": {**words, "other": True},
        "tree": {"n_bins": 70, "curve": "tree", "null_bin": False},
        "toeplitz": {"curve": "auto", "delta": 1e-6, "noise": "gaussian", **words},
        "replace": {**REPLACE, **words},
        "unit": {**limits, **words, "delta": 1e-6},
    }
    for name, way in ways.items():
        given = {part: value for part, value in {**histogram, **way}.items() if value is not None}
        for source in ("people", "odd") if name in ("edges", "unit") else ("people",):
            yield Case(f"dp_histogram: {name}, {source}", (table("dp_histogram", source, **given),))
    yield Case("dp_histogram: no rows", (table("dp_histogram", "nobody", **histogram),))
    bare = {name: value for name, value in histogram.items() if name != "target"}
    yield Case("dp_histogram: aggregate", (aggregate("dp_histogram", "y", "odd", **bare),))
    named = table("dp_histogram", "people", **histogram, **words, release="h")
    read = "SELECT * FROM dp_histogram_quantile('h', quantiles := [0.1, 0.5])"
    yield Case("dp_histogram: by name, again, and its quantiles", (named, named, read), alone=True)
    keys = {"word": ["no", "yes"], "relapse": [True, False], "b": [1, 2, 3]}
    two = {
        "rows": "word",
        "columns": "relapse",
        "keys": {name: keys[name] for name in ("word", "relapse")},
        "epsilon": 1,
    }
    three = {"by": ["word", "relapse", "b"], "keys": keys, "epsilon": 1}
    shapes: dict[str, dict[str, Any]] = {
        "two columns": two,
        "cells": {**two, "margins": False},
        "gaussian": {**two, "delta": 1e-6, "noise": "gaussian"},
        "three columns": {**three, "delta": 1e-6},
        "unit, replace": {**three, **limits, **REPLACE, "noise": "laplace"},
    }
    for name, given in shapes.items():
        yield Case(f"dp_crosstab: {name}", (table("dp_crosstab", "odd", **given),))
    synthetic: dict[str, Any] = {"epsilon": 1, "delta": 1e-6, "columns": ["word", "relapse", "b", "a"]}
    public = {"keys": {"word": ["no", "yes"]}, "lower": {"a": 0, "b": 0}, "upper": {"a": 1, "b": 9}, "target": "word"}
    for name, given in {
        "public": {**synthetic, **public},
        "private": {**synthetic, "private_keys": True},
        "unit, replace": {**synthetic, **public, "privacy_unit": "person", "max_rows_per_unit": 2, **REPLACE},
    }.items():
        asked = table("dp_synthetic", "odd", **given, release="s")
        twin = "SELECT * FROM dp_synthetic_rows('s', n := 20, seed := 1)"
        yield Case(f"dp_synthetic: {name}", (asked, twin), alone=True)
    column = {"target": "y", "epsilon": 1, **words}
    grid = {**column, "lower": 0, "upper": 10, "quantiles": [0.25, 0.5, 0.9], "cells": 64}
    for name, more in (("groups", {}), *((f"groups, {one}", way) for one, way in _RELATIONS)):
        yield Case(f"dp_quantile: {name}", (table("dp_quantile", "odd", **grid, **more),))
        alone = {**grid, **more, "cells": 1024, "interval_share": 0}
        yield Case(f"dp_quantile: {name}, no intervals", (table("dp_quantile", "odd", **alone),))
        yield Case(f"dp_bounds: {name}", (table("dp_bounds", "odd", **column, **more, other=True),))


def queries() -> Iterator[Case]:
    """Queries of plain SQL, each over a budget of its own."""
    protect = (
        "SELECT dp_protect('people', epsilon := 50, delta := 1e-3, privacy_unit := 'person', max_rows_per_unit := 2, "
        "keys := {word: ['yes', 'no']}, lower := 0, upper := 1)"
    )
    asked = {
        "groups": "SELECT word, count(*) AS n, avg(a) AS m, sum(b) AS s FROM people GROUP BY word HAVING count(*) > 3 ORDER BY n",
        "two cores": (
            "SELECT x.word, x.n, z.m FROM (SELECT word, count(*) AS n FROM people GROUP BY word) x JOIN "
            "(SELECT word, count(DISTINCT person) AS m FROM people WHERE a > 0.5 GROUP BY word) z USING (word)"
        ),
        "a person's rows first": "SELECT avg(n), count(*) FROM (SELECT person, sum(a) AS n FROM people GROUP BY person)",
        "quantiles and pairs": "SELECT median(a) AS q, corr(a, b) AS r, regr_slope(b, a) AS t FROM people WHERE relapse",
        "margins": "SELECT word, relapse, count(*) AS n FROM people GROUP BY ROLLUP (word, relapse) ORDER BY ALL",
    }
    for name, sql in asked.items():
        call = f"FROM dp_query({literal(sql)}, epsilon := 8)"
        again = f"SELECT * FROM dp_query({literal(sql)}, epsilon := 8) LIMIT 1"
        yield Case(f"dp_query: {name}", (protect, call, again, "FROM dp_budget()"), alone=True)
    errors = f"FROM dp_query({literal(asked['groups'])}, epsilon := 8, errors := true)"
    yield Case("dp_query: errors", (protect, errors), alone=True)
    keys = "FROM dp_query('SELECT id % 4 AS k, remark, count(*) FROM odd GROUP BY ALL', epsilon := 8, delta := 1e-5)"
    yield Case("dp_query: private keys", (protect.replace("'people'", "'odd'"), keys), alone=True)
    refused = (
        "SELECT * FROM people",
        "SELECT max(a) FROM people",
        "SELECT count(*) FROM people WHERE a > (SELECT avg(a) FROM people)",
    )
    for sql in refused:
        yield Case(
            f"dp_query: {sql}",
            (protect, f"FROM dp_query({literal(sql)}, epsilon := 1)", "FROM dp_budget()"),
            alone=True,
        )


def every_case() -> list[Case]:
    """Return all cases; their names tell them apart."""
    parts = (
        selectors,
        filters,
        models,
        summaries,
        curves,
        comparisons,
        aggregates,
        views,
        budgets,
        estimates,
        exact_functions,
        refusals,
        grouped_counts,
        queries,
    )
    cases = [case for part in parts for case in part()]
    names = [case.name for case in cases]
    doubled = {name for name in names if names.count(name) > 1}
    if doubled:
        raise ValueError(f"two cases have one name: {sorted(doubled)}")
    return cases

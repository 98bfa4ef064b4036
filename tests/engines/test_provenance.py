"""What an engine's own plan shows of where rows come from: a list of what is known, and nothing else.

Whether the lists are right is tried over everything that the engines offer: what counts as seen must give each row the
same values whatever other rows there are.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpsql.engines.polars import PolarsEngine
from dpsql.engines.provenance import Provenance, Scan, UnseenError, made_from, repeated
from dpsql.errors import SourceError
from support.cases import cases

ROWS = pa.table(
    {
        "a": [3, 1, 2, 2],
        "x": [0.5, None, math.nan, -1.5],
        "s": ["b", "a", None, "a"],
        "d": pa.array([0, 400, 800, 800], type=pa.date32()),
    }
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    for number in range(2):
        pq.write_table(ROWS.slice(2 * number, 2), folder / f"{number}.parquet")
    return folder


def columns(found: Provenance) -> dict[str, str | None]:
    return {name: passed[0] if passed else None for name, passed in found.columns}


# Polars.

POLARS_SEEN: dict[str, tuple[Callable[[pl.LazyFrame], pl.LazyFrame], dict[str, str | None]]] = {
    "all": (lambda rows: rows.select("a", "s"), {"a": "a", "s": "s"}),
    "a filter": (lambda rows: rows.filter(pl.col("s") != "rand(").select("s"), {"s": "s"}),
    "computed": (lambda rows: rows.select("s", k="a", twice=pl.col("a") * 2), {"s": "s", "k": "a", "twice": None}),
    "in its place": (lambda rows: rows.select("a", "s").with_columns(a=-pl.col("a")), {"a": None, "s": "s"}),
    "a new name": (lambda rows: rows.rename({"a": "pid"}).select("pid"), {"pid": "a"}),
    "a swap": (lambda rows: rows.select(a="s", s="a"), {"a": "s", "s": "a"}),
    "sorted": (lambda rows: rows.select("a").sort("a"), {"a": "a"}),
    "a cast": (lambda rows: rows.select(pl.col("a").cast(pl.Float64)), {"a": None}),
    "a choice": (lambda rows: rows.select(z=pl.when(pl.col("a") > 1).then(1).otherwise(0)), {"z": None}),
    "a list": (lambda rows: rows.filter(pl.col("a").is_in([1, 2])).select("a"), {"a": "a"}),
}
POLARS_UNSEEN: dict[str, Callable[[pl.LazyFrame], pl.LazyFrame]] = {
    "the first": lambda rows: rows.head(2),
    "the last": lambda rows: rows.tail(2),
    "sorted, the first": lambda rows: rows.sort("a").head(1),
    "numbers": lambda rows: rows.with_row_index("pid"),
    "a range": lambda rows: rows.with_columns(pid=pl.int_range(pl.len())),
    "a series": lambda rows: rows.with_columns(pid=pl.lit(pl.Series([1, 2, 3, 4]))),
    "a window": lambda rows: rows.with_columns(pl.col("a").sum().over("s")),
    "a mean": lambda rows: rows.filter(pl.col("a") > pl.col("a").mean()),
    "groups": lambda rows: rows.group_by("s").agg(pl.col("a").first()),
    "distinct": lambda rows: rows.unique(),
    "a join": lambda rows: rows.join(rows, on="a"),
    "Python": lambda rows: rows.map_batches(lambda frame: frame),
    "Python for each": lambda rows: rows.with_columns(pl.col("a").map_elements(lambda one: one, return_dtype=pl.Int64)),
    "a shuffle": lambda rows: rows.with_columns(pl.col("a").shuffle()),
    "codes": lambda rows: rows.with_columns(pl.col("s").cast(pl.Categorical).to_physical()),
    "codes by a cast": lambda rows: rows.with_columns(pl.col("s").cast(pl.Categorical).cast(pl.Int64)),
    "wide to long": lambda rows: rows.select("a", "x").unpivot(),
    "lists": lambda rows: rows.with_columns(pl.concat_list("a", "a").alias("l")).explode("l"),
    "repeated": lambda rows: rows.filter(pl.col("a").is_unique()),
}


@cases("way", POLARS_SEEN, quick=1)
def test_polars_shows_columns_and_filters(folder: Path, way: str) -> None:
    change, expected = POLARS_SEEN[way]
    paths = tuple(sorted(str(path.resolve()) for path in folder.glob("*.parquet")))
    found = PolarsEngine().provenance(change(pl.scan_parquet(folder / "*.parquet")))
    assert (tuple(sorted(found.scans[0].files)), columns(found)) == (paths, expected)
    in_memory = PolarsEngine().provenance(change(pl.DataFrame(ROWS).lazy()))
    assert (in_memory.scans, columns(in_memory)) == ((Scan(),), expected)


@cases("way", POLARS_UNSEEN, quick=1)
def test_polars_shows_nothing_else(folder: Path, way: str) -> None:
    places = [pl.scan_parquet(folder / "*.parquet")]
    if way not in ("the first", "the last"):  # Polars cuts rows in memory as it plans: what is left is in memory, too
        places.append(pl.DataFrame(ROWS).lazy())
    for rows in places:
        with pytest.raises(UnseenError):
            PolarsEngine().provenance(POLARS_UNSEEN[way](rows))


CATEGORIES_SEEN: dict[str, Callable[[pl.LazyFrame], pl.LazyFrame]] = {
    "handed on": lambda rows: rows.select("e", k="c"),
    "equal": lambda rows: rows.filter((pl.col("e") == "a") & (pl.col("c") != "q")),
    "equal, or both missing": lambda rows: rows.filter(pl.col("e").eq_missing("a")),
    "in a list": lambda rows: rows.filter(pl.col("e").is_in(["a", "b"])),
    "missing": lambda rows: rows.filter(pl.col("c").is_not_null()),
    "cast to text": lambda rows: rows.filter(pl.col("e").cast(pl.String) > "a"),
}
CATEGORIES_UNSEEN: dict[str, Callable[[pl.LazyFrame], pl.LazyFrame]] = {
    "an order": lambda rows: rows.filter(pl.col("e") > pl.lit("a")),
    "an order of two": lambda rows: rows.filter(pl.col("e") <= pl.col("e")),
    "between": lambda rows: rows.filter(pl.col("e").is_between(pl.lit("a"), pl.lit("b"))),
    "the larger": lambda rows: rows.with_columns(m=pl.max_horizontal("e", "e")),
    "a value beside": lambda rows: rows.with_columns(m=pl.when(pl.col("a") > 1).then("e").otherwise(pl.lit("b"))),
    "what fills": lambda rows: rows.with_columns(m=pl.col("e").fill_null("b")),
    "a code": lambda rows: rows.with_columns(m=pl.col("c").to_physical()),
    "a code by a cast": lambda rows: rows.with_columns(m=pl.col("e").cast(pl.Int64)),
    "a list of them": lambda rows: rows.filter(pl.col("l") == pl.col("l").list.reverse()),
    "within a struct": lambda rows: rows.filter(pl.struct("e") == pl.struct("e")),
}


@cases("way", [*CATEGORIES_SEEN, *CATEGORIES_UNSEEN], quick=1)
def test_polars_shows_no_order_of_labels(way: str) -> None:
    """Labels may be made of rows: a filter by their order would keep other rows of one person for another's label."""
    table = {"a": [1, 2, 3], "e": pl.Series(["a", "b", None], dtype=pl.Enum(["b", "a"]))}
    rows = pl.DataFrame(table).with_columns(c=pl.col("e").cast(pl.String).cast(pl.Categorical), l=pl.concat_list("e"))
    if way in CATEGORIES_SEEN:
        assert PolarsEngine().provenance(CATEGORIES_SEEN[way](rows.lazy())).scans == (Scan(),)
        return
    with pytest.raises(UnseenError):
        PolarsEngine().provenance(CATEGORIES_UNSEEN[way](rows.lazy()))


@pytest.mark.long
@pytest.mark.parametrize("option", [{"n_rows": 2}, {"row_index_name": "pid"}, {"include_file_paths": "pid"}])
def test_polars_scans_files_as_they_are(folder: Path, option: dict[str, Any]) -> None:
    with pytest.raises(UnseenError):
        PolarsEngine().provenance(pl.scan_parquet(folder / "*.parquet", **option))


@pytest.mark.long
def test_files_of_a_union_count_once(folder: Path) -> None:
    one, other = (pl.scan_parquet(folder / f"{number}.parquet") for number in range(2))
    read = PolarsEngine().provenance
    assert [len(scan.files) for scan in read(pl.concat([one.filter(pl.col("a") > 1), other])).scans] == [2]
    assert [len(scan.files) for scan in read(pl.concat([one.filter(pl.col("a") > 1), one])).scans] == [1, 1]
    for twice in ([folder / "0.parquet"] * 2, [folder / "0.parquet", folder / "x" / ".." / "0.parquet"]):
        with pytest.raises(SourceError, match="S052"):
            read(pl.scan_parquet(twice))


@pytest.mark.long
@pytest.mark.parametrize(
    ("paths", "found"),
    [
        (["a/b", "a/c", "ab"], None),
        (["a", "b", "a"], "a"),
        (["a/b/c", "x", "a/b"], "a/b/c"),
        (["a.b", "a/b", "a"], "a/b"),
    ],
)
def test_a_file_beside_its_folder_stands_twice(paths: list[str], found: str | None) -> None:
    assert repeated(paths) == found


def test_a_frame_that_dpsql_made_has_the_rows_of_its_origin(folder: Path) -> None:
    rows = pl.scan_parquet(folder / "*.parquet")
    made = made_from(rows.map_batches(lambda frame: frame), rows)
    engine = PolarsEngine()
    assert engine.provenance(made) == engine.provenance(rows)
    with pytest.raises(UnseenError):
        engine.provenance(made.filter(pl.col("a") > 1))


def polars_expressions() -> Iterator[tuple[str, pl.Expr]]:
    """Yield every method of an expression of Polars that takes no argument, a number, a text or a column."""
    places = [(pl.Expr, lambda one: one), (pl.col("s").str.__class__, lambda one: one.str)]
    places.append((pl.col("d").dt.__class__, lambda one: one.dt))
    for kind, place in places:
        for name in sorted(dir(kind)):
            if name.startswith("_") or name in ("inspect", "pipe", "deserialize", "from_json", "register_plugin"):
                continue
            for column in ("a", "x", "s", "d"):
                for given in ((), (1,), ("a",), (1, 2), (pl.col(column),), ([1, 2],), ([1, 2], ["p", "q"])):
                    try:
                        made = getattr(place(pl.col(column)), name)(*given)
                    except Exception:
                        continue
                    if isinstance(made, pl.Expr):
                        yield f"{column}.{name}{given}", made.alias("result")


@pytest.mark.long
def test_whatever_polars_shows_as_known_looks_at_one_row() -> None:
    """Of every method of expressions: each value is the one that the row has alone."""
    frame, seen = pl.DataFrame(ROWS), 0
    with warnings.catch_warnings(action="ignore"):
        for name, expression in polars_expressions():
            try:
                PolarsEngine().provenance(frame.lazy().select("a", expression))
                together = frame.select("a", expression)["result"].to_list()
            except BaseException as unfit:  # not seen, or of other types; some make Polars panic
                if isinstance(unfit, KeyboardInterrupt | SystemExit):
                    raise
                continue
            alone = [frame[place].select("a", expression)["result"].to_list()[0] for place in range(len(frame))]
            assert repr(alone) == repr(together), name
            seen += 1
    assert seen > 100


# DataFusion.

DATAFUSION_SEEN: dict[str, dict[str, str | None]] = {
    "SELECT a, s FROM rows": {"a": "a", "s": "s"},
    "SELECT a AS pid, upper(s) AS u FROM rows WHERE s <> 'rand(' AND a BETWEEN 1 AND 3": {"pid": "a", "u": None},
    "SELECT k, s FROM (SELECT a AS k, s FROM rows) AS q WHERE k IN (1, 2)": {"k": "a", "s": "s"},
    "SELECT a, CASE WHEN a > 1 THEN s END AS z, CAST(a AS DOUBLE) AS f FROM rows ORDER BY a": {
        "a": "a",
        "z": None,
        "f": None,
    },
    "SELECT pid FROM some_rows": {"pid": "a"},
}
DATAFUSION_UNSEEN = [
    "SELECT row_number() OVER () AS pid FROM rows",
    "SELECT a FROM rows LIMIT 2",
    "SELECT a FROM rows ORDER BY a LIMIT 2",
    "SELECT DISTINCT a FROM rows",
    "SELECT s, first_value(a) AS a FROM rows GROUP BY s",
    "SELECT random() AS pid FROM rows",
    "SELECT uuid() AS pid FROM rows",
    "SELECT a FROM rows WHERE now() > TIMESTAMP '2020-01-01'",
    "SELECT upper(CAST(random() AS VARCHAR)) AS pid FROM rows",
    "SELECT one.a FROM rows AS one, rows AS other",
    "SELECT a FROM rows WHERE a IN (SELECT a FROM rows WHERE a > 1)",
    "SELECT (SELECT max(a) FROM rows) AS m FROM rows",
    "SELECT unnest([1, 2]) AS u FROM rows",
    "VALUES (1, 2)",
]


@pytest.fixture(scope="module")
def fusion(folder: Path) -> Any:
    datafusion = pytest.importorskip("datafusion")
    settings = datafusion.SessionConfig().set("datafusion.execution.collect_statistics", "false")
    session = datafusion.SessionContext(settings)
    session.register_parquet("rows", str(folder))
    session.sql("CREATE VIEW some_rows AS SELECT a AS pid, s FROM rows WHERE a > 1")
    return session


def fusion_provenance(session: Any, frame: Any) -> Provenance:
    import dpsql.datafusion

    return dpsql.datafusion.engine(session).provenance(frame)


@cases("query", DATAFUSION_SEEN, quick=1)
def test_datafusion_shows_columns_and_filters(fusion: Any, query: str) -> None:
    found = fusion_provenance(fusion, fusion.sql(query))
    assert (found.scans, columns(found)) == ((Scan(("datafusion", "public", "rows")),), DATAFUSION_SEEN[query])


@pytest.mark.long
@cases("query", DATAFUSION_UNSEEN)
def test_datafusion_shows_nothing_else(fusion: Any, query: str) -> None:
    with pytest.raises(UnseenError):
        fusion_provenance(fusion, fusion.sql(query))


def test_datafusion_shows_views_unions_and_rows_in_memory(fusion: Any, folder: Path) -> None:
    assert columns(fusion_provenance(fusion, "some_rows")) == {"pid": "a", "s": "s"}
    union = fusion_provenance(fusion, fusion.sql("SELECT a FROM rows UNION ALL SELECT pid FROM some_rows"))
    assert union.scans == (Scan(("datafusion", "public", "rows")),) * 2
    for frame in (fusion.from_pydict({"a": [1]}), fusion.read_parquet(str(folder)).select("a")):
        assert fusion_provenance(fusion, frame).scans == (Scan(),)


def test_datafusion_tells_its_functions_from_those_of_a_user(fusion: Any) -> None:
    from datafusion import col, udf

    mine = udf(lambda values: values, [pa.int64()], pa.int64(), "immutable", name="abs")
    with pytest.raises(UnseenError, match=r"abs\(\)"):
        fusion_provenance(fusion, fusion.table("rows").select(mine(col("a"))))
    assert columns(fusion_provenance(fusion, fusion.sql("SELECT abs(a) AS b FROM rows"))) == {"b": None}


@pytest.mark.long
def test_whatever_datafusion_shows_as_known_looks_at_one_row(fusion: Any) -> None:
    """Of every function that takes columns or small constants."""
    from datafusion import col, functions, lit

    warnings.simplefilter("ignore", DeprecationWarning)
    frame = fusion.from_arrow(ROWS)
    single = [fusion.from_arrow(ROWS.slice(place, 1)) for place in range(len(ROWS))]
    seen = 0
    for name in sorted({*functions.__all__} - {"in_list"}):  # which takes a list, and iterates over anything else
        for column in ("a", "x", "s", "d"):
            for given in ([], [lit(1)], [lit("a")], [lit(1), lit(2)]):
                try:
                    made = getattr(functions, name)(col(column), *given).alias("result")
                    fusion_provenance(fusion, frame.select(col("a"), made))
                    together = frame.select(made).to_pydict()["result"]
                except BaseException as unfit:  # not seen, or it takes other arguments; some make DataFusion panic
                    if isinstance(unfit, KeyboardInterrupt | SystemExit):
                        raise
                    continue
                alone = [one.select(made).to_pydict()["result"][0] for one in single]
                assert repr(alone) == repr(together), name
                seen += 1
    assert seen > 30

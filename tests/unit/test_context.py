"""The Python face: the same functions, values as Arrow and Polars, errors as themselves."""

from __future__ import annotations

import copy
import inspect
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import dpsql
from dpsql.contract.arguments import CONDITION, NEIGHBOUR_RELATION
from dpsql.functions.estimate import ESTIMATE
from dpsql.functions.grouped.plan import BY, KEYS
from dpsql.functions.registry import DECLARATIONS, FUNCTIONS
from support.cases import cases

B = {"target": "y", "lower": 0, "upper": 1}


@pytest.fixture
def ctx() -> Iterator[dpsql.Context]:
    with dpsql.Context() as opened:
        opened.connection.execute(
            "CREATE TABLE t AS SELECT random() AS a, random() AS b, random() AS c, i // 3 AS u, i % 2 = 0 AS y "
            "FROM range(90) AS r(i)"
        )
        yield opened


def test_release(ctx: dpsql.Context) -> None:
    release = ctx.dp_sis("t", k=2, epsilon=0.5, features=["a", "b", "c"], **B)
    assert isinstance(release, dpsql.Release)
    assert release.value.schema == pa.schema(
        [
            ("rank", pa.int64()),
            ("feature", pa.string()),
            ("score", pa.float64()),
            ("std_error", pa.float64()),
            ("verdict", pa.string()),
            ("set_verdict", pa.string()),
        ]
    )
    assert release.value is release.to_arrow()
    assert isinstance(release.to_polars(), pl.DataFrame)
    assert release.to_polars()["feature"].to_list() == release.features
    assert release.to_polars().schema == {
        "rank": pl.Int64,
        "feature": pl.String,
        "score": pl.Float64,
        "std_error": pl.Float64,
        "verdict": pl.String,
        "set_verdict": pl.String,
    }
    assert (release.function, release.dataset, release.ledger_id, release.replayed) == ("dp_sis", "t", 1, False)
    assert release.to_polars()["verdict"].to_list() == ["not measured"] * 2
    assert release.to_arrow().to_pandas()["verdict"].tolist() == ["not measured"] * 2
    assert (release.verdict, release.noise["rows_needed"]) == ("not measured", 8)
    assert release.event == {"mechanism": "exponential_noise", "epsilon": "1/2", "k": 2}
    assert release.guarantee == ctx.ledger.entries()[0].guarantee
    text = repr(release)
    for part in ("Release 1", "dp_sis", "'t'", "0.5-DP", "charged", *release.features):
        assert part in text
    again = ctx.dp_sis("t", k=2, epsilon=0.5, features=["a", "b", "c"], release="r", **B)
    replayed = ctx.dp_sis("t", k=2, epsilon=0.5, features=["a", "b", "c"], release="r", **B)
    assert (again.ledger_id, replayed.ledger_id, replayed.replayed) == (2, 2, True)
    assert replayed.value == again.value
    assert "no charge" in repr(replayed)


def test_long_releases_are_shortened(ctx: dpsql.Context) -> None:
    ctx.connection.execute("CREATE TABLE w AS SELECT [1.0, 2.0] AS x, true AS y")
    shown = repr(ctx.dp_sis("w", k=50, epsilon=1, features="x", n_features=50, **B))
    assert "and 30 more" in shown


def test_frames_as_source(ctx: dpsql.Context) -> None:
    table = ctx.sql("SELECT a, b, y FROM t")
    frames = {"arrow": table, "polars": pl.DataFrame(table), "lazy": pl.DataFrame(table).lazy(), "reader": None}
    for name, frame in frames.items():
        source = table.to_reader() if name == "reader" else frame
        if name == "reader":
            continue  # a reader can be read once; a release with a centre reads twice
        release = ctx.dp_sis(source, k=1, epsilon=1, dataset="frames", **B)
        assert release.dataset == "frames"
    assert ctx.dp_sis(table, k=1, epsilon=1, **B).dataset == "default"
    left = ctx.sql("SELECT view_name FROM duckdb_views() WHERE view_name LIKE 'dpsql%'")
    assert left.num_rows == 0, "the frame's name goes with the call"


@pytest.mark.long
def test_budget_ledger_and_estimate(ctx: dpsql.Context) -> None:
    ctx.dp_protect("t", epsilon=2, delta=1e-6, lower=0, upper=1)
    release = ctx.dp_sis("t", target="y", k=1, epsilon=1, features=["a", "b"])
    assert ctx.dp_budget().to_pylist()[0]["epsilon_remaining"] == 1.0
    assert [row["kind"] for row in ctx.dp_ledger().to_pylist()] == ["protect", "release"]
    assert release.ledger_id == 2
    with pytest.raises(dpsql.BudgetError, match="1 remains of 2") as failure:
        ctx.dp_sis("t", target="y", k=1, epsilon=1.5, features=["a", "b"])
    assert failure.value.code == "DPSQL-B001"
    with pytest.raises(dpsql.BudgetError):
        ctx.dp_protect("t", epsilon=20)
    ctx.dp_protect("t", epsilon=20, replace=True)
    rows = {row["quantity"]: row["value"] for row in ctx.dp_estimate(n_features=10, k=2, epsilon=1.5).to_pylist()}
    assert rows["epsilon"] == 1.5
    assert rows["noise_scale"] == 2 * 2 / 1.5
    in_sql = ctx.sql("SELECT * FROM dp_estimate('dp_sis', n_features := 10, k := 2, epsilon := 1.5)")
    assert {row["quantity"]: row["value"] for row in in_sql.to_pylist()} == rows


@pytest.mark.long
def test_the_owners_policy(ctx: dpsql.Context) -> None:
    ctx.dp_protect(
        "t", epsilon=100, neighbours="replace", privacy_unit="u", max_rows_per_unit=2, lower=0, upper=[1, 1, 1],
        target_lower=0, target_upper=1,
    )  # fmt: skip
    call = {"target": "y", "k": 1, "epsilon": 1, "features": ["a", "b", "c"]}
    release = ctx.dp_sis("t", **call)
    assert "replace of all rows of one u (at most 2 rows)" in release.guarantee
    assert "at most 3 rows" in ctx.dp_sis("t", **call, max_rows_per_unit=3).guarantee
    assert ctx.dp_sis("t", **call, upper=2, neighbours="replace", privacy_unit="U").features
    for contradiction in ({"neighbours": "add_remove"}, {"privacy_unit": "c", "features": ["a", "b"]}):
        with pytest.raises(dpsql.BudgetError, match="B003"):
            ctx.dp_sis("t", **{**call, **contradiction})
    with pytest.raises(duckdb.Error, match="DPSQL-B011"):
        ctx.connection.execute(
            "SELECT dp_sis([a, b, c], y, n_features := 3, k := 1, epsilon := 1, dataset := 't') FROM t"
        )
    assert len(ctx.ledger.entries("t")) == 4


def test_sql_runs_once_and_raises_our_errors(ctx: dpsql.Context) -> None:
    table = ctx.sql("SELECT * FROM dp_sis('t', target := 'y', k := 1, epsilon := 1, lower := 0, upper := 1)")
    assert table.num_rows == 1
    assert len(ctx.ledger.entries()) == 1
    with pytest.raises(dpsql.ParameterError, match="P001"):
        ctx.sql("SELECT * FROM dp_sis('t', target := 'y', k := 1, epsilon := 0, lower := 0, upper := 1)")
    with pytest.raises(duckdb.CatalogException):
        ctx.sql("SELECT * FROM nosuch")
    assert ctx.sql("CREATE TABLE made AS SELECT 1 AS a").num_columns in (0, 1)


@pytest.mark.long
def test_an_open_connection_stays_the_callers(tmp_path: Path) -> None:
    connection = duckdb.connect(str(tmp_path / "x.duckdb"))
    connection.execute("CREATE TABLE t AS SELECT 1.0 AS a, true AS y")
    with dpsql.Context(connection, strict=True) as ctx:
        with pytest.raises(dpsql.BudgetError, match="B002"):
            ctx.dp_sis("t", k=1, epsilon=1, **B)
        ctx.dp_protect("t", epsilon=1)
        ctx.dp_sis("t", k=1, epsilon=1, **B)
    assert connection.execute("SELECT count(*) FROM dp_ledger()").fetchall() == [(2,)]
    connection.close()


@pytest.mark.odds("0: looks at charges")
@pytest.mark.long
def test_contexts_on_cursors_in_threads(ctx: dpsql.Context) -> None:
    outcomes: list[int] = []

    def work() -> None:
        with dpsql.Context(ctx.connection.cursor()) as mine:
            outcomes.extend(mine.dp_sis("t", k=1, epsilon=1, **B).ledger_id for _ in range(4))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == list(range(1, 17))


def test_lazy_names() -> None:
    assert callable(dpsql.install), "the function, not the module that holds it"
    assert set(dpsql.__all__) <= set(dir(dpsql))
    with pytest.raises(AttributeError):
        _ = dpsql.nosuch  # type: ignore[attr-defined]


def test_a_named_release_of_a_frame_replays() -> None:
    """A frame has no name: the random one it is registered under is no part of the call."""
    frame = pl.DataFrame({"a": [0.0, 1.0, 0.5], "b": [1.0, 0.0, 0.5], "y": [0.0, 1.0, 1.0]})
    bounds = {"lower": 0, "upper": 1, "target_lower": 0, "target_upper": 1}
    with dpsql.Context() as ctx:
        first, again = (
            ctx.dp_sis(frame, dataset="frames", target="y", k=1, epsilon=1, release="once", **bounds) for _ in range(2)
        )
        assert (again.features, again.ledger_id, again.replayed) == (first.features, first.ledger_id, True)
        assert len([row for row in ctx.ledger.entries("frames") if row.kind == "release"]) == 1


@cases("name", [*FUNCTIONS, "select_then_fit", *DECLARATIONS, "dp_estimate"])
def test_methods_show_their_arguments(name: str) -> None:
    """What notebooks complete and `help` prints is what the SQL function takes."""
    method = getattr(dpsql.Context, name)
    arguments = {**DECLARATIONS, "dp_estimate": ESTIMATE, "select_then_fit": FUNCTIONS["dp_pipeline"].plan.arguments}
    taken = arguments.get(name) or FUNCTIONS[name].plan.arguments
    shown = {
        parameter.name: parameter.default
        for parameter in inspect.signature(method).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    assert list(shown) == list(taken)
    if name in FUNCTIONS:
        assert inspect.getdoc(method).splitlines()[0] == FUNCTIONS[name].doc  # type: ignore[union-attr]
    for argument in taken.values():
        assert shown[argument.name] is (inspect.Parameter.empty if argument.required else argument.default)
        assert f"\n{argument.name} : " in inspect.getdoc(method)  # type: ignore[operator]
        assert argument.doc in method.__doc__


def test_what_a_method_shows_is_exact() -> None:
    text = inspect.getdoc(dpsql.Context.dp_bounds)
    assert (
        text
        == """\
Draw private bounds that hold the bulk of a column.

Parameters
----------
source : str or frame
    Table, view or registered name; or a Polars, pandas or Arrow frame, for which give `dataset`.
target : required
    Name of the target's column: numeric, text or boolean.
epsilon : required where the owner states no default_epsilon
    Privacy loss of the whole call, from 1e-15 to 1e12. 1.0 is usual.
failure : default 0.01
    Chance, at most, that either claim about a clear interval is false, between 0 and 1.
by : optional
    {BY}
keys : default stated by the owner, or by the column's type
    {KEYS}
other : default False
    Whether rows of all other keys form one group more, in which the column other is true.
neighbours : {'add_remove', 'replace'}, default 'add_remove', or stated by the owner
    {RELATION}
privacy_unit : optional
    Name of the column of the id of the person to protect. Without it one row is protected.
max_rows_per_unit : required with privacy_unit
    Rows that one person may contribute, from 1 to 1000000000. A random choice of them counts.
max_groups_per_unit : default max_rows_per_unit
    Groups in which one person may have rows. A random choice of them counts.
max_rows_per_unit_group : default max_rows_per_unit
    Rows that one person may contribute to a group. A random choice of them counts.
row_id : optional
    Name of the column of the row's id in long rows, or of a stored unique id.
dataset : default the source's name
    Name of the budget that is charged.
release : optional
    Name of this release. The same call with the same name returns the stored result and costs nothing.
condition : optional
    {CONDITION}
engine : default DuckDB itself
    Name of the attached engine that holds the source, see `dpsql.attach_engine`.
during : required where the owner stated periods
    Periods whose rows count, and whose budgets are charged: '2026-10', a list of names, or '2026-01/2026-12' from the first to the last.

Returns
-------
release : Release
    ``lower``, ``upper``, ``rows_inside``, ``rows_outside``, ``std_error``, ``verdict``.

Raises
------
DpsqlError
    With a code and the next step; it depends on public values only.""".replace("{RELATION}", NEIGHBOUR_RELATION.doc)
        .replace("{BY}", BY.doc)
        .replace("{KEYS}", KEYS.doc)
        .replace("{CONDITION}", CONDITION.doc)
    )


def test_a_release_is_pickled_with_what_the_ledger_keeps_of_it() -> None:
    with dpsql.Context() as context:
        context.sql("CREATE TABLE t AS SELECT range AS a FROM range(100)")
        release = context.dp_count("t", epsilon=1)
        content = pickle.dumps(release)
        copies = [copy.copy(release), copy.deepcopy(release), pickle.loads(content)]
        result, noise = release.result, release.noise
    for each in copies:  # the ledger is gone
        assert each == release
        assert (each.result, each.noise, repr(each)) == (result, noise, repr(release))
        assert pickle.loads(pickle.dumps(each)) == release


def test_the_plugin_of_dbt_says_what_is_missing() -> None:
    program = "import sys; sys.modules['dbt'] = None\ntry: import dpsql.dbt\nexcept ImportError as error: print(error)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "pip install 'dpsql[dbt]'" in done.stdout, done.stderr


def test_submodules_load_on_first_use_and_nothing_heavy_with_them() -> None:
    program = (
        "import sys, dpsql\n"
        "assert not {'polars', 'pyspark', 'datafusion', 'duckdb', 'pyarrow'} & set(sys.modules)\n"
        "assert {'polars', 'spark', 'datafusion'} <= set(dir(dpsql))\n"
        "dpsql.spark.context, dpsql.datafusion.context\n"
        "assert not {'polars', 'pyspark', 'datafusion'} & set(sys.modules)\n"
        "assert dpsql.polars.engine().name == 'polars'\n"
    )
    root = Path(dpsql.__file__).resolve().parents[1]
    subprocess.run([sys.executable, "-c", program], check=True, cwd=root)

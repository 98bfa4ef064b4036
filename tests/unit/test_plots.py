"""Pictures of releases: what they show, that they can be read on both grounds, and what they refuse."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import dpsql
from dpsql.cli import main
from dpsql.errors import ParameterError
from dpsql.released.plots import GRID, INK, LINE, SECOND, plot_budgets, plot_release, save
from support.cases import cases


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with releases: of a curve, a filter and two models."""
    path = tmp_path_factory.mktemp("plots") / "d.duckdb"
    with dpsql.Context(path) as ctx:
        ctx.sql(
            "CREATE TABLE s AS SELECT i % 3 = 0 AS y, (i % 3 = 0)::INT / 4 + i % 7 / 10 AS p FROM range(900) AS r(i)"
        )
        ctx.sql('CREATE TABLE w AS SELECT i % 2 AS y, i % 2 AS a, i % 3 AS b, 1 AS "c $x$" FROM range(900) AS r(i)')
        ctx.dp_protect("s", epsilon=9)
        ctx.dp_public("w")
        ctx.dp_roc("s", label="y", score="p", epsilon=2, release="curve")
        ctx.dp_score_filter(
            "w", target="y", score="total_count", threshold=100, epsilon=5, present_above=0, release="filter"
        )
        ctx.dp_score_filter(
            "w", target="y", score="total_count", k=2, method="one_shot", epsilon=5, present_above=0, release="top"
        )
        ctx.dp_naive_bayes("w", target="y", epsilon=5, present_above=0, release="bayes")
    return path


@pytest.fixture
def ctx(database: Path) -> Iterator[dpsql.Context]:
    with dpsql.Context(database) as opened:
        yield opened


def replayed(ctx: dpsql.Context, name: str) -> Any:
    """Return a release by its name, at no charge."""
    given: dict[str, tuple[str, str, dict[str, Any]]] = {
        "curve": ("dp_roc", "s", {"label": "y", "score": "p", "epsilon": 2}),
        "filter": (
            "dp_score_filter",
            "w",
            {"target": "y", "score": "total_count", "threshold": 100, "epsilon": 5, "present_above": 0},
        ),
        "bayes": ("dp_naive_bayes", "w", {"target": "y", "epsilon": 5, "present_above": 0}),
        "top": (
            "dp_score_filter",
            "w",
            {"target": "y", "score": "total_count", "k": 2, "method": "one_shot", "epsilon": 5, "present_above": 0},
        ),
    }
    function, source, arguments = given[name]
    release = getattr(ctx, function)(source, **arguments, release=name)
    assert release.replayed
    return release


@pytest.mark.long
def test_a_curve_shows_its_points_within_a_band(ctx: dpsql.Context) -> None:
    release = replayed(ctx, "curve")
    ax = release.plot()
    curve = next(line for line in ax.lines if line.get_label().startswith("AUC"))
    assert curve.get_xdata().tolist() == release.value.column("fpr").to_pylist()
    assert curve.get_ydata().tolist() == release.value.column("tpr").to_pylist()
    assert ax.get_title() == f"verdict: {release.verdict}\n{release.covers}"
    band = ax.patches[0].get_path()
    middle = np.column_stack([curve.get_xdata(), curve.get_ydata()])[1:-1]
    inside = [band.contains_point(point, radius=1e-3) or band.contains_point(point, radius=-1e-3) for point in middle]
    assert all(inside)
    assert band.get_extents().get_points().min() >= 0
    assert band.get_extents().get_points().max() <= 1


@cases(
    ("kind", "view", "x", "y"),
    [
        ("precision_recall", "dp_precision_recall", "recall", "precision"),
        ("calibration", "dp_calibration", "mean_score", "positive_rate"),
    ],
    quick=1,
    alone=True,
)
def test_views_of_a_curve(ctx: dpsql.Context, kind: str, view: str, x: str, y: str) -> None:
    release = replayed(ctx, "curve")
    rows = [row for row in getattr(ctx, view)(release).to_pylist() if row[y] is not None]
    line = release.plot(kind).lines[-1]
    assert list(line.get_xdata()) == [row[x] for row in rows]
    assert list(line.get_ydata()) == [row[y] for row in rows]


def test_scores_stand_over_their_noise(ctx: dpsql.Context) -> None:
    release = replayed(ctx, "filter")
    ax = release.plot()
    assert [text.get_text() for text in ax.get_yticklabels()] == release.features
    points = ax.containers[0].lines[0]
    assert points.get_xdata().tolist() == release.value.column("score").to_pylist()
    low, high = ax.containers[0].lines[2][0].get_segments()[0][:, 0]
    assert (high - low) / 2 == pytest.approx(1.96 * release.result["std_error"])


@pytest.mark.long
def test_coefficients_by_size(ctx: dpsql.Context) -> None:
    release = replayed(ctx, "bayes")
    sizes = np.abs(release.plot().containers[0].lines[0].get_xdata())
    assert sizes.tolist() == sorted((abs(row["coefficient"]) for row in release.value.to_pylist()[1:]), reverse=True)


def test_draws_where_it_is_told(ctx: dpsql.Context) -> None:
    from matplotlib.figure import Figure

    ax = Figure().add_subplot()
    assert replayed(ctx, "curve").plot(ax=ax) is ax


@pytest.mark.long
@pytest.mark.parametrize(("release", "kind"), [("top", None), ("curve", "scores"), ("filter", "roc")])
def test_no_such_picture(ctx: dpsql.Context, release: str, kind: str | None) -> None:
    with pytest.raises(ParameterError, match="P034" if kind is None else "P005"):
        replayed(ctx, release).plot(kind)


def test_without_matplotlib(ctx: dpsql.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ParameterError, match=r"pip install 'dpsql\[plot\]'"):
        replayed(ctx, "curve").plot()


def test_budgets(ctx: dpsql.Context) -> None:
    ax = plot_budgets(ctx.ledger.budgets())
    texts = [text.get_text() for text in ax.texts]
    assert texts == ["s: epsilon 2 of 9", "w: epsilon 15 spent, without a limit"]
    assert ax.patches[1].get_width() == pytest.approx(2 / 9)
    with pytest.raises(ParameterError, match="P034"):
        plot_budgets([])


@pytest.mark.long
def test_empty_curve_and_selection() -> None:
    with dpsql.Context() as ctx:
        ctx.sql("CREATE TABLE s (y BOOLEAN, p DOUBLE)")
        curve = ctx.dp_roc("s", label="y", score="p", epsilon=1)
        for kind in ("roc", "precision_recall", "calibration"):
            curve.plot(kind)
    with pytest.raises(ParameterError, match="P034"):
        plot_release("dp_score_filter", {}, [])


def _contrast(one: str, other: str) -> float:
    def luminance(colour: str) -> float:
        channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("ground", ["#ffffff", "#121212"])
def test_can_be_read_on_both_grounds(ground: str) -> None:
    assert _contrast(INK, ground) >= 4
    assert min(_contrast(LINE, ground), _contrast(SECOND, ground)) >= 3
    assert _contrast(GRID, ground) >= 2


@pytest.mark.long
@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_the_command(database: Path, tmp_path: Path, ending: str) -> None:
    output = tmp_path / f"roc.{ending}"
    done = CliRunner().invoke(main, ["plot", "curve", "--db", str(database), "-o", str(output)])
    assert done.exit_code == 0, done.output
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending]
    assert output.read_bytes().startswith(start)
    if ending == "svg":  # texts stay texts
        assert "true positive rate" in output.read_text()


@cases(
    ("arguments", "message"),
    [
        (["nothing"], "P030"),
        (["999"], "P030"),
        (["curve", "--kind", "pie"], "P005"),
        (["top"], "P034"),
        ([], "give the name"),
        (["curve", "--budget"], "give the name"),
    ],
)
def test_the_command_refuses(database: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    output = tmp_path / "x.png"
    done = CliRunner().invoke(main, ["plot", *arguments, "--db", str(database), "-o", str(output)])
    assert done.exit_code != 0
    assert message in done.output
    assert not output.exists()


@pytest.mark.long
def test_the_command_draws_budgets_and_numbers(database: Path, tmp_path: Path) -> None:
    for arguments in (["--budget"], ["3", "--kind", "calibration"]):
        output = tmp_path / f"{arguments[0]}.png"
        done = CliRunner().invoke(main, ["plot", *arguments, "--db", str(database), "-o", str(output)])
        assert done.exit_code == 0, done.output
        assert output.stat().st_size > 1000


@pytest.mark.long
def test_only_known_endings(ctx: dpsql.Context, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="P058"):
        save(replayed(ctx, "curve").plot(), tmp_path / "roc.docx")


@pytest.mark.long
def test_a_matrix_has_a_square_per_pair() -> None:
    with dpsql.Context() as ctx:
        ctx.sql("CREATE TABLE m AS SELECT i % 10 AS a, i % 7 AS b, 3 AS c FROM range(5000) AS r(i)")
        release = ctx.dp_correlation("m", features=["a", "b", "c"], lower=0, upper=10, epsilon=5, delta=1e-6)
        ax = release.plot()
        assert [text.get_text() for text in ax.get_xticklabels()] == ["a", "b", "c"]
        [image] = ax.images
        np.testing.assert_array_equal(np.ma.filled(image.get_array(), np.nan), release.matrix())
        assert image.get_clim() == (-1, 1)
        one = ctx.dp_covariance("m", features=["a"], lower=0, upper=10, epsilon=5)
        assert one.plot("matrix").images

"""Draw releases and their noise, at no privacy cost.

Matplotlib draws them (``pip install 'dpsql[plot]'``); the first picture imports it. The background is transparent, and
ink and colours are light enough for a dark page and dark enough for a white one.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Doubles
from dpsql.contract.covers import ALL_ROWS
from dpsql.contract.parameters import show
from dpsql.errors import ParameterError
from dpsql.released.covariance import MATRICES, MatrixEstimate
from dpsql.released.crosstab import Crosstab, margins_of
from dpsql.released.curves import RocCounts, area_under, calibration, precision_recall, rate_errors
from dpsql.released.histogram import Histogram, histogram_counts
from dpsql.released.intervals import call_verdict
from dpsql.released.model import by_feature
from dpsql.released.results import Curve, Fitted, Ranked
from dpsql.released.shapes import ROC, SET_VERDICT, VERDICT, Rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.typing import RcKeyType

    from dpsql.ledger.rows import BudgetRow
# Contrast with white and with a page of #121212 is at least 4 for ink, 3 for colours.
INK, LINE, SECOND, GRID = "#757c87", "#2f80c8", "#c8742f", "#9aa1ab"
# Width of a column of print, in inches.
_SIZE = (3.4, 3.0)
_BAND = 1.96
_MOST_BARS = 30
_MOST_SHAPES = 9
# Characters of a caption line.
_CAPTION = 64

_STYLE: dict[RcKeyType, object] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",
}


_Draw = Callable[["Axes"], None]


def plot_release(
    function: str,
    result: Any,
    rows: Rows,
    *,
    covers: str | None = None,
    kind: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a release.

    Parameters
    ----------
    function : str
        The SQL function that made it.
    result : object
        Its result in the ledger.
    rows : sequence of mapping
        Its tidy rows.
    covers : str, optional
        Which rows the numbers cover; the caption says it unless they cover all rows.
    kind : str, optional
        Which picture, if there are several: ``'roc'`` (the default), ``'precision_recall'`` or ``'calibration'`` of a
        ROC curve; of an additive model ``'shapes'`` (the default), the effect of each feature; of a model with bounds
        ``'effects'`` (else the default), on one scale for all features, or ``'coefficients'``; the name of an
        aggregate, or ``'avg of days'`` if there are several targets.
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    ax : matplotlib Axes

    Raises
    ------
    ParameterError
        P005, P034, P059: there is no such picture of this release, or Matplotlib is missing.
    """
    kinds = _kinds(function, result, rows)
    if not kinds:
        raise ParameterError("P034", f"a release of {function} holds no numbers to draw. Read its rows.")
    if kind is not None and kind not in kinds:
        raise ParameterError("P005", f"kind must be one of {', '.join(kinds)}; got {show(kind)}.")
    words = _verdict(function, rows), None if covers == ALL_ROWS else covers
    return _draw(partial(_with_words, kinds[kind or next(iter(kinds))], *words), ax)


def _verdict(function: str, rows: Rows) -> str | None:
    """Return the verdict of the call; None if no row has one."""
    ends = ROC.ends if function == "dp_roc" else 0
    judged = rows[ends : len(rows) - ends]
    return call_verdict(*([row.get(name) for row in judged] for name in (SET_VERDICT, VERDICT)))


def _with_words(draw: _Draw, verdict: str | None, covers: str | None, ax: Axes) -> None:
    """Draw, and write the verdict and the covered rows in the caption."""
    draw(ax)
    head = "; ".join(filter(None, [ax.get_title(), None if verdict is None else f"verdict: {verdict}"]))
    lines = [head] if head else []
    if verdict is not None or covers is not None:
        ax.set_title("\n".join([*lines, *textwrap.wrap(covers or "", _CAPTION)]), parse_math=False)


def plot_budgets(budgets: Sequence[BudgetRow], *, ax: Axes | None = None) -> Axes:
    """Draw each dataset's spent and remaining budget; arguments and errors as for `plot_release`."""
    if not budgets:
        raise ParameterError("P034", "the ledger holds no dataset yet. Release something first.")
    return _draw(partial(_budget, budgets), ax)


def save(ax: Axes, path: Path) -> None:
    """Write the figure of `ax` to a file, in the format of the file's ending."""
    figure: Figure = ax.figure  # type: ignore[assignment]
    supported = figure.canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in supported:
        raise ParameterError("P058", f"output must end in .png, .svg or .pdf; got {show(path.name)}.")
    with _matplotlib().rc_context(_STYLE):
        figure.savefig(path, dpi=200, bbox_inches="tight")


def svg(ax: Axes, name: str) -> str:
    """Return the figure of `ax` as an SVG element, the same text every time; `name` makes its IDs unique."""
    file, figure = io.StringIO(), ax.figure
    with _matplotlib().rc_context({**_STYLE, "svg.hashsalt": name}):
        figure.savefig(file, format="svg", bbox_inches="tight", metadata={"Date": None})  # type: ignore[union-attr]
    return file.getvalue()[file.getvalue().index("<svg") :]


def _kinds(function: str, result: Any, rows: Rows) -> dict[str, _Draw]:
    """Return the pictures of a function's release, the usual one first."""
    if function == "dp_roc":
        return {
            "roc": partial(_roc, result, rows),
            "precision_recall": partial(_precision_recall, result),
            "calibration": partial(_calibration, result),
        }
    if function in MATRICES:
        return {"matrix": partial(_matrix, MATRICES[function](result))}
    if function == "dp_synthetic":
        return {"pairs": partial(_pairs, rows)} if rows else {}
    if function == "dp_histogram":
        return {"histogram": partial(_histogram, result)}
    if function == "dp_crosstab":
        return {"heat_map": partial(_heat_map, result)} if [0, 1] in result["shown"] else {}
    columns = rows[0].keys() if rows else ()
    if "aggregate" in columns:
        return _aggregate_kinds(rows)
    if "score" in columns and rows[0]["score"] is not None:
        return {"scores": partial(_scores, result, rows)}
    if "coefficient" in columns and rows[0]["coefficient"] is not None:
        shapes = {"shapes": partial(_shapes, result)} if result.get("steps") else {}
        effects = {"effects": partial(_effects, result, rows)} if result["bounds"] else {}
        return {**shapes, **effects, "coefficients": partial(_coefficients, rows)}
    return {}


def _aggregate_kinds(rows: Rows) -> dict[str, _Draw]:
    """Return a picture for each aggregate, of each target if there are several."""
    pairs = list(dict.fromkeys((row["target"], row["aggregate"]) for row in rows))
    has_many_targets = len({target for target, _ in pairs}) > 1
    return {
        f"{aggregate} of {target}" if has_many_targets else aggregate: partial(
            _groups, [row for row in rows if (row["target"], row["aggregate"]) == (target, aggregate)]
        )
        for target, aggregate in pairs
    }


def _matplotlib() -> Any:
    """Return Matplotlib, which is optional and slow to load."""
    try:
        import matplotlib.backends.backend_agg
        import matplotlib.colors
        import matplotlib.figure
    except ImportError:
        raise ParameterError("P059", "pictures need Matplotlib. Run pip install 'dpsql[plot]'.") from None
    return matplotlib


def _draw(draw: _Draw, ax: Axes | None) -> Axes:
    matplotlib = _matplotlib()
    with matplotlib.rc_context(_STYLE):
        if ax is None:
            figure = matplotlib.figure.Figure(figsize=_SIZE, layout="constrained")
            matplotlib.backends.backend_agg.FigureCanvasAgg(figure)
            ax = figure.add_subplot()
        draw(ax)
        handles, _ = ax.get_legend_handles_labels()
        if handles:
            ax.legend()
    return ax


def _unit_square(ax: Axes, x: str, y: str) -> None:
    ax.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), xlabel=x, ylabel=y, aspect="equal")


def _roc(result: Curve, rows: Rows, ax: Axes) -> None:
    fpr, tpr = (np.array([row[name] for row in rows]) for name in ("fpr", "tpr"))
    false, true = (
        np.concatenate([[0.0], np.minimum(_BAND * part, 1.0)]) for part in rate_errors(RocCounts.from_record(result))
    )
    false[-1] = true[-1] = 0.0
    above = np.clip(fpr - false, 0, 1), np.clip(tpr + true, 0, 1)
    below = np.clip(fpr + false, 0, 1), np.clip(tpr - true, 0, 1)
    outline = [np.concatenate([upper, lower[::-1]]) for upper, lower in zip(above, below, strict=True)]
    ax.plot([0, 1], [0, 1], color=GRID, linewidth=0.8, linestyle=":")
    ax.fill(*outline, color=LINE, alpha=0.25, linewidth=0, label="95 % of the noise")
    ax.plot(fpr, tpr, color=LINE, linewidth=1.4, marker="o", markersize=2, label=f"AUC {area_under(fpr, tpr):.3f}")
    _unit_square(ax, "false positive rate", "true positive rate")


def _precision_recall(result: Curve, ax: Axes) -> None:
    points = precision_recall(result)
    recall = [row["recall"] for row in points if row["precision"] is not None]
    precision = [row["precision"] for row in points if row["precision"] is not None]
    ax.plot(recall, precision, color=LINE, linewidth=1.4, marker="o", markersize=2)
    _unit_square(ax, "recall", "precision")


def _calibration(result: Curve, ax: Axes) -> None:
    bins = [row for row in calibration(result) if row["positive_rate"] is not None]
    most = max((row["rows"] for row in bins), default=1.0)
    scores = [row["mean_score"] for row in bins]
    rates = [row["positive_rate"] for row in bins if row["positive_rate"] is not None]
    low, high = result["thresholds"][-1], result["upper"]
    if low >= 0 and high <= 1:  # scores that may be probabilities
        ax.plot([low, high], [low, high], color=GRID, linewidth=0.8, linestyle=":")
    ax.plot(scores, rates, color=LINE, linewidth=0.8)
    ax.scatter(scores, rates, s=[4 + 36 * row["rows"] / most for row in bins], color=LINE, linewidth=0, alpha=0.8)
    ax.set(xlabel="score (area of a point: rows)", ylabel="rate of positives", ylim=(-0.02, 1.02))


def _bars(
    ax: Axes,
    names: Sequence[str],
    values: Sequence[float],
    errors: float | Sequence[float] | Doubles | None,
    label: str,
) -> None:
    """Draw one line per name, the first on top."""
    positions = np.arange(len(names))[::-1]
    _grow(ax, len(names))
    ax.axvline(0, color=GRID, linewidth=0.8)
    ax.errorbar(values, positions, xerr=errors, fmt="o", color=LINE, markersize=3, linewidth=1, capsize=1.5)
    ax.set_yticks(positions, [name if len(name) <= 24 else name[:23] + "…" for name in names], parse_math=False)
    ax.set_xlabel(label)


def _groups(rows: Rows, ax: Axes) -> None:
    """Draw one aggregate of every group, with its interval."""
    bars = [row for row in rows if row["value"] is not None][:_MOST_BARS]
    names = [", ".join(map(_key, list(row.values())[: list(row).index("target")])) or "all rows" for row in bars]
    values, ends = ([row["value"] for row in bars], [[row[end] for row in bars] for end in ("lower", "upper")])
    errors = np.abs(np.array(ends, dtype=np.float64) - np.array(values, dtype=np.float64))
    target = "" if rows[0]["target"] is None else f" of {rows[0]['target']}"
    _bars(ax, names, values, errors, f"{rows[0]['aggregate']}{target}")
    if len(rows) > len(bars):
        ax.set_title(f"first {len(bars)} of {len(rows)} groups")


def _key(value: object) -> str:
    return "NULL" if value is None else str(value)


def _scores(result: Ranked, rows: Rows, ax: Axes) -> None:
    bars = rows[:_MOST_BARS]
    error = result.get("std_error")
    values = [row["score"] for row in bars]
    _bars(ax, [row["feature"] for row in bars], values, None if error is None else _BAND * error, "noisy score")
    threshold = result.get("threshold")
    if threshold is not None:
        ax.axvline(threshold, color=SECOND, linewidth=1, linestyle="--", label="threshold")
    if len(rows) > len(bars):
        ax.set_title(f"first {len(bars)} of {len(rows)} features")


def _effects(result: Fitted, rows: Rows, ax: Axes) -> None:
    """Draw how far each feature moves a prediction from its lower to its upper bound, in one unit."""
    spans = [0.0 if pair is None else pair[1] - pair[0] for pair in result["bounds"] or ()]
    scaled = [
        {**row, **{name: row[name] and row[name] * span for name in ("coefficient", "std_error")}}
        for row, span in zip(rows[1:], spans, strict=True)
    ]
    unit = "log odds" if "levels" in result else "prediction"
    _by_size(scaled or rows, f"change of the {unit}, lower to upper bound", ax)


def _shapes(result: Fitted, ax: Axes) -> None:
    """Draw the shapes of the features with the largest effects, with 95 % of the noise of the steps, on one scale."""
    features = by_feature(result)
    panels = features[:_MOST_SHAPES]
    across = min(3, len(panels))
    down = -(-len(panels) // across)
    ax.set_axis_off()
    half = max((adds for _, adds, _ in panels), default=1.0) / 2 * 1.1
    for number, (name, _, of) in enumerate(panels):
        row, column = divmod(number, across)
        width, height = 1 / across, 1 / down
        box = (column * width + 0.06, 1 - (row + 1) * height + 0.1 * height, width - 0.08, 0.72 * height)
        part = ax.inset_axes(box)
        positions = np.array([end for piece in of for end in (piece["lower"], piece["upper"])])
        # Centre each shape: the intercept has the rest.
        values = np.array([end for piece in of for end in (piece["at_lower"], piece["at_upper"])])
        centre = (values.max() + values.min()) / 2
        error = _BAND * np.repeat([piece["std_error"] for piece in of], 2)
        part.fill_between(
            positions, values - centre - error, values - centre + error, color=LINE, alpha=0.25, linewidth=0
        )
        part.plot(positions, values - centre, color=LINE, linewidth=1.2)
        part.axhline(0, color=GRID, linewidth=0.8)
        part.set_ylim(-half, half)
        part.set_title(name if len(name) <= 24 else name[:23] + "…", fontsize=7, parse_math=False)
        part.tick_params(labelsize=6)
    if len(features) > len(panels):
        ax.set_title(f"the {len(panels)} of {len(features)} features that add most")


def _coefficients(rows: Rows, ax: Axes) -> None:
    _by_size(rows[1:] or rows, "coefficient", ax)


def _by_size(rows: Rows, label: str, ax: Axes) -> None:
    """Draw coefficients with their noise, the largest first."""
    ranked = sorted(rows, key=lambda row: -abs(row["coefficient"]))
    bars = ranked[:_MOST_BARS]
    errors = [row["std_error"] for row in bars]
    bands = None if None in errors else [_BAND * error for error in errors]
    _bars(ax, [row["term"] for row in bars], [row["coefficient"] for row in bars], bands, label)
    if len(ranked) > len(bars):
        ax.set_title(f"largest {len(bars)} of {len(ranked)} coefficients")


def _matrix(estimate: MatrixEstimate, ax: Axes) -> None:
    """Draw a matrix as colours around 0; NULL is grey."""
    count, cells = len(estimate.names), np.ma.masked_invalid(estimate.value)
    most = float(abs(cells).max() or 1.0)
    colours = (
        _matplotlib()
        .colors.LinearSegmentedColormap.from_list("dpsql", [SECOND, "#ffffff", LINE])
        .with_extremes(bad=GRID)
    )
    image = ax.imshow(cells, cmap=colours, vmin=-most, vmax=most, interpolation="nearest")
    ax.figure.colorbar(image, ax=ax, shrink=0.8)
    if count <= _MOST_BARS:
        _name_both(ax, estimate.names)
        return
    ax.set(xticks=[], yticks=[], title=f"{count} features")


def _name_both(ax: Axes, names: Sequence[str]) -> None:
    """Write the names of rows and columns of a square."""
    short = [name if len(name) <= 12 else name[:11] + "…" for name in names]
    ax.set_xticks(range(len(names)), short, rotation=90, parse_math=False)
    ax.set_yticks(range(len(names)), short, parse_math=False)


def _pairs(rows: Rows, ax: Axes) -> None:
    """Draw the error of each pair of columns of a synthetic table, with a point on measured pairs."""
    names = list(dict.fromkeys(row[side] for row in rows for side in ("column_1", "column_2")))
    errors = np.full((len(names), len(names)), np.nan)
    measured = []
    for row in rows:
        cell = names.index(row["column_2"]), names.index(row["column_1"])
        errors[cell] = np.nan if row["error"] is None else row["error"]
        if row["fit"] == "measured":
            measured.append(cell)
    if not np.isnan(errors).all():
        colours = _matplotlib().colors.LinearSegmentedColormap.from_list("dpsql", ["#ffffff", SECOND])
        most = max(0.1, float(np.nanmax(errors)))
        image = ax.imshow(np.ma.masked_invalid(errors), cmap=colours, vmin=0, vmax=most, interpolation="nearest")
        ax.figure.colorbar(image, ax=ax, shrink=0.8, label="share of rows that is off")
    down, across = (np.array(measured, dtype=int).reshape(-1, 2).T[side] for side in (0, 1))
    ax.scatter(across, down, s=7, color=LINE, label="measured")
    ax.set(xlim=(-0.5, len(names) - 0.5), ylim=(len(names) - 0.5, -0.5))
    if len(names) <= _MOST_BARS:
        _name_both(ax, names)
    else:
        ax.set(xticks=[], yticks=[], title=f"{len(names)} columns")


def _histogram(result: Histogram, ax: Axes) -> None:
    """Draw the bins of the first group; a bin with an open end is as wide as its neighbour."""
    counts, last = histogram_counts(result), len(result["ends"]) - 1
    count, low, high = (part[0, :last] for part in (counts.count, counts.count_lower, counts.count_upper))
    ends = _closed(result["ends"])
    reach = np.abs(np.stack([count - low, high - count]))
    ax.bar(ends[:-1], count, np.diff(ends), align="edge", color=LINE, alpha=0.5, edgecolor=LINE, linewidth=0.5)
    middles = (ends[:-1] + ends[1:]) / 2
    covered = f"{result['confidence']:.0%} of the noise"
    ax.errorbar(middles, count, yerr=reach, fmt="none", ecolor=INK, linewidth=0.8, label=covered)
    ax.set(xlabel="value", ylabel="rows")
    groups = len(counts.count)
    if groups > 1:
        ax.set_title(f"{_group_label(result, 0)} (first of {groups} groups)", parse_math=False)


def _heat_map(result: Crosstab, ax: Axes) -> None:
    """Draw the table of the first two columns, with its numbers if there is room."""
    [margin] = [table for table in margins_of(result) if table.axes == (0, 1)]
    ax.imshow(margin.count, cmap="Blues", aspect="auto", alpha=0.8)
    for axis, name, keys in zip((ax.yaxis, ax.xaxis), result["columns"], result["keys"], strict=False):
        axis.set_ticks(range(len(keys)), ["NULL" if key is None else key[:24] for key in keys], parse_math=False)
        axis.set_label_text(name, parse_math=False)
    if margin.count.size <= _MOST_BARS:
        middle = (margin.count.min() + margin.count.max()) / 2
        for cell, count in np.ndenumerate(margin.count):
            color = "white" if count > middle else INK
            ax.text(cell[1], cell[0], f"{count:.0f}", ha="center", va="center", size=7, color=color)
    ax.set_title(f"rows, ± {margin.reach:.3g} ({result['confidence']:.0%} of the noise)")


def _closed(ends: Sequence[float | None]) -> NDArray[np.float64]:
    """Return the ends of bins, with numbers for open ends."""
    edges = [end for end in ends if end is not None]
    first, last = (edges[1] - edges[0], edges[-1] - edges[-2]) if len(edges) > 1 else (1.0, 1.0)
    below = [edges[0] - first] if ends[0] is None else []
    above = [edges[-1] + last] if ends[-1] is None else []
    return np.array([*below, *edges, *above])


def _group_label(result: Histogram, group: int) -> str:
    """Return the key of a group in words."""
    return ", ".join("NULL" if column[group] is None else str(column[group]) for column in result["keys"])


def _budget(budgets: Sequence[BudgetRow], ax: Axes) -> None:
    """Draw the spent share of the budget: of epsilon if it has one, else of rho."""
    bars = budgets[-_MOST_BARS:]
    _grow(ax, 2 * len(bars))
    for position, row in zip(range(len(bars))[::-1], bars, strict=True):
        in_rho = row.epsilon_spent is None or (row.epsilon_remaining is None and row.rho_remaining is not None)
        measure = "rho" if in_rho else "epsilon"
        spent, rest = getattr(row, f"{measure}_spent") or 0.0, getattr(row, f"{measure}_remaining")
        title = row.dataset if row.block is None else f"{row.dataset} {row.block}"
        label = f"{title}: {measure} {spent:g} " + (
            "spent, without a limit" if rest is None else f"of {spent + rest:g}"
        )
        ax.text(0, position + 0.34, label, parse_math=False, size=7)
        if rest is not None:
            ax.barh(position, 1, color=GRID, alpha=0.35, height=0.4)
            ax.barh(position, spent / (spent + rest) if spent + rest > 0 else 0.0, color=LINE, height=0.4)
    ax.set(xlim=(0, 1), ylim=(-0.5, len(bars)), xlabel="share of the budget that is spent", yticks=[])


def _grow(ax: Axes, lines: int) -> None:
    """Make a new figure high enough for this number of lines."""
    figure: Figure = ax.figure  # type: ignore[assignment]
    if figure.get_size_inches().tolist() == list(_SIZE):
        figure.set_size_inches(_SIZE[0], max(_SIZE[1] / 2, 0.16 * lines + 0.6))

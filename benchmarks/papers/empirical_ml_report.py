"""Tables and figures of the study of private empirical machine learning, from its ``filters.csv`` and ``curves.csv``.

    python benchmarks/papers/empirical_ml_report.py [DIR]

Written beside them: ``table.md`` and, with matplotlib, the figures.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dp_sis_report import markdown, save_small

FILTER_COLUMNS = ("set", "kind", "filter", "epsilon", "measure", "folds", "mean", "std_error")
CURVE_COLUMNS = (
    "set",
    "scorer",
    "true_auc",
    "method",
    "epsilon",
    "curves",
    "median_of_ten",
    "median",
    "lower_quartile",
    "upper_quartile",
    "auc_error",
)
TITLES = {"sms_spam": "SMS", "tweets_sentiment140_7304": "tweets"}
CLASSIFIERS = {"naive_bayes": "naive Bayes", "logistic_regression": "logistic regression"}
# Table 1 of the paper, for epsilon 1, 0.5, 0.25, 0.1: median of ten areas between the curves.
PRINTED_EPSILONS = (1.0, 0.5, 0.25, 0.1)
PRINTED = {
    "sms_spam": {
        "Laplace": (0.218, 0.343, 0.372, 0.442),
        "FixedSpace": (0.034, 0.042, 0.079, 0.146),
        "RecursiveMedians": (0.023, 0.029, 0.054, 0.092),
    },
    "tweets_sentiment140_7304": {
        "Laplace": (0.073, 0.108, 0.211, 0.340),
        "FixedSpace": (0.065, 0.094, 0.151, 0.229),
        "RecursiveMedians": (0.055, 0.063, 0.102, 0.203),
    },
}
DEFAULTS = ("recursive", "fixed", "smooth_medians")
# (label in filters.csv, colour, dashes) of the figures.
DRAWN = (
    ("all words gaussian", "#000000", "-"),
    ("total_count gaussian k = 100", "#08519c", "-"),
    ("difference_count gaussian k = 100", "#6baed6", "-"),
    ("information_gain gaussian k = 100", "#d94801", "-"),
    ("difference_count gaussian ≥ 50", "#006d2c", "-"),
    ("difference_count laplace ≥ 50", "#74c476", "-"),
    ("difference_count svt ≥ 50", "#9e9ac8", "-"),
    ("difference_count cluster", "#e377c2", "-"),
    ("difference_count one_shot k = 20", "#8c564b", "-"),
    ("total_count ptt ≥ 50", "#969696", "--"),
    ("difference_count printed cluster", "#969696", ":"),
)
REFERENCES = (" exact", " ptt", " noisycut", " printed cluster")

Key = tuple[str, str, str, str, str]


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def number(text: str) -> float:
    return float(text) if text else math.nan


def show(value: float, digits: int = 3) -> str:
    return "" if math.isnan(value) else f"{value:.{digits}f}"


def marked(label: str) -> str:
    """Return the name of a filter, with the warning that it needs."""
    return f"NOT PRIVATE: {label}" if any(text in label for text in REFERENCES) else label


class Filters:
    """The means over the folds, looked up by setting; epsilon is '' without noise."""

    def __init__(self, lines: Sequence[dict[str, str]]) -> None:
        self._lines: dict[Key, dict[str, str]] = {
            (line["set"], line["kind"], line["filter"], line["epsilon"], line["measure"]): line for line in lines
        }
        self.sets = list(dict.fromkeys(line["set"] for line in lines))
        self.epsilons = [text for text in dict.fromkeys(line["epsilon"] for line in lines) if text]

    def labels(self, name: str, kind: str) -> list[str]:
        """Return the filters of a kind of line, in the order of the study."""
        return list(dict.fromkeys(key[2] for key in self._lines if key[:2] == (name, kind)))

    def measures(self, name: str, kind: str, label: str) -> list[str]:
        """Return what was measured of a filter."""
        return list(dict.fromkeys(key[4] for key in self._lines if key[:3] == (name, kind, label)))

    def value(self, name: str, kind: str, label: str, epsilon: str, measure: str, column: str = "mean") -> float:
        """Return one number; NaN where it was not measured."""
        return number(self._lines.get((name, kind, label, epsilon, measure), {}).get(column, ""))

    def row(self, name: str, kind: str, label: str, measure: str) -> list[float]:
        """Return the numbers of all epsilons."""
        return [self.value(name, kind, label, epsilon, measure) for epsilon in self.epsilons]


def bold(rows: Sequence[list[float]], eligible: Sequence[bool]) -> list[list[str]]:
    """Show numbers, the largest of the eligible ones of every column in bold."""
    best = [
        max((row[place] for row, fits in zip(rows, eligible, strict=True) if fits), default=math.nan)
        for place in range(len(rows[0]) if rows else 0)
    ]
    return [
        [f"**{show(value)}**" if fits and value == top else show(value) for value, top in zip(row, best, strict=True)]
        for row, fits in zip(rows, eligible, strict=True)
    ]


def fits(filters: Filters, name: str, measure: str) -> str:
    """Show what both classifiers reach after each filter."""
    labels = filters.labels(name, "fit")
    rows = [
        [value for classifier in CLASSIFIERS for value in filters.row(name, "fit", label, f"{classifier} {measure}")]
        for label in labels
    ]
    private = [marked(label) == label for label in labels]
    head = ["filter", *(f"{told}, ε = {epsilon}" for told in ("NB", "LR") for epsilon in filters.epsilons)]
    shown = bold(rows, private)
    ordered = sorted(range(len(labels)), key=lambda place: not private[place])
    return markdown(head, [[marked(labels[place]), *shown[place]] for place in ordered])


def without_noise(filters: Filters, name: str) -> str:
    rows = []
    for label in filters.labels(name, "noiseless"):
        cells = [filters.value(name, "noiseless", label, "", "features")]
        rows.append([label, f"{cells[0]:.0f}"])
        rows[-1] += [
            show(filters.value(name, "noiseless", label, "", f"{classifier} {measure}"))
            for classifier in CLASSIFIERS
            for measure in ("accuracy", "auc")
        ]
    return markdown(["filter", "words", "NB accuracy", "NB AUC", "LR accuracy", "LR AUC"], rows)


def words(filters: Filters, name: str) -> str:
    """Show F1 against the true words, and how many are found."""
    labels = filters.labels(name, "filter")
    private = [marked(label) == label for label in labels]
    shown = bold([filters.row(name, "filter", label, "f1") for label in labels], private)
    rows = []
    for place in sorted(range(len(labels)), key=lambda place: not private[place]):
        label = labels[place]
        true = filters.value(name, "filter", label, filters.epsilons[0], "true")
        found = [f"{value:.0f}" for value in filters.row(name, "filter", label, "features")]
        exact = [show(value, 2) for value in filters.row(name, "filter", label, "precision")]
        rows.append([marked(label), f"{true:.0f}", *shown[place], " / ".join(found), " / ".join(exact)])
    head = ["filter", "true", *(f"ε = {epsilon}" for epsilon in filters.epsilons), "words found", "precision"]
    return markdown(head, rows)


def settings(filters: Filters, name: str, measure: str) -> str:
    rows = []
    for label in filters.labels(name, "settings"):
        for told in filters.measures(name, "settings", label):
            if told.endswith(measure):
                values = [show(value) for value in filters.row(name, "settings", label, told)]
                rows.append([label, told.removesuffix(f" {measure}"), *values])
    return markdown(["filter", "fit", *(f"ε = {epsilon}" for epsilon in filters.epsilons)], rows)


class Curves:
    """The medians of ROC curves, looked up by setting."""

    def __init__(self, lines: Sequence[dict[str, str]]) -> None:
        self.lines = lines
        self.sets = list(dict.fromkeys(line["set"] for line in lines))
        self.scorers = list(dict.fromkeys(line["scorer"] for line in lines))
        self.methods = list(dict.fromkeys(line["method"] for line in lines))

    def row(self, name: str, scorer: str, method: str, column: str) -> list[float]:
        """Return the numbers of the printed epsilons; NaN where one was not measured."""
        found = {
            float(line["epsilon"]): number(line[column])
            for line in self.lines
            if (line["set"], line["scorer"], line["method"]) == (name, scorer, method)
        }
        return [found.get(epsilon, math.nan) for epsilon in PRINTED_EPSILONS]

    def true_auc(self, name: str, scorer: str) -> float:
        """Return the median area under the true curves."""
        return next(number(line["true_auc"]) for line in self.lines if (line["set"], line["scorer"]) == (name, scorer))


def areas(curves: Curves, name: str, scorer: str) -> str:
    """Show the area between the true and the private curve, beside the paper's."""
    rows = [[f"paper: {method}", *(show(value) for value in values)] for method, values in PRINTED[name].items()]
    for method in curves.methods:
        if method == "dp_auc":
            continue
        ten, all_of_them = (curves.row(name, scorer, method, column) for column in ("median_of_ten", "median"))
        rows.append([method, *(f"{show(a)} / {show(b)}" for a, b in zip(ten, all_of_them, strict=True))])
    return markdown(["method", *(f"ε = {epsilon}" for epsilon in PRINTED_EPSILONS)], rows)


def beaten(curves: Curves, scorer: str) -> str:
    """Say for each printed number of recursive medians how ours compares."""
    rows = []
    for name in curves.sets:
        for place, epsilon in enumerate(PRINTED_EPSILONS):
            printed = PRINTED[name]["RecursiveMedians"][place]
            cells = []
            for method in DEFAULTS:
                ten, value = (curves.row(name, scorer, method, column)[place] for column in ("median_of_ten", "median"))
                part = "" if math.isnan(value) else f"{value / printed:.2f}" if value < printed else "not beaten"
                cells += [f"{show(ten)} / {show(value)}", part]
            rows.append([TITLES[name], f"{epsilon}", show(printed), *cells])
    head = ["set", "ε", "printed"]
    for method in DEFAULTS:
        head += [method, "of it"]
    return markdown(head, rows)


def area_errors(curves: Curves) -> str:
    rows = []
    for name in curves.sets:
        for scorer in curves.scorers:
            for method in ("dp_auc", *DEFAULTS, "fixed, n_thresholds 7"):
                cells = [show(value, 4) for value in curves.row(name, scorer, method, "auc_error")]
                rows.append([TITLES[name], scorer, show(curves.true_auc(name, scorer)), method, *cells])
    head = ["set", "scores", "true AUC", "method", *(f"ε = {epsilon}" for epsilon in PRINTED_EPSILONS)]
    return markdown(head, rows)


def draw_filters(filters: Filters, folder: Path) -> None:
    """Draw accuracy, and F1, against epsilon."""
    epsilons = [float(text) for text in filters.epsilons]

    def lines(axis: Any, kind: str, name: str, measure: str) -> None:
        for label, colour, dashes in DRAWN:
            values = filters.row(name, kind, label, measure)
            if not all(math.isnan(value) for value in values):
                axis.plot(epsilons, values, dashes, color=colour, marker="o", markersize=3, label=marked(label))
        axis.set_xscale("log")
        axis.set_xticks(epsilons, filters.epsilons)
        axis.minorticks_off()
        axis.grid(alpha=0.3)

    def accuracy(axes: Any) -> None:
        for row, name in zip(axes, filters.sets, strict=True):
            for axis, (classifier, told) in zip(row, CLASSIFIERS.items(), strict=True):
                lines(axis, "fit", name, f"{classifier} accuracy")
                usual = filters.value(name, "noiseless", "all words exact", "", "majority")
                axis.axhline(usual, color="red", linewidth=0.8, label="majority")
                top = filters.value(name, "noiseless", "all words exact", "", f"{classifier} accuracy")
                axis.axhline(top, color="grey", linewidth=0.8, label="NOT PRIVATE: all words, no noise")
                axis.set_title(f"{TITLES[name]}, {told}: accuracy", fontsize=9)

    def overlap(axes: Any) -> None:
        for axis, name in zip(axes[0], filters.sets, strict=False):
            lines(axis, "filter", name, "f1")
            axis.set_title(f"{TITLES[name]}: F1 of the words, all of ε for the filter", fontsize=9)

    sheet_of(folder / "accuracy.png", len(filters.sets), 2, accuracy)
    sheet_of(folder / "f1.png", 1, max(2, len(filters.sets)), overlap)


def draw_curves(curves: Curves, folder: Path) -> None:
    """Draw the area between true and private curves against epsilon, with quartiles of the default."""
    looks = {
        "recursive": "#1f5fff",
        "fixed": "#2ca02c",
        "fixed, n_thresholds 7": "#98df4a",
        "smooth_medians": "#ff8c00",
        "NOT PRIVATE Laplace on rows at each score": "#969696",
        "NOT PRIVATE medians as printed, 4 levels": "#525252",
    }

    def panels(axes: Any) -> None:
        for axis, name in zip(axes[0], curves.sets, strict=False):
            for method, colour in looks.items():
                dashes = "--" if method.startswith("NOT") else "-"
                values = curves.row(name, "logistic", method, "median")
                axis.plot(PRINTED_EPSILONS, values, dashes, color=colour, marker="o", markersize=3, label=method)
            low, high = (curves.row(name, "logistic", "recursive", f"{side}_quartile") for side in ("lower", "upper"))
            axis.fill_between(PRINTED_EPSILONS, low, high, color="#1f5fff", alpha=0.15)
            for (method, values), marker in zip(PRINTED[name].items(), "xsD", strict=True):
                axis.plot(PRINTED_EPSILONS, values, ":", color="red", marker=marker, label=f"paper: {method}")
            axis.set_xscale("log")
            axis.set_yscale("log")
            axis.set_xticks(PRINTED_EPSILONS, [str(epsilon) for epsilon in PRINTED_EPSILONS])
            axis.minorticks_off()
            axis.set_title(f"{TITLES[name]}: median area between the curves (band: quartiles)", fontsize=9)
            axis.grid(alpha=0.3)

    sheet_of(folder / "roc.png", 1, 2, panels)


def sheet_of(path: Path, rows: int, columns: int, draw: Callable[[Any], None]) -> None:
    """Draw panels above one legend."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    sheet, axes = pyplot.subplots(
        rows, columns, figsize=(5.6 * columns, 3.3 * rows + 1.2), squeeze=False, layout="constrained"
    )
    draw(axes)
    handles, labels = axes[0][0].get_legend_handles_labels()
    sheet.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)
    for axis in axes.flat:
        axis.set_xlabel("ε")
    save_small(sheet, path)
    pyplot.close(sheet)


def write_report(folder: Path, *, figures: bool = True) -> None:
    """Write the tables and the figures from what the two files hold."""
    filters, curves = Filters(read(folder / "filters.csv")), Curves(read(folder / "curves.csv"))
    text = ["# Private empirical machine learning on texts: tables"]
    text.append("Written by `benchmarks/papers/empirical_ml.py`; read `benchmarks/papers/README.md` first.")
    for name in filters.sets:
        title = TITLES[name]
        usual = show(filters.value(name, "noiseless", "all words exact", "", "majority"))
        text += [
            f"## {title}: accuracy of naive Bayes (NB) and logistic regression (LR)",
            f"Mean over folds; majority {usual}. Half of ε for the filter (a fifth for ptt and printed cluster), "
            "all of it for the fit to all words. Bold: the best private one. A filter that found nothing predicts the "
            "majority. `svt`: 20 words at most. After a filter that is NOT PRIVATE comes a private fit.",
            fits(filters, name, "accuracy"),
            f"## {title}: area under the curve of the same predictions",
            fits(filters, name, "auc"),
            f"## {title}: without any noise, NOT PRIVATE",
            without_noise(filters, name),
            f"## {title}: F1 against the words that the filter would find without noise, all of ε for the filter",
            words(filters, name),
            f"## {title}: settings of the fits, accuracy",
            settings(filters, name, "accuracy"),
        ]
    text += [
        "## Table 1: the area between true and private ROC curves, and recursive medians as printed in the paper",
        "Median of ten (one curve per fold, of the defaults one call in SQL) / median of all. Scores of logistic "
        "regression without noise.",
        beaten(curves, "logistic"),
    ]
    for name in curves.sets:
        for scorer in curves.scorers:
            text += [
                f"## {TITLES[name]}, scores of {scorer}: true AUC {show(curves.true_auc(name, scorer))}",
                areas(curves, name, scorer),
            ]
    text += ["## Median error of the area under the curve: dp_auc, and the area under a private curve"]
    text += [area_errors(curves)]
    (folder / "table.md").write_text("\n\n".join(text) + "\n")
    if figures:
        draw_filters(filters, folder)
        draw_curves(curves, folder)


if __name__ == "__main__":
    default = Path(__file__).resolve().parent / "results" / "empirical_ml"
    write_report(Path(sys.argv[1]) if len(sys.argv) > 1 else default)

"""Tables and the figure of the regression study, from its ``results.jsonl`` and ``tuning.jsonl``.

    python benchmarks/papers/dp_kendall_report.py [DIR]

Written beside them: ``table.md``, ``medians.csv`` and, with matplotlib, ``r2.png``; ``tuning.md`` from the latter.
"""

from __future__ import annotations

import csv
import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from dp_sis_report import markdown, save_small

# The paper's columns, in its order.
PAPER_COLUMNS = ("BAS", "Tukey", "L-BAS", "L-Tukey", "K-BAS", "K-Tukey")
MORE_COLUMNS = ("AdaSSP", "L-AdaSSP", "K-AdaSSP")
# The paper: sets with R² > 0, of rank 1, of rank 1 or 2; for k = 5 of 25 sets, for k = 10 of 21.
PAPER_COUNTS = {
    5: {
        "BAS": (4, 2, 2),
        "Tukey": (1, 0, 1),
        "L-BAS": (5, 6, 8),
        "L-Tukey": (10, 3, 15),
        "K-BAS": (7, 2, 7),
        "K-Tukey": (14, 12, 17),
    },
    10: {
        "BAS": (1, 3, 4),
        "Tukey": (0, 0, 0),
        "L-BAS": (4, 7, 11),
        "L-Tukey": (4, 5, 7),
        "K-BAS": (4, 3, 11),
        "K-Tukey": (6, 3, 9),
    },
}
PAPER_SETS = {5: 25, 10: 21}
# The paper's median R² of K-Tukey, k = 5, where the set is also here.
PAPER_K_TUKEY = {"elevators": 0.31, "sulfur": 0.37, "ailerons": 0.66, "diamonds": 0.88, "cpu_act": 0.10}
SUBSTITUTES = ("black_friday_sample100k",)
STYLES = {
    "BAS": ("#3182bd", "o"),
    "AdaSSP": ("#31a354", "s"),
    "Tukey": ("#d94801", "^"),
}
TUNED = {
    "Budgets and public bounds": frozenset({"epsilon", "bounds"}),
    "Longest row": frozenset({"row_norm", "bounds"}),
    "Share of private bounds": frozenset({"bounds_share"}),
    "Rounds of boosting, and how they share the budget": frozenset({"rounds", "split"}),
    "Rounds of boosting at other budgets": frozenset({"rounds", "epsilon"}),
    "Share of the target's scale": frozenset({"scale_share"}),
    "Rows per block of the Tukey mechanism": frozenset({"block_size"}),
}
# The upper, the middle and the lower row of marks of a set.
LANES: dict[str, dict[str, Any]] = {"": {"markerfacecolor": "white"}, "L-": {"alpha": 0.45}, "K-": {}}

Line = dict[str, Any]


def read_lines(path: Path) -> list[Line]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def score(line: Line, measure: str = "r2") -> float:
    """Return R²; what was not released has -inf."""
    value = line[measure]
    return -math.inf if value is None else float(value)


def label(line: Line) -> str:
    """Return the column of a line; with a shifted target it is one of its own."""
    moved = " shifted" if any(name == "shift" for name, _ in line["settings"]) else ""
    return (f"{line['selector']}-{line['method']}" if line["selector"] else str(line["method"])) + moved


class Study:
    """Lines of the study by set, method and k; a fit without selection has k = 0."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.groups: dict[tuple[str, str, int], list[Line]] = defaultdict(list)
        for line in lines:
            self.groups[line["set"], label(line), line["k"]].append(line)
        self.sets = list(dict.fromkeys(name for name, _, _ in self.groups))

    def lines(self, name: str, method: str, k: int) -> list[Line]:
        """Return the lines of a method; k counts only after a selection."""
        return self.groups.get((name, method, k if method[:2] in ("K-", "L-") else 0), [])

    def median(self, name: str, method: str, k: int, measure: str = "r2") -> float | None:
        """Return the median over the splits; None where nothing was measured."""
        values = [score(line, measure) for line in self.lines(name, method, k)]
        return median(values) if values else None

    def with_k(self, k: int) -> list[str]:
        """Return the sets with more than k features."""
        return [name for name in self.sets if self.lines(name, "K-BAS", k)]

    def picked(self, name: str, method: str, k: int) -> str:
        """Return what auto stands for, as a column of the tables."""
        names = {"ada_ssp": "AdaSSP", "boosted_ada_ssp": "BAS", "tukey": "Tukey", "additive": "additive"}
        lines = self.lines(name, method, k)
        return method.replace("auto", names[lines[0]["picked"]]) if lines else ""


def show(value: float | None) -> str:
    if value is None:
        return ""
    if value == -math.inf:
        return "−∞"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.0f}"


def counts(study: Study, columns: Sequence[str], k: int) -> dict[str, tuple[int, int, int]]:
    """Return for each method: sets with R² > 0, of rank 1, of rank 1 or 2. What is not released has no rank."""
    out = dict.fromkeys(columns, (0, 0, 0))
    for name in study.with_k(k):
        if name in SUBSTITUTES:
            continue
        values = {method: study.median(name, method, k) for method in columns}
        known = {method: value for method, value in values.items() if value is not None and value > -math.inf}
        for method, value in known.items():
            rank = 1 + sum(other > value for other in known.values())
            before = out[method]
            out[method] = (before[0] + (value > 0), before[1] + (rank == 1), before[2] + (rank <= 2))
    return out


def medians(study: Study, k: int) -> str:
    head = ["set", "OLS", *PAPER_COLUMNS, *MORE_COLUMNS, "OLS on L's", "OLS on K's", "BAS unscaled", "K-Tukey unsafe"]
    head += ["paper: K-Tukey"] if k == 5 else []
    rows = []
    for name in study.with_k(k):
        private = {method: study.median(name, method, k) for method in (*PAPER_COLUMNS, *MORE_COLUMNS)}
        best = max(value for value in private.values() if value is not None)
        cells = [f"**{show(value)}**" if value == best else show(value) for value in private.values()]
        cells += [show(study.median(name, f"{selector}-AdaSSP", k, "ols")) for selector in "LK"]
        cells += [show(study.median(name, method, k)) for method in ("BAS unscaled", "K-Tukey unsafe")]
        cells += [show(PAPER_K_TUKEY.get(name))] if k == 5 else []
        rows.append([name, show(study.median(name, "OLS", k)), *cells])
    return markdown(head, rows)


def ranking(study: Study, k: int) -> str:
    sets = sum(name not in SUBSTITUTES for name in study.with_k(k))
    head = ["method", "R² > 0", "rank 1", "rank 1 or 2", "R² > 0 (paper)", "rank 1 (paper)", "rank 1 or 2 (paper)"]
    head += ["with AdaSSP: rank 1", "rank 1 or 2"]
    six, nine = counts(study, PAPER_COLUMNS, k), counts(study, (*PAPER_COLUMNS, *MORE_COLUMNS), k)

    def part(number: int, whole: int) -> str:
        return f"{number} ({number / max(whole, 1):.0%})"

    rows = []
    for method, (_, first, second) in nine.items():
        ours = (
            [part(number, sets) for number in six[method]] if method in six else [part(nine[method][0], sets), "", ""]
        )
        theirs = [part(number, PAPER_SETS[k]) for number in PAPER_COUNTS[k][method]] if method in six else [""] * 3
        rows.append([method, *ours, *theirs, part(first, sets), part(second, sets)])
    return markdown(head, rows)


def stability(study: Study) -> str:
    """Show how often the test of the Tukey mechanism passes."""
    head = [
        "set",
        "features",
        "models, theirs",
        "ours",
        "passes, theirs",
        "ours on the same",
        "ours on ours",
        "released",
    ]
    head += ["R², theirs", "R², ours"]
    rows = []
    for name in study.sets:
        for method, k in (("Tukey", 0), ("K-Tukey", 5), ("K-Tukey", 10)):
            lines = study.lines(name, f"{method} unsafe", k)
            if not lines:
                continue
            released = [score(line) > -math.inf for line in study.lines(name, method, k)]
            means = [
                f"{sum(line[key] for line in lines) / len(lines):.2f}"
                for key in ("passes_unsafe", "passes_same", "passes_ours")
            ]
            blocks = [f"{median(line[key] for line in lines):.0f}" for key in ("blocks_unsafe", "blocks_ours")]
            fits = [show(study.median(name, f"{method} unsafe", k)), show(study.median(name, method, k))]
            rows.append([name, f"{k} of K" if k else "all", *blocks, *means])
            rows[-1] += [f"{sum(released)}/{len(released)}", *fits]
    return markdown(head, rows)


def automatic(study: Study) -> str:
    rows = []
    for name in study.sets:
        alone, after = study.picked(name, "auto", 0), study.picked(name, "K-auto", 5)
        if alone and after:
            # Additive models are measured here by auto's own split alone; `additive_study.py` has more.
            shown = [
                show(study.median(name, method, 5) if study.lines(name, method, 5) else study.median(name, asked, 5))
                for method, asked in ((alone, "auto"), (after, "K-auto"))
            ]
            rows.append([name, alone, shown[0], after, shown[1]])
    return markdown(["set", "auto", "R²", "K-auto, k = 5", "R²"], rows)


def shifted(study: Study) -> str:
    """Show what a constant added to the target does."""
    rows = []
    for name in study.sets:
        if study.lines(name, "BAS shifted", 0):
            methods = ("BAS", "BAS shifted", "BAS unscaled", "BAS unscaled shifted")
            rows.append([name, *(show(study.median(name, method, 0)) for method in methods)])
    return markdown(["set", "BAS", "target + 2000", "BAS unscaled", "target + 2000"], rows)


def tuned(lines: Sequence[Line], names: frozenset[str]) -> str:
    """Show median R² by method, features and settings, one column per set; those with the given settings, and none."""
    sets = list(dict.fromkeys(line["set"] for line in lines))
    groups: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    telling = names - {"bounds", "epsilon"} or names
    for line in lines:
        settings = dict(line["settings"])
        if not settings or (settings.keys() <= names and settings.keys() & telling):
            told = ", ".join(f"{key} {value}" for key, value in settings.items()) or "none"
            groups[label(line), told][line["set"]].append(score(line))
    methods = {method for method, told in groups if told != "none"}
    rows = []
    for (method, told), values in groups.items():
        if method in methods:
            found = [median(values[name]) for name in sets if name in values]
            held = sum(max(value, 0.0) for value in found) / len(found)
            rows.append([method, told, *map(show, found), f"{held:.3f}"])
    return markdown(["method", "settings", *sets, "mean of max(R², 0)"], sorted(rows))


def write_medians(study: Study, path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["set", "method", "k", "splits", "released", "median_r2", "seconds"])
        for (name, method, k), lines in sorted(study.groups.items()):
            values = [score(line) for line in lines]
            released = sum(value > -math.inf for value in values)
            seconds = median(line["seconds"] for line in lines)
            writer.writerow([name, method, k, len(lines), released, f"{median(values):.4f}", f"{seconds:.2f}"])


def figure(study: Study, path: Path) -> None:
    """Draw median R² by set: one row of marks per set, one panel per k."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import lines, pyplot

    sheet, axes = pyplot.subplots(1, 2, figsize=(13, 5.5), sharex=True, layout="constrained")
    low = -0.25
    for axis, k in zip(axes, (5, 10), strict=True):
        names = study.with_k(k)
        for row, name in enumerate(names):
            reference = study.median(name, "OLS", k)
            axis.plot([reference, reference], [row - 0.4, row + 0.4], color="black")
            for lane, selector in enumerate(LANES):
                for method, (colour, marker) in STYLES.items():
                    value = study.median(name, selector + method, k)
                    if value is not None:
                        shown = marker if value >= low else "x"
                        axis.plot(max(value, low), row + (lane - 1) * 0.24, shown, color=colour, **LANES[selector])
        axis.set_yticks(range(len(names)), [f"{name}*" if name in SUBSTITUTES else name for name in names])
        axis.invert_yaxis()
        axis.axvline(0.0, color="grey", linewidth=0.7)
        axis.set(title=f"k = {k}", xlabel=f"median R² of 10 splits (× at {low}: below, or not released)")
        axis.grid(axis="x", alpha=0.3)
    marks = [lines.Line2D([], [], color="black", label="OLS, not private")]
    for selector, look in LANES.items():
        for method, (colour, marker) in STYLES.items():
            style = {"color": colour, "marker": marker, "linestyle": "none", **look}
            marks.append(lines.Line2D([], [], label=selector + method, **style))
    sheet.legend(handles=marks, loc="outside lower center", ncols=5)
    save_small(sheet, path)
    pyplot.close(sheet)


def write_report(folder: Path, *, figures: bool = True) -> None:
    """Write the tables and the figure from what the files of lines hold."""
    study = Study(read_lines(folder / "results.jsonl"))
    tuning = read_lines(folder / "tuning.jsonl")
    if study.sets:
        text = ["# Private regression after private selection: tables"]
        text.append("Written by `benchmarks/papers/dp_kendall.py`; read `benchmarks/papers/README.md` first.")
        for k in (5, 10):
            text += [
                f"## k = {k}: median R² on the rows left out",
                "Bold: the best private one. OLS, OLS on the columns that L or K chose, BAS unscaled and Tukey unsafe "
                "are NOT PRIVATE. −∞: not released in half of the splits. Empty: not measured, or not known.",
                medians(study, k),
                f"## k = {k}: counts, beside the paper's {PAPER_SETS[k]} sets",
                ranking(study, k),
            ]
        text += ["## What auto stands for", automatic(study)]
        text += ["## How often the test of the Tukey mechanism passes, by the paper's rules and by ours"]
        text += [stability(study), "## A constant added to the target", shifted(study)]
        (folder / "table.md").write_text("\n\n".join(text) + "\n")
        write_medians(study, folder / "medians.csv")
        if figures:
            figure(study, folder / "r2.png")
    if tuning:
        splits = len({line["split"] for line in tuning})
        text = [f"# Public settings: median R² of {splits} splits"]
        text.append("Written by `benchmarks/papers/dp_kendall.py --tune`. `none`: the defaults.")
        text.append(
            "A `row_norm` is a multiple of d, under a root; 0 is for 1. `bounds range`: the least and the largest "
            "value, as if they were public bounds. A `block_size` is the number of rows per block, as a multiple of "
            "d + 1."
        )
        for title, names in TUNED.items():
            text += [f"## {title}", tuned(tuning, names)]
        (folder / "tuning.md").write_text("\n\n".join(text) + "\n")


if __name__ == "__main__":
    default = Path(__file__).resolve().parent / "results" / "dp_kendall"
    write_report(Path(sys.argv[1]) if len(sys.argv) > 1 else default)

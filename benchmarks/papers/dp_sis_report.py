"""Tables and figures of the DP-SIS study, from its ``results.csv``.

    python benchmarks/papers/dp_sis_report.py [DIR]

Written beside it: ``sets.csv``, ``table.csv``, ``table.md`` and, with matplotlib, the figures.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Iterable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

# (label, mechanism, gamma, centre, colour, dashes); the last two are NOT PRIVATE.
LINES = (
    ("one_shot", "one_shot", "0.5", "public", "#9ecae1", "-"),
    ("one_shot, center target", "one_shot", "0.5", "target", "#08519c", "-"),
    ("canonical γ=¼", "canonical_lipschitz", "0.25", "public", "#fdae6b", "-"),
    ("canonical γ=¼, center target", "canonical_lipschitz", "0.25", "target", "#d94801", "-"),
    ("canonical γ=½", "canonical_lipschitz", "0.5", "public", "#a1d99b", "-"),
    ("canonical γ=½, center target", "canonical_lipschitz", "0.5", "target", "#006d2c", "-"),
    ("NOT PRIVATE: one_shot, scaled by the data", "one_shot", "0.5", "data", "#969696", "--"),
    (
        "NOT PRIVATE: canonical γ=½, scaled by the data (the paper)",
        "canonical_lipschitz",
        "0.5",
        "data",
        "#252525",
        "--",
    ),
)
LEVELS = ("1", "5.318", "10", "20")
FIT_LEVELS = ("2.742", "5.318", "10", "20")
FACTS = ("set", "view", "n", "p", "lower", "upper", "lasso")

Line = dict[str, str]
Cell = tuple[str, str, str, str, str, str, str]


def read(path: Path) -> list[Line]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write_facts(path: Path, facts: Iterable[dict[str, Any]]) -> list[Line]:
    """Add what this run learned about the data sets to what earlier runs did."""
    known = {(line["set"], line["view"]): line for line in (read(path) if path.exists() else [])}
    known |= {(fact["set"], fact["view"]): {name: str(fact[name]) for name in FACTS} for fact in facts}
    lines = [known[key] for key in sorted(known)]
    write_csv(path, FACTS, lines)
    return lines


def write_csv(path: Path, columns: Sequence[str], lines: Iterable[dict[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


class Table:
    """The measured lines, looked up by setting."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self._lines: dict[Cell, Line] = {}
        for line in lines:
            self._lines[
                tuple(line[name] for name in ("set", "view", "k", "mechanism", "gamma", "center", "epsilon"))
            ] = line  # type: ignore[index]
        self.panels = sorted(
            {(cell[0], cell[1]) for cell in self._lines}, key=lambda panel: (panel[0] == "synthetic", panel)
        )

    def ks(self, panel: tuple[str, str]) -> list[str]:
        """Return the numbers of features selected, ascending."""
        return sorted({cell[2] for cell in self._lines if cell[:2] == panel}, key=int)

    def value(
        self, panel: tuple[str, str], k: str, mechanism: str, gamma: str, center: str, epsilon: str, column: str
    ) -> float:
        """Return one number; NaN where it was not measured."""
        line = self._lines.get((*panel, k, mechanism, gamma, center, epsilon), {})
        return float(line.get(column) or math.nan)

    def curve(
        self, panel: tuple[str, str], k: str, setting: tuple[str, str, str], column: str
    ) -> tuple[list[float], list[float]]:
        """Return epsilons and values."""
        points = sorted(
            (float(cell[6]), float(line[column]))
            for cell, line in self._lines.items()
            if cell[:3] == (*panel, k) and cell[3:6] == setting and cell[6] != "inf"
        )
        return [x for x, _ in points], [y for _, y in points]


def show(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def fits(table: Table) -> str:
    """Show in-sample R² of least squares on five selected columns."""
    orders = [("lasso", "data"), ("sis", "data"), ("none", "data"), ("none", "public"), ("none", "target")]
    head = ["set", "view", "Lasso", "SIS", "scaled by the data, ε = ∞", "public, ε = ∞", "target centred, ε = ∞"]
    shown = [line for line in LINES if line[2] != "0.25" and line[3] != "data"]
    head += [f"{label} (2.7, 5.3, 10, 20)" for label, *_ in shown] + ["5 at random"]
    rows = []
    for panel in table.panels:
        row = [show(table.value(panel, "5", order, "0.5", center, "inf", "r2")) for order, center in orders]
        for _, mechanism, gamma, center, *_ in shown:
            values = [table.value(panel, "5", mechanism, gamma, center, level, "r2") for level in FIT_LEVELS]
            row.append("" if all(map(math.isnan, values)) else " ".join(show(value) for value in values))
        rows.append([*panel, *row, show(table.value(panel, "5", "random", "0.5", "data", "inf", "r2"))])
    return markdown(head, rows)


def without_noise(table: Table) -> str:
    """Show what the statistic itself is worth: epsilon = infinity."""
    head = [
        "set",
        "view",
        "k",
        "SIS",
        "public bounds",
        "public bounds, target centred",
        "NOT PRIVATE: scaled by the data",
    ]
    rows = []
    for panel in table.panels:
        for k in table.ks(panel):
            row = [*panel, k]
            for mechanism, center in (("sis", "data"), ("none", "public"), ("none", "target"), ("none", "data")):
                pair = [
                    table.value(panel, k, mechanism, "0.5", center, "inf", f"overlap_{truth}")
                    for truth in ("lasso", "sis")
                ]
                row.append(" / ".join(show(value) for value in pair))
            rows.append(row)
    return markdown(head, rows)


def at_levels(table: Table, measure: str) -> str:
    """Show one measure of every mechanism at a few epsilons."""
    head = ["set", "view", "k", *(f"{label} ({', '.join(LEVELS)})" for label, *_ in LINES)]
    head = [text.replace("5.318", "5.3") for text in head]
    rows = []
    for panel in table.panels:
        for k in table.ks(panel):
            cells = []
            for _, mechanism, gamma, center, *_ in LINES:
                values = [table.value(panel, k, mechanism, gamma, center, level, measure) for level in LEVELS]
                cells.append("" if all(map(math.isnan, values)) else " ".join(show(value) for value in values))
            rows.append([*panel, k, *cells])
    return markdown(head, rows)


def flat(table: Table) -> list[dict[str, Any]]:
    """Return the same numbers for machines."""
    out = []
    for panel in table.panels:
        for k in table.ks(panel):
            for label, mechanism, gamma, center, *_ in LINES:
                record: dict[str, Any] = {"set": panel[0], "view": panel[1], "k": k, "setting": label}
                for measure in ("overlap_lasso", "overlap_own", "exact_own"):
                    for level in LEVELS:
                        record[f"{measure}_{level}"] = show(
                            table.value(panel, k, mechanism, gamma, center, level, measure)
                        )
                record["overlap_lasso_inf"] = show(table.value(panel, k, "none", "0.5", center, "inf", "overlap_lasso"))
                if any(record[f"overlap_own_{level}"] != "–" for level in LEVELS):
                    out.append(record)
    return out


def figure(table: Table, path: Path, which: int, measure: str, title: str) -> None:
    """Draw one panel per data set (its main view); `which` k: 0 the smaller, 1 the larger."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = [panel for panel in table.panels if panel[1] != "raw"]
    columns = 2 if len(panels) > 1 else 1
    rows = math.ceil(len(panels) / columns)
    sheet, axes = pyplot.subplots(rows, columns, figsize=(3.9 * columns, 2.15 * rows + 1.5), squeeze=False, sharex=True)
    for axis, panel in zip(axes.flat, panels, strict=False):
        k = table.ks(panel)[min(which, len(table.ks(panel)) - 1)]
        for label, mechanism, gamma, center, colour, dashes in LINES:
            x, y = table.curve(panel, k, (mechanism, gamma, center), measure)
            axis.plot(x, y, dashes, color=colour, label=label, linewidth=1.4)
        if measure.endswith("lasso"):
            limit = table.value(panel, k, "none", "0.5", "target", "inf", measure)
            axis.axhline(
                limit, color="#08519c", linestyle=":", linewidth=1, label="center target without noise (ε = ∞)"
            )
            sis = table.value(panel, k, "sis", "0.5", "data", "inf", measure)
            axis.axhline(sis, color="#252525", linestyle="-.", linewidth=1, label="NOT PRIVATE: SIS")
        axis.set(xscale="log", ylim=(-0.03, 1.03), xticks=[0.1, 1, 10], xticklabels=["0.1", "1", "10"])
        axis.set_title(f"{panel[0]} ({panel[1]}), k = {k}", fontsize=9)
        axis.tick_params(labelsize=8)
        axis.grid(alpha=0.25)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis in axes[-1]:
        axis.set_xlabel("ε", fontsize=9)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    sheet.suptitle(title, fontsize=10)
    sheet.legend(handles, labels, loc="lower center", ncols=columns, fontsize=7.5, frameon=False)
    height = sheet.get_figheight()
    sheet.tight_layout(rect=(0, 1.05 / height, 1, 1 - 0.05 / height))
    save_small(sheet, path)
    pyplot.close(sheet)


def save_small(sheet: Any, path: Path) -> None:
    """Save with a palette: a third of the bytes."""
    from PIL import Image

    buffer = BytesIO()
    sheet.savefig(buffer, format="png", dpi=130)
    Image.open(buffer).convert("RGB").quantize(64, dither=Image.Dither.NONE).save(path, optimize=True)


def write_report(folder: Path, facts: Iterable[dict[str, Any]] = (), *, figures: bool = True) -> None:
    """Write tables and figures from what ``results.csv`` holds."""
    sets = write_facts(folder / "sets.csv", facts)
    table = Table(read(folder / "results.csv"))
    records = flat(table)
    if records:
        write_csv(folder / "table.csv", list(records[0]), records)
    text = [
        "# DP-SIS with public bounds: tables",
        "Written by `benchmarks/papers/dp_sis.py`; read `benchmarks/papers/README.md` first.",
        "## Data sets\n\n`lasso`: features that the Lasso takes on this view.",
        markdown(FACTS, [[line[name] for name in FACTS] for line in sets]),
        "## Without noise (ε = ∞): overlap with the Lasso's / with SIS's top k on the same columns",
        without_noise(table),
        "## In-sample R² of least squares on 5 selected columns, class code as the target",
        fits(Table(read(folder / "r2.csv"))),
        "## Overlap with the Lasso's top k on the same columns, at ε = 1, 5.3, 10, 20",
        at_levels(table, "overlap_lasso"),
        "## Overlap with the mechanism's own top k without noise, at the same ε: what noise alone costs",
        at_levels(table, "overlap_own"),
        "## Frequency of exactly that set, at the same ε",
        at_levels(table, "exact_own"),
    ]
    (folder / "table.md").write_text("\n\n".join(text) + "\n")
    if figures:
        accuracy = "Overlap with the top k of the non-private Lasso on the same columns"
        figure(table, folder / "accuracy_k5.png", 0, "overlap_lasso", f"{accuracy}, k = 5")
        figure(table, folder / "accuracy_lnp.png", 1, "overlap_lasso", f"{accuracy},\nk = ⌊ln p⌋ (synthetic: 8)")
        figure(
            table, folder / "noise_k5.png", 0, "overlap_own", "Overlap with the same statistic's top 5 without noise"
        )


if __name__ == "__main__":
    write_report(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent / "results" / "dp_sis")

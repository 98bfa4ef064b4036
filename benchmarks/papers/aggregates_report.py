"""Table and picture of the study of aggregates, from the lines that `aggregates.py` wrote.

python benchmarks/papers/aggregates_report.py [DIR]
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

Line = dict[str, str]
HERE = Path(__file__).resolve().parent
OURS = "dpsql"
HEAD = ("table", "relation", "delta", "groups per person", "asked", "aggregate")


def read(path: Path) -> list[Line]:
    """Return the lines of a CSV; none if it is not there."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def by_head(lines: Iterable[Line], head: Sequence[str]) -> dict[tuple[str, ...], dict[str, Line]]:
    """Return the lines of each contender, by what was asked."""
    found: dict[tuple[str, ...], dict[str, Line]] = {}
    for line in lines:
        found.setdefault(tuple(line[name] for name in head), {})[line["contender"]] = line
    return found


def best_peer(contenders: dict[str, Line]) -> str | None:
    """Return the other library with the least error; None if none offers it."""
    peers = [name for name in contenders if not name.startswith(OURS)]
    return min(peers, key=lambda name: float(contenders[name]["rms"]), default=None)


def ratio(contenders: dict[str, Line], measure: str, mine: str = OURS) -> float:
    """Return our error over that of the best other library."""
    best = best_peer(contenders)
    return float(contenders[mine][measure]) / float(contenders[best][measure]) if best else float("nan")


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _errors(lines: list[Line]) -> str:
    asked = by_head(lines, HEAD)
    peers = list(dict.fromkeys(line["contender"] for line in lines if line["contender"] != OURS))
    rows = []
    for head, contenders in asked.items():
        best = best_peer(contenders)
        if best is None:
            continue
        cells = [f"{float(contenders[peer]['rms']):.4g}" if peer in contenders else "" for peer in peers]
        rows.append([
            *head, f"{float(contenders[OURS]['rms']):.4g}", *cells, best,
            *(f"{ratio(contenders, measure):.2f}" for measure in ("rms", "theory", "median")),
        ])  # fmt: skip
    columns = [*HEAD, OURS, *peers, "best peer", "ratio", "ratio in theory", "ratio, median group"]
    return markdown(columns, rows)


def _keys(lines: list[Line]) -> str:
    head = ("table", "groups per person", "keys", "asked")
    rows = []
    for of, contenders in by_head(lines, head).items():
        for name, line in contenders.items():
            cells = [f"{float(line[column]):.4g}" for column in ("least", "found", "rms")]
            rows.append([*of, name, *cells, f"{float(contenders[OURS]['found']) / float(line['found']):.2f}"])
    columns = ["contender", "least noisy count", "keys found", "error of a count", "dpsql's keys over these"]
    return markdown([*head, *columns], rows)


def _plain(lines: list[Line]) -> str:
    return markdown(list(lines[0]), [list(line.values()) for line in lines]) if lines else "Not measured.\n"


def write_report(folder: Path) -> None:
    """Write ``table.md`` and, with matplotlib, ``errors.png``."""
    results, keys = read(folder / "results.csv"), read(folder / "keys.csv")
    text = (
        "# Private aggregates beside other libraries: tables\n\n"
        "Written by `benchmarks/papers/aggregates.py`; read `benchmarks/papers/README.md` first. epsilon is 1.\n\n"
        "## Root mean square errors of all groups\n\n"
        "*ratio*: dpsql over the best peer, below 1 is better. *theory*: to first order, without clips.\n\n"
        f"{_errors(results)}\n## Private keys at (1, 1e-6)\n\n{_keys(keys)}\n"
        f"## Whole calls in SQL beside draws\n\n{_plain(read(folder / 'sql.csv'))}\n"
        f"## The libraries beside their laws\n\n{_plain(read(folder / 'checks.csv'))}"
    )
    (folder / "table.md").write_text(text)
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        print("matplotlib is not installed: no picture")
        return
    draw_ratios(folder / "errors.png", results)


def draw_ratios(path: Path, lines: list[Line]) -> None:
    """Draw, per question, the errors of the others over ours; a mark to the right of 1 is worse than dpsql."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    from dpsql.released.plots import GRID, INK, LINE, SECOND, save

    found = {
        head: contenders
        for head, contenders in by_head(lines, HEAD).items()
        if head[0] in ("uniform", "hospital", "houses") and head[1] == "add_remove" and len(head[4].split()) == 1
    }
    shown = [(f"{peer}{law}", colour, marker) for peer, colour in (("OpenDP", LINE), ("Tumult", SECOND))
             for law, marker in (("", "o"), (", Gaussian", "x"))]  # fmt: skip
    figure, axis = pyplot.subplots(figsize=(5.0, 0.8 + 0.16 * len(found)))
    for peer, colour, marker in shown:
        there = [place for place, contenders in enumerate(found.values()) if peer in contenders]
        lines_of = [contenders for contenders in found.values() if peer in contenders]
        times = [float(contenders[peer]["rms"]) / float(contenders[OURS]["rms"]) for contenders in lines_of]
        axis.plot(times, there, marker, color=colour, markersize=4, label=peer, alpha=0.8)
    axis.axvline(1.0, color=INK, linewidth=0.8)
    axis.set(xscale="log", xticks=[1, 2, 5, 10], yticks=range(len(found)))
    axis.set_xticks([], minor=True)
    axis.set_xticklabels(["1 ×", "2 ×", "5 ×", "10 ×"], fontsize=7)
    axis.set_yticklabels([_said(*head) for head in found], fontsize=7)
    axis.set_title("root mean square error over that of dpsql", fontsize=8, color=INK)
    axis.invert_yaxis()
    axis.tick_params(colors=INK)
    axis.grid(axis="x", color=GRID, alpha=0.4, linewidth=0.5)
    axis.legend(fontsize=7, frameon=False, labelcolor=INK, loc="lower right")
    save(axis, path)
    pyplot.close(figure)


def _said(table: str, relation: str, delta: str, reach: str, asked: str, name: str) -> str:
    persons = "1 group" if reach == "1" else f"{reach} groups"
    return f"{table}, {persons}{', δ = 10⁻⁶' if float(delta) else ''}: {name}"


if __name__ == "__main__":
    write_report(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "results" / "aggregates")

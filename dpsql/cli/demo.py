"""Show the main job on real data: protect a table, select features privately, read the receipt."""

from __future__ import annotations

import shutil
import textwrap

import click
import pyarrow as pa
from rich.syntax import Syntax

from dpsql.cli.messages import console
from dpsql.cli.output import budget_view, example_text, ledger_view, show
from dpsql.cli.runner import Runner
from dpsql.manual.demonstration import example

_table = "breast_cancer"
# Public: the published description of the data lists the range of every measurement; rounded up generously here. Ten
# measurements of the cell nuclei in one image, each as mean, standard error and worst value.
MEASUREMENTS = {
    "radius": (30, 5, 40),
    "texture": (50, 5, 60),
    "perimeter": (200, 30, 300),
    "area": (3000, 600, 5000),
    "smoothness": (0.2, 0.05, 0.3),
    "compactness": (0.5, 0.2, 1.5),
    "concavity": (0.5, 0.5, 1.5),
    "concave points": (0.25, 0.1, 0.4),
    "symmetry": (0.4, 0.1, 0.8),
    "fractal dimension": (0.1, 0.05, 0.3),
}


def upper_bounds() -> list[list[float]]:
    """Return the public upper bounds in the table's order: ten means, ten errors, ten worst values."""
    return [[bounds[part] for bounds in MEASUREMENTS.values()] for part in range(3)]


def protect_sql() -> str:
    """Return the SQL that the data's owner runs."""
    lines = ",\n             ".join(", ".join(f"{bound:g}" for bound in part) for part in upper_bounds())
    return f"SELECT dp_protect('{_table}', epsilon := 3.0, lower := 0,\n  upper := [ {lines} ]);"


def count_sql() -> str:
    """Return the SQL that the analyst runs first."""
    return f"SELECT * FROM dp_count('{_table}', by := 'diagnosis', keys := ['benign', 'malignant'], epsilon := 0.1);"


def select_sql() -> str:
    """Return the SQL that the analyst runs next."""
    return (
        f"SELECT * FROM dp_sis('{_table}', k := 5, epsilon := 0.9,\n"
        "  target := 'diagnosis', target_levels := ['benign', 'malignant'],\n"
        "  score := 'rank', verdict_share := 0.2);"
    )


def run_demo(database: str, ledger: str | None) -> None:
    """Run the demonstration and print every step.

    Parameters
    ----------
    database : str
        Path of a DuckDB file, or ``':memory:'``.
    ledger : str, optional
        Path or URL.
    """
    frame = _load()
    with Runner(database, ledger=ledger) as runner:
        runner.connection.register("dpsql_demo_rows", frame)
        runner.connection.execute(f"CREATE TABLE IF NOT EXISTS {_table} AS FROM dpsql_demo_rows")
        runner.connection.unregister("dpsql_demo_rows")
        _say(
            "Wisconsin breast cancer, from scikit-learn: one row per patient, 30 measurements of the cell nuclei "
            "in an image of the tumour, and the diagnosis."
        )
        _step("1. The data's owner sets a budget and states bounds: public knowledge, never computed from the table")
        _run(runner, protect_sql(), quiet=True)
        _step("2. The analyst counts: each number with the error of its noise, and an interval for the true count")
        _run(runner, count_sql())
        _step("3. Which five measurements go with the diagnosis, and is it more than chance? For a third of the budget")
        _run(runner, select_sql())
        _step("4. The receipts: what was charged, in an append-only ledger")
        console().print(ledger_view(runner.ledger.entries(_table)))
        _step("5. What is left")
        console().print(budget_view(runner.ledger.budgets()))
        click.echo()
        _say(
            "How to read it: whether or not any one patient is in the table, the chance of all that was printed "
            "changes by a factor of at most e^1 = 2.7 (that is epsilon 1), so the answers tell about tumours and "
            "hardly anything about a patient; run it again and noise moves the counts and may swap neighbours in "
            "rank, at another charge, and once the budget is spent the table answers no more."
        )


def make_example(database: str) -> None:
    """Make the example tables of the documentation in a database, and print their names."""
    click.echo(example_text(example(database)))


def _load() -> pa.Table:
    """Return the table as Arrow."""
    try:
        from sklearn.datasets import load_breast_cancer
    except ImportError:
        raise click.ClickException(
            "the demo needs the table that scikit-learn ships. Run: pip install 'dpsql[demo]'"
        ) from None
    bunch = load_breast_cancer()
    names = [f"{part}_{name}".replace(" ", "_") for part in ("mean", "error", "worst") for name in MEASUREMENTS]
    columns = {name: bunch.data[:, j] for j, name in enumerate(names)}
    return pa.table(columns | {"diagnosis": ["benign" if flag else "malignant" for flag in bunch.target]})


def _run(runner: Runner, sql: str, *, quiet: bool = False) -> None:
    console().print(Syntax(sql, "sql", theme="ansi_light", background_color="default", word_wrap=True))
    result = runner.execute(sql.rstrip().rstrip(";"))
    if result is not None and not quiet:
        show(result)
    runner.raise_if_stopped()


def _step(title: str) -> None:
    out = console()
    out.print()
    out.print(title, style="bold")


def _say(text: str) -> None:
    click.echo(textwrap.fill(text, min(100, shutil.get_terminal_size((100, 24)).columns - 1)))

"""A marimo notebook: look at the noise for any epsilon, for nothing, and release once you like it.

Open it with ``pip install 'dpsql[notebook,demo]'`` and ``marimo edit examples/notebook.py``. As a script,
``python examples/notebook.py FOLDER`` releases once and writes the picture into the folder.
"""

import marimo

__generated_with = "0.25.2"
app = marimo.App()


@app.cell
def _():
    import sys
    from pathlib import Path

    import marimo as mo
    import polars as pl
    from sklearn.datasets import load_breast_cancer

    import dpsql
    from dpsql.released.plots import save

    return Path, dpsql, load_breast_cancer, mo, pl, save, sys


@app.cell
def _(mo):
    mo.md("""
    # What does epsilon buy?

    A histogram of the mean radius of 569 tumours. The slider is free: it asks `dp_estimate` about the noise, which
    reads no rows. The button releases, and charges the budget of the table.
    """)
    return


@app.cell
def _(dpsql, load_breast_cancer, pl):
    data = load_breast_cancer()
    tumours = pl.DataFrame({"radius": data.data[:, 0]})
    ctx = dpsql.Context()
    ctx.dp_protect("tumours", epsilon=4.0, source=False)
    return ctx, tumours


@app.cell
def _(mo):
    epsilon = mo.ui.slider(steps=[0.05, 0.1, 0.2, 0.5, 1.0, 2.0], value=0.5, label="epsilon", show_value=True)
    button = mo.ui.run_button(label="Release and charge")
    mo.hstack([epsilon, button], justify="start")
    return button, epsilon


@app.cell
def _(ctx, epsilon, mo, pl):
    # The edges are public: they come from what the instrument can show, not from the rows.
    call = {"lower": 5, "upper": 30, "n_bins": 10, "epsilon": epsilon.value}
    noise = pl.DataFrame(ctx.dp_estimate("dp_histogram", **call, n_rows=569))
    mo.ui.table(noise.select("quantity", "value", "meaning"), selection=None)
    return (call,)


@app.cell
def _(mo):
    is_script = mo.app_meta().mode == "script"
    return (is_script,)


@app.cell
def _(button, call, ctx, dpsql, is_script, mo, tumours):
    # A run button is true only while the cells that read it run, so this cell reads the button itself. A variable made
    # of it elsewhere would stay true, and then each move of the slider would release.
    asked = button.value or is_script
    mo.stop(not asked, mo.md(f"Nothing is released yet. The button would charge epsilon {call['epsilon']}."))
    try:
        # Named for its epsilon: to press the button again at the same epsilon costs nothing.
        release = ctx.dp_histogram(
            tumours, dataset="tumours", target="radius", **call, release=f"radius at epsilon {call['epsilon']}"
        )
    except dpsql.BudgetError as refused:
        mo.stop(True, mo.callout(str(refused), kind="warn"))
    budget = ctx.dp_budget().to_pylist()[0]
    mo.vstack(
        [
            release.plot(),
            mo.md(f"{release.guarantee}; epsilon {budget['epsilon_remaining']:g} of 4 remains."),
        ]
    )
    return (release,)


@app.cell
def _(Path, is_script, release, save, sys):
    if is_script:
        print(release)
        save(release.plot(), Path(*sys.argv[1:2]) / "notebook.svg")
    return


if __name__ == "__main__":
    app.run()

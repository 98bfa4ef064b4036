"""Synthetic tables of a real one: total variation of pairs, and models trained on them and tested on real rows.

``python benchmarks/synthetic.py TABLE.parquet TARGET POSITIVE [runs] [most rows]`` splits a table at random, releases
four fifths of its rows with dp_synthetic at epsilon .1, .3, 1 and 3 (delta 1e-5), makes as many rows, and prints, for
each of three ways: ``target`` is given; it is not, and the hub is drawn; and, from the same release, columns that are
independent, as what a table is worth of which single columns alone are known with the same noise:

- ``pairs``: total variation of all pairs of columns, in at most 16 quantile cells of the real rows, their mean;
- ``columns``: the same of single columns;
- ``auc``: of scikit-learn's logistic regression on synthetic rows, for real rows that nothing was made of;
- ``cpu``: seconds of the release, and of the rows.

Bounds and keys are those of the table, as if an owner had stated them: "public"; or drawn: "private".
"""

from __future__ import annotations

import itertools
import sys
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import dpsql

RATES = (0.1, 0.3, 1.0, 3.0)
Cells = list[NDArray[np.int64]]


def is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def cells(real: pa.Table, other: pa.Table) -> Cells:
    """Return the cells of the columns of a table, by quantiles and values of the real one."""
    found = []
    for name in real.column_names:
        ours, theirs = (table.column(name).to_pylist() for table in (real, other))
        if is_number(real.schema.field(name).type):
            edges = np.unique(np.quantile([float(one) for one in ours if one is not None], np.linspace(0, 1, 17)))[1:-1]
            values = np.array([np.nan if one is None else float(one) for one in theirs])
            found.append(np.where(np.isnan(values), len(edges) + 1, np.searchsorted(edges, values, side="right")))
        else:
            known = {value: place for place, value in enumerate(dict.fromkeys(ours))}
            found.append(np.array([known.get(value, len(known)) for value in theirs]))
    return found


def variation(one: NDArray[np.int64], two: NDArray[np.int64]) -> float:
    size = 1 + int(max(one.max(), two.max()))
    shares = [np.bincount(codes, minlength=size) / len(codes) for codes in (one, two)]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def variations(real: Cells, other: Cells) -> tuple[float, float]:
    """Return the mean total variation of all pairs, and of all columns."""
    pairs = []
    for i, j in itertools.combinations(range(len(real)), 2):
        width = 1 + int(max(real[j].max(), other[j].max()))
        pairs.append(variation(real[i] * width + real[j], other[i] * width + other[j]))
    return float(np.mean(pairs)), float(np.mean([variation(*both) for both in zip(real, other, strict=True)]))


def auc(train: pa.Table, test: pa.Table, target: str, positive: str) -> float:
    """Return the AUC of a model that is fitted to one table, for the rows of another one."""
    numbers = [place for place, field in enumerate(train.drop([target]).schema) if is_number(field.type)]
    others = [place for place in range(train.num_columns - 1) if place not in numbers]

    def matrix(table: pa.Table) -> NDArray[Any]:
        columns = [
            [0.0 if one is None else float(one) for one in column.to_pylist()] if place in numbers
            else ["" if one is None else str(one) for one in column.to_pylist()]
            for place, column in enumerate(table.drop([target]).columns)
        ]  # fmt: skip
        return np.array(columns, dtype=object).T

    labels = [np.array([str(one) == positive for one in table.column(target).to_pylist()]) for table in (train, test)]
    model = make_pipeline(
        make_column_transformer((StandardScaler(), numbers), (OneHotEncoder(handle_unknown="ignore"), others)),
        LogisticRegression(max_iter=500),
    ).fit(matrix(train), labels[0])
    return float(roc_auc_score(labels[1], model.predict_proba(matrix(test))[:, 1]))


def stated(context: dpsql.Context, table: pa.Table) -> dict[str, Any]:
    """Return bounds and keys of a table, as an owner might state them."""
    numbers = [field.name for field in table.schema if is_number(field.type)]
    texts = [field.name for field in table.schema if not is_number(field.type)]
    ends = {
        side: {
            name: float(context.sql(f'SELECT {side}("{name}") AS e FROM t').column(0)[0].as_py()) for name in numbers
        }
        for side in ("min", "max")
    }
    keys = {name: sorted({str(one) for one in table.column(name).to_pylist() if one is not None}) for name in texts}
    return {"lower": ends["min"], "upper": ends["max"], "keys": keys}


def apart(table: pa.Table) -> pa.Table:
    """Return a table with each column in an order of its own."""
    orders = np.random.default_rng(0).permuted(np.tile(np.arange(table.num_rows), (table.num_columns, 1)), axis=1)
    columns = [column.take(pa.array(order)) for column, order in zip(table.columns, orders, strict=True)]
    return pa.table(dict(zip(table.column_names, columns, strict=True)))


def main(path: str, target: str, positive: str, runs: int, most: int) -> None:
    table = pq.read_table(path)
    for run in range(runs):
        order = np.random.default_rng(run).permutation(table.num_rows)[:most]
        test, train = table.take(order[: len(order) // 5]), table.take(order[len(order) // 5 :])
        print(f"run {run}: {train.num_rows} rows x {train.num_columns}, auc of real rows "
              f"{auc(train, test, target, positive):.3f}")  # fmt: skip
        for epsilon, way, aim in itertools.product(RATES, ("public", "private"), ("target", "none")):
            with dpsql.Context() as context:
                context.connection.register("frame", train)
                context.sql("CREATE TABLE t AS FROM frame")
                given = stated(context, train) if way == "public" else {"private_keys": True}
                given |= {"target": target} if aim == "target" else {}
                before = time.process_time()
                context.dp_synthetic("t", epsilon=epsilon, delta=1e-5, release="s", **given)
                drawn = time.process_time()
                twin = context.dp_synthetic_rows("s")
                seconds = drawn - before, time.process_time() - drawn
            twins = {aim: twin, **({"apart": apart(twin)} if aim == "none" else {})}
            for name, made in twins.items():
                pairs, columns = variations(cells(train, train), cells(train, made))
                print(
                    f"  epsilon {epsilon:4} {way:8} {name:6} pairs {pairs:.4f} columns {columns:.4f} "
                    f"auc {auc(made, test, target, positive):.3f} cpu {seconds[0]:.2f} + {seconds[1]:.2f} s"
                )


if __name__ == "__main__":
    usual = ["2", str(10**9)]
    more = sys.argv[4:] + usual[len(sys.argv[4:]) :]
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(more[0]), int(more[1]))

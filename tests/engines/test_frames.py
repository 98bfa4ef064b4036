"""The namespace `dp` of Polars frames: the functions of SQL, one budget per dataset, and rows that are read once."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import dpsql
import dpsql.polars
from dpsql import frames
from dpsql.functions.registry import FUNCTIONS
from support.cases import cases

SPENDING = {name: known for name, known in FUNCTIONS.items() if known.spends}
ROWS = 3000


def rows() -> pl.DataFrame:
    generator = np.random.default_rng(3)
    age = generator.uniform(20, 90, ROWS)
    return pl.DataFrame(
        {
            "patient": np.arange(ROWS) // 3,
            "ward": generator.choice(["A", "B", "C"], ROWS),
            "age": age,
            "bmi": generator.normal(25, 4, ROWS),
            "days": age / 2 + generator.normal(0, 3, ROWS),
            "ill": age + generator.normal(0, 9, ROWS) > 60,
        }
    )


@pytest.fixture(autouse=True)
def ctx() -> Iterator[dpsql.Context]:
    with dpsql.polars.use() as made:
        yield made
    frames._contexts.clear()


def method(name: str) -> Any:
    return getattr(frames.Frames, name.removeprefix("dp_"))


@cases("name", SPENDING)
def test_a_method_is_the_function_of_its_name(name: str) -> None:
    arguments = {key: one for key, one in SPENDING[name].plan.arguments.items() if key not in ("dataset", "engine")}
    found = inspect.signature(method(name)).parameters
    assert list(found) == ["self", *arguments]
    for key, one in arguments.items():
        expected = inspect.Parameter.empty if one.required else one.default
        assert found[key].default == expected
        assert found[key].kind is inspect.Parameter.KEYWORD_ONLY
    text = inspect.getdoc(method(name))
    assert text is not None
    assert text.startswith(SPENDING[name].doc)
    for one in arguments.values():
        assert one.doc in text


@pytest.mark.parametrize("lazy", [False, True], ids=["eager", "lazy"])
def test_a_workflow(ctx: dpsql.Context, lazy: bool) -> None:
    frame: Any = rows().lazy() if lazy else rows()
    patients = frame.dp.of("patients")
    patients.dp.protect(epsilon=2000, delta=1e-3, privacy_unit="patient", max_rows_per_unit=3)
    counts = patients.dp.count(by="ward", keys=["A", "B", "C"], epsilon=100)
    assert isinstance(counts, pl.DataFrame)
    assert counts["value"].sum() == pytest.approx(ROWS, abs=3)
    assert counts.dp.release.dataset == "patients"
    assert counts.dp.release.guarantee.startswith("pure 100-DP")
    chosen = patients.dp.sis(target="days", features=["bmi", "age"], k=1, epsilon=100, lower=0, upper=100,
                             target_lower=0, target_upper=60)  # fmt: skip
    assert chosen["feature"].to_list() == ["age"]
    fit = patients.dp.linear_regression(target="days", features=chosen, epsilon=100, delta=1e-5)
    assert fit["coefficient"][1] == pytest.approx(0.5, abs=0.05)
    predicted = patients.dp.predict(fit)
    assert isinstance(predicted, type(frame))
    assert predicted.dp.dataset == "patients"
    metrics = predicted.dp.regression_metrics(target="days", prediction="prediction", epsilon=100, lower=0, upper=60)
    assert metrics.dp.release.value.num_rows == len(metrics)
    assert ctx.dp_budget()["epsilon_spent"].to_pylist() == [400.0]


def test_what_cannot_be_summed_runs_over_the_columns_that_it_reads() -> None:
    chosen = rows().lazy().dp.of("patients").dp.kendall(target="days", features=["bmi", "age"], k=1, epsilon=100)
    assert chosen["feature"].to_list() == ["age"]
    assert chosen.dp.release.engine is None


class Counting:
    """A lazy frame that counts how often its rows are made."""

    def __init__(self) -> None:
        self.times = 0
        frame = rows()

        def made(_: pl.DataFrame) -> pl.DataFrame:
            self.times += 1
            return frame

        self.frame = pl.LazyFrame({"one": [1]}).map_batches(made, schema=frame.schema)


def test_a_lazy_frame_is_run_once_for_each_release() -> None:
    source = Counting()
    frame = source.frame.dp.of("patients")
    repr(frame), frame.dp.dataset, frame.dp.count.__doc__
    assert source.times == 0
    once = frame.dp.count(epsilon=1)
    assert source.times == 1
    repr(once), repr(once.dp.release), once.dp.release.noise, once.dp.release.to_pandas()
    assert source.times == 1
    frame.dp.linear_regression(target="days", features=["age"], epsilon=9, delta=1e-5)  # three passes
    assert source.times == 2
    frame.dp.kendall(target="days", features=["bmi", "age"], k=1, epsilon=9)  # keeps rows
    assert source.times == 3
    named = frame.dp.count(epsilon=1, release="how many")
    assert frame.dp.count(epsilon=1, release="how many").equals(named)
    assert source.times == 4


def test_budgets_are_those_of_tables(ctx: dpsql.Context) -> None:
    frame = rows()
    with pytest.raises(dpsql.ParameterError, match="P081"):
        frame.dp.protect(epsilon=1)
    patients = frame.dp.of("patients")
    with pytest.raises(dpsql.SourceError, match="S002"):
        patients.dp.protect(epsilon=1, privacy_unit="person", max_rows_per_unit=1)
    patients.dp.protect(epsilon=1, privacy_unit="patient", max_rows_per_unit=3)
    with pytest.raises(dpsql.SourceError, match="S025"):
        frame.dp.count(epsilon=0.5)  # of nobody, once something is protected
    with pytest.raises(dpsql.SourceError, match="S025"):
        frame.dp.of("others").dp.count(epsilon=0.5)
    with pytest.raises(dpsql.SourceError, match="S025"):
        patients.filter(pl.col("age") > 50).dp.count(epsilon=0.5)  # another frame
    assert ctx.dp_ledger().filter(ctx.dp_ledger()["kind"].to_numpy(zero_copy_only=False) == "release").num_rows == 0
    counted = patients.filter(pl.col("age") > 50).dp.of("patients").dp.count(epsilon=0.5)
    assert "patient" in counted.dp.release.guarantee
    with pytest.raises(dpsql.BudgetError, match="B001"):
        patients.dp.count(epsilon=0.75)
    with pytest.raises(dpsql.ParameterError, match="P016"):
        patients.dp.count(epsilon=0.5, dataset="others")
    assert frame.dp.dataset is None


def test_a_result_knows_its_release_and_what_is_made_of_it_does_not() -> None:
    found = rows().dp.of("patients").dp.count(epsilon=1)
    assert found.dp.release.ledger_id == 1
    with pytest.raises(AttributeError, match="is no release"):
        _ = found.filter(pl.col("value") > 0).dp.release


TYPED = {
    "Enum": pl.Series(["x", "y", None] * 100, dtype=pl.Enum(["x", "y"])),
    "Categorical": pl.Series(["x", "y", None] * 100, dtype=pl.Categorical),
    "Boolean": pl.Series([True, False, None] * 100),
    "Date": pl.Series([date(2020, 1, 1), date(2020, 1, 2), None] * 100),
    "Int8": pl.Series([1, 2, None] * 100, dtype=pl.Int8),
}
KEYS: dict[str, list[Any]] = {
    "Boolean": [True, False],
    "Date": [date(2020, 1, 1), date(2020, 1, 2)],
    "Int8": [1, 2],
}


@cases("kind", TYPED)
@cases("unit", [{}, {"privacy_unit": "id", "max_rows_per_unit": 1}], ids=["row", "unit"])
def test_types_group_as_they_are(kind: str, unit: dict[str, Any]) -> None:
    frame = pl.DataFrame({"id": range(300), "group": TYPED[kind]}).lazy().dp.of("typed")
    found = frame.dp.count(by="group", keys=KEYS.get(kind, ["x", "y"]), epsilon=100, **unit)
    assert found["value"].to_list() == pytest.approx([100, 100], abs=1)


@pytest.mark.parametrize(
    "kind", [pl.Array(pl.Float64, 2), pl.List(pl.Float64), pl.Array(pl.Float32, 2)], ids=["Array", "List", "Float32"]
)
def test_vectors_are_features(kind: Any) -> None:
    generator = np.random.default_rng(1)
    values = generator.uniform(0, 1, (2000, 2))
    frame = pl.DataFrame({"x": pl.Series(values.tolist(), dtype=kind), "y": values[:, 1] > 0.5})
    for lazy in (frame, frame.lazy()):
        found = lazy.dp.of("vectors").dp.sis(target="y", features="x", n_features=2, k=1, epsilon=100, lower=0, upper=1)
        assert found["feature"].to_list() == ["x[2]"]


def test_a_type_that_means_nothing_is_refused_before_a_charge(ctx: dpsql.Context) -> None:
    frame = pl.DataFrame({"x": [b"1", b"2"], "y": [True, False]}).dp.of("bytes")
    with pytest.raises(dpsql.SourceError, match="S003"):
        frame.dp.sis(target="y", features=["x"], k=1, epsilon=1, lower=0, upper=1)
    assert ctx.dp_ledger().num_rows == 0


def test_levels_become_columns_of_zero_and_one() -> None:
    frame = pl.DataFrame({"ward": ["A", "B", None, "Z"], "visits": [1, 2, 1, None], "age": [1.0, 2.0, 3.0, 4.0]})
    for lazy in (frame, frame.lazy()):
        made = lazy.dp.of("patients").dp.one_hot({"ward": ["A", "B"], "visits": [1]})
        assert made.dp.dataset == "patients"
        found = made.lazy().collect()
        assert found.columns == ["age", "ward=A", "ward=B", "visits=1"]
        assert found.drop("age").rows() == [(1, 0, 1), (0, 1, 0), (0, 0, 1), (0, 0, 0)]
    with pytest.raises(dpsql.SourceError, match="S002"):
        frame.dp.one_hot({"site": ["A"]})


@pytest.mark.parametrize("kind", [pl.Int64, pl.String, pl.Categorical])
def test_a_split_keeps_units_together_and_is_that_of_sql(kind: Any) -> None:
    frame = rows().with_columns(pl.col("patient").cast(pl.String).cast(kind))
    for lazy in (frame, frame.lazy()):
        train, test = (part.lazy().collect() for part in lazy.dp.of("patients").dp.split("patient", test=0.3, key="k"))
        sides = set(train["patient"].to_list()), set(test["patient"].to_list())
        assert not sides[0] & sides[1]
        assert len(train) + len(test) == ROWS
        assert 230 < len(sides[1]) < 370  # 1000 units at 0.3: 4.8 standard deviations
    with dpsql.connect() as con:
        con.register("frame", frame.with_columns(pl.col("patient").cast(pl.String)).to_arrow())
        found = con.sql("SELECT DISTINCT patient FROM frame WHERE dp_split(patient, 'k', test := 0.3)").fetchall()
        assert {str(one) for (one,) in found} == {str(one) for one in sides[1]}
        assert con.sql("SELECT dp_split(NULL, 'k')").fetchall() == [(None,)]


def test_a_split_without_a_key_is_another_one_each_time_and_keeps_the_dataset() -> None:
    frame = rows().dp.of("patients")
    first, second = (frame.dp.split("patient")[1] for _ in range(2))
    assert set(first["patient"]) != set(second["patient"])
    assert first.dp.dataset == "patients"
    for wrong in (0, 1, -1, float("nan")):
        with pytest.raises(dpsql.ParameterError, match="P006"):
            frame.dp.split("patient", test=wrong)
    with pytest.raises(dpsql.SourceError, match="S002"):
        frame.dp.split("person")
    gone = pl.DataFrame({"patient": [1, None]}).dp.split("patient")
    assert sum(map(len, gone)) == 1


def test_a_split_in_sql_is_charged_to_the_table() -> None:
    with dpsql.connect() as con:
        con.execute("CREATE TABLE patients AS SELECT range // 3 AS patient, range % 10 AS x FROM range(9000)")
        con.execute("SELECT dp_protect('patients', epsilon := 9, privacy_unit := 'patient', max_rows_per_unit := 3)")
        con.execute("CREATE VIEW train AS FROM patients WHERE NOT dp_split(patient, 'k')")
        con.execute("CREATE VIEW test AS FROM patients WHERE dp_split(patient, 'k')")
        sizes = [
            con.sql(f"SELECT value FROM dp_count('{side}', epsilon := 4)").fetchall()[0][0]
            for side in ("train", "test")
        ]
        assert sum(sizes) == pytest.approx(9000, abs=60)
        assert con.sql("SELECT dataset, epsilon_spent FROM dp_budget()").fetchall() == [("patients", 8.0)]


def test_the_namespace_comes_with_its_module_alone() -> None:
    code = (
        "import sys, dpsql; assert 'polars' not in sys.modules; import polars as pl; "
        "assert not hasattr(pl.DataFrame, 'dp'); import dpsql.polars; assert hasattr(pl.LazyFrame, 'dp')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).resolve().parents[2])


@pytest.mark.long
def test_a_frame_is_not_copied() -> None:
    """From outside: the peak of a process grows by much less than its frame of 640 MB."""
    root = Path(__file__).resolve().parents[2]
    script = [sys.executable, str(root / "benchmarks" / "polars_memory.py"), "--rows", "4000000"]
    done = subprocess.run(
        script, check=True, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(root)}
    )
    size, grown = map(float, re.findall(r"([\d.]+) MB", done.stdout))
    assert size > 600
    assert grown < 0.6 * size, (size, grown)

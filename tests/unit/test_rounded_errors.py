"""Standard deviations are shown to four digits, rounded up; a missing library is named with what installs it."""

from __future__ import annotations

import builtins
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpsql
from dpsql.arrays import rounded_up
from support.cases import cases


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_four_digits_are_never_less_than_the_error(error: float) -> None:
    [shown] = rounded_up(pa.array([error])).to_pylist()
    assert error * (1 - 1e-11) <= shown <= error * (1 + 1.001e-3)
    assert float(f"{shown:.4g}") == shown


def test_what_is_no_number_stays() -> None:
    given = pa.array([None, 0.0, math.inf, math.nan, 2.8, 0.1, 190.00000000000003])
    shown = rounded_up(given).to_pylist()
    assert shown[:3] == [None, 0.0, math.inf]
    assert math.isnan(shown[3])
    assert shown[4:] == [2.8, 0.1, 190.0]
    assert rounded_up(pa.array([], type=pa.float64())).to_pylist() == []


@cases(("method", "library"), [("to_pandas", "pandas"), ("to_polars", "polars")], quick=1, alone=True)
def test_a_missing_library_is_named(method: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with dpsql.Context() as ctx:
        ctx.sql("CREATE TABLE t AS SELECT 1 AS x")
        release = ctx.dp_count("t", epsilon=1)
        load = builtins.__import__

        def lacking(name: str, *rest: Any) -> Any:
            if name.partition(".")[0] == library:
                raise ModuleNotFoundError(f"No module named {library!r}", name=library)
            return load(name, *rest)

        monkeypatch.setattr(builtins, "__import__", lacking)
        if method == "to_pandas":  # Arrow imports it once, and keeps it
            monkeypatch.setattr(type(release), "value", property(lambda _: _Lacking()), raising=False)
        with pytest.raises(dpsql.ParameterError, match=rf"P092.*pip install {library}"):
            getattr(release, method)()


class _Lacking:
    def to_pandas(self) -> Any:
        raise ModuleNotFoundError("No module named 'pandas'", name="pandas")

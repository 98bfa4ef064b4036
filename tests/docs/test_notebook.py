"""The notebook spends when its button is pressed, and not when its slider moves."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("marimo")
pytest.importorskip("sklearn")
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("default")]

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "notebook.py"


def cells() -> Any:
    spec = importlib.util.spec_from_file_location("notebook", NOTEBOOK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.app


def run(epsilon: float, *, pressed: bool, known: dict[str, Any]) -> dict[str, Any]:
    """Run every cell with the slider and the button as given; `known` stands for cells that do not run again."""
    controls = {"epsilon": SimpleNamespace(value=epsilon), "button": SimpleNamespace(value=pressed)}
    _, found = cells().run(defs={**controls, "is_script": False, "asked": pressed, **known})
    return dict(found)


def spent(known: dict[str, Any]) -> list[tuple[int, float]]:
    return [(row["releases"], row["epsilon_spent"]) for row in known["ctx"].dp_budget().to_pylist()]


def test_only_the_button_spends() -> None:
    first = run(0.5, pressed=False, known={})
    known = {name: first[name] for name in ("ctx", "data", "tumours")}
    for epsilon in (0.1, 1.0, 2.0):
        moved = run(epsilon, pressed=False, known=known)
        assert moved["call"]["epsilon"] == epsilon
        assert "release" not in moved
    assert spent(known) == [(0, 0.0)]
    assert run(2.0, pressed=True, known=known)["release"].verdict
    assert run(2.0, pressed=True, known=known)["release"].replayed
    assert spent(known) == [(1, 2.0)]
    run(1.0, pressed=True, known=known)
    assert "release" not in run(1.5, pressed=True, known=known)  # more than the 1 that remains: refused and shown
    assert spent(known) == [(2, 3.0)]
    known["ctx"].close()


def test_the_button_is_a_run_button(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is true for one run; a checkbox would stay on, and each move of the slider would spend."""
    monkeypatch.setattr("sys.argv", ["notebook.py", str(tmp_path)])
    _, found = cells().run()
    assert type(found["button"]).__name__ == "run_button"
    assert found["asked"] is True  # a script releases once
    assert found["release"].ledger_id
    assert (tmp_path / "notebook.svg").read_text(encoding="utf-8").count("<svg") == 1
    found["ctx"].close()

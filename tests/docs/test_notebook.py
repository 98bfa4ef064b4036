"""The notebook spends when its button is pressed, and not when its slider moves."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
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
    _, found = cells().run(defs={**controls, "is_script": False, **known})
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


def test_a_script_releases_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["notebook.py", str(tmp_path)])
    _, found = cells().run()
    assert spent(found) == [(1, 0.5)]
    assert (tmp_path / "notebook.svg").read_text(encoding="utf-8").count("<svg") == 1
    found["ctx"].close()


def test_in_a_browser_the_slider_is_free(tmp_path: Path) -> None:
    """With marimo's own kernel, in which a button that was pressed once might stay pressed."""
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("needs chromium")
    playwright = pytest.importorskip("playwright.sync_api")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["-m", "marimo", "run", "--headless", "--no-token", "-p", str(port), str(NOTEBOOK)]
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(
            [sys.executable, *command],
            cwd=tmp_path,
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONPATH": str(NOTEBOOK.parents[1])},
        ) as server,
        playwright.sync_playwright() as started,
    ):
        try:
            wait_for(port)
            page = started.chromium.launch(executable_path=browser, args=["--no-sandbox"]).new_page()
            page.goto(f"http://127.0.0.1:{port}")
            slider, button = page.get_by_role("slider").first, page.get_by_text("Release and charge")
            page.get_by_text("would charge epsilon 0.5").wait_for(timeout=60_000)
            button.click()
            page.get_by_text("epsilon 3.5 of 4 remains").wait_for()
            for epsilon in ("1", "2"):
                slider.press("ArrowRight")
                page.get_by_text(f"would charge epsilon {epsilon}.").wait_for()
            button.click()
            page.get_by_text("epsilon 1.5 of 4 remains").wait_for()
        finally:
            server.terminate()


def wait_for(port: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return

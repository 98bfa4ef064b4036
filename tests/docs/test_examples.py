"""Every example runs, on real data where they are and on made-up rows elsewhere, and the gallery shows its picture."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from support.cases import cases

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
# Those that draw; each writes a picture of its own name.
# Their pictures are made by `dpsql plot`: tests/integration/test_jobs.py and test_dbt.py run them.
PLOTTED = {"dbt", "nightly"}
DRAWN = {
    "additive",
    "ages",
    "correlations",
    "gene_expression",
    "hospital_counts",
    "hospital_readmission",
    "house_prices",
    "notebook",
    "polars_pipeline",
    "spam_filter",
    "synthetic_twin",
    "tumour_classifier",
}
NEEDS = {"notebook": "marimo", "sail_job": "pysail"}
GALLERY = ROOT / "docs" / "examples.md"


def check_picture(path: Path) -> None:
    """A picture of less than 60 kB on a transparent ground, with colours that show on white and on nearly black."""
    text = path.read_text(encoding="utf-8")
    assert ElementTree.fromstring(text).tag.endswith("svg")
    assert path.stat().st_size < 60_000
    colours = set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", text))
    assert colours
    assert [colour for colour in colours if min(contrast(colour, "#ffffff"), contrast(colour, "#121212")) < 2.3] == []


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, from 1 to 21, as web pages are judged by (WCAG 2)."""
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.long
@cases("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path: Path, tmp_path: Path) -> None:
    if path.stem in NEEDS:
        pytest.importorskip(NEEDS[path.stem])
    run(path, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["correlations", "gene_expression", "hospital_readmission", "house_prices", "spam_filter"]
)
def test_example_runs_without_the_real_data(name: str, tmp_path: Path) -> None:
    """In a folder that has no ../shared/data."""
    (tmp_path / "examples").mkdir()
    path = tmp_path / "examples" / f"{name}.py"
    path.write_text((ROOT / "examples" / path.name).read_text(encoding="utf-8"), encoding="utf-8")
    run(path, tmp_path)


def run(path: Path, folder: Path) -> None:
    pictures = folder / "pictures"
    pictures.mkdir()
    done = subprocess.run(
        [sys.executable, str(path), str(pictures)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(folder)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    drawn = list(pictures.glob("*.svg"))
    assert [picture.stem for picture in drawn] == [path.stem] * (path.stem in DRAWN)
    for picture in drawn:
        check_picture(picture)


@pytest.mark.long
@cases(
    ("name", "releases"),
    [
        ("counts", 4),
        ("select", 3),
        ("model", 6),
        ("classify", 6),
        ("many_questions", 5),
        ("nothing_known", 7),
        ("is_it_real", 6),
        ("hospital_tables", 6),
        ("plain_sql", 4),
    ],
)
def test_sql_example_runs(name: str, releases: int) -> None:
    import dpsql

    con = dpsql.connect()
    try:
        for statement in con.extract_statements((ROOT / "examples" / f"{name}.sql").read_text(encoding="utf-8")):
            con.execute(statement).fetchall()
        assert con.execute("SELECT count(*) FROM dp_ledger() WHERE status = 'released'").fetchall() == [(releases,)]
    finally:
        con.close()


def test_the_gallery_has_a_line_for_every_example() -> None:
    text = GALLERY.read_text(encoding="utf-8")
    examples = {path.name for path in (ROOT / "examples").iterdir() if path.suffix in {".py", ".sql"}}
    assert set(re.findall(r"`examples/([\w.]+\.(?:py|sql))`", text)) == examples
    assert set(re.findall(r"\]\(pictures/(\w+)\.svg\)", text)) == DRAWN | PLOTTED


@cases("name", sorted(DRAWN | PLOTTED))
def test_the_gallery_shows_its_picture(name: str) -> None:
    check_picture(ROOT / "docs" / "pictures" / f"{name}.svg")


@pytest.mark.parametrize(
    ("svg", "fault"),
    [
        ("<svg><path style='fill: #ffffff'/></svg>", "a white ground"),
        ("<svg><path style='stroke: #000000'/></svg>", "black ink"),
        ("<svg></svg>", "nothing drawn"),
        (f"<svg><path style='fill: #2f80c8'/><!--{' ' * 60_000}--></svg>", "too large"),
    ],
)
def test_a_bad_picture_is_found(svg: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / "bad.svg").write_text(svg, encoding="utf-8")
    with pytest.raises(AssertionError):
        check_picture(tmp_path / "bad.svg")

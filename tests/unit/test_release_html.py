"""What a notebook shows of a release: the receipt, the rows, the verdict and a picture, and no more than was released."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest

import dpsql
from dpsql import Release
from dpsql.released.release import MOST_ROWS, row_texts
from support.cases import cases

VOID = {"br", "use", "path", "rect"}


class Page(HTMLParser):
    """Reads HTML: its text, and which elements it has; it fails where one is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())


@pytest.fixture
def ctx() -> Iterator[dpsql.Context]:
    with dpsql.Context() as opened:
        opened.sql("CREATE TABLE t AS SELECT i % 40 AS k, i % 7 AS x, i % 7 + i % 3 AS y FROM range(4000) AS r(i)")
        opened.dp_protect("t", epsilon=100, delta=1e-5)
        yield opened


def html(release: Release) -> str:
    return release._repr_html_()


@pytest.mark.long
def test_receipt_rows_and_picture(ctx: dpsql.Context) -> None:
    release = ctx.dp_count("t", by="k", keys=list(range(40)), epsilon=1, release="<b>")
    page = Page(html(release))
    assert f"{release.ledger_id} of dp_count on t" in page.texts
    assert release.guarantee in page.texts
    assert "once, with this release" in page.texts
    assert page.texts.count(str(release.verdict)) == MOST_ROWS + 1
    assert f"and {40 - MOST_ROWS} more rows" in page.texts
    assert page.tags.count("svg") == 1
    assert html(release) == html(release)

    again = ctx.dp_count("t", by="k", keys=list(range(40)), epsilon=1, release="<b>")
    assert f"nothing: {again.replay}" in Page(html(again)).texts


PRINTED: list[tuple[dict[str, object], list[str]]] = [
    ({"value": 0.11266612345, "lower": 0.11263594, "upper": 0.11269594}, ["0.112666", "0.112636", "0.112696"]),
    ({"value": 1234567.0, "lower": 1234561.0, "upper": 1234573.0}, ["1234567", "1234561", "1234573"]),
    ({"value": 1234.5678, "lower": 1034.56, "upper": 1434.57}, ["1235", "1035", "1435"]),
    ({"n": 3, "n_lower": 2.12345, "n_upper": 4.12345}, ["3", "2.1", "4.1"]),
    ({"auc": 0.5123456, "lower": 0.5, "upper": 0.53}, ["0.512", "0.5", "0.53"]),
    ({"value": -2e-9, "lower": -3e-9, "upper": -1e-9}, ["-0.000000002", "-0.000000003", "-0.000000001"]),
    ({"value": 0.123456789, "lower": None, "upper": 0.2}, ["0.123457", "", "0.2"]),
    ({"value": 7.0, "lower": 7.0, "upper": 7.0}, ["7", "7", "7"]),
    ({"value": None, "lower": None, "upper": None}, ["", "", ""]),
    ({"other": 1.23456789, "lower": 1.0, "upper": 1.5}, ["1.23457", "1", "1.5"]),
]


@cases(("row", "texts"), PRINTED)
def test_numbers_are_as_precise_as_their_intervals(row: dict[str, object], texts: list[str]) -> None:
    assert [*row_texts(row).values()] == texts


@pytest.mark.long
def test_values_are_text_and_not_markup(ctx: dpsql.Context) -> None:
    key = "<script>alert(1)</script>&amp;"
    ctx.sql(f"CREATE TABLE s AS SELECT '{key}' AS k")
    ctx.dp_public("s")
    page = Page(html(ctx.dp_count("s", by="k", keys=[key], epsilon=5)))
    assert "script" not in page.tags
    assert key in page.texts


@pytest.mark.long
def test_a_model_is_drawn_on_one_scale(ctx: dpsql.Context) -> None:
    ctx.sql("CREATE VIEW scaled AS SELECT x, 1000 * k AS k, y FROM t")
    release = ctx.dp_linear_regression(
        "scaled",
        target="y",
        method="boosted_ada_ssp",
        epsilon=50,
        delta=1e-6,
        lower=0,
        upper={"x": 6, "k": 39000},
        target_lower=0,
        target_upper=8,
    )
    ax = release.plot()
    rows = {row["term"]: row for row in release.value.to_pylist()}
    drawn = dict(
        zip(
            (text.get_text() for text in ax.get_yticklabels()),
            ax.containers[0].lines[0].get_xdata().tolist(),
            strict=True,
        )
    )
    assert drawn == {"x": 6 * rows["x"]["coefficient"], "k": 39000 * rows["k"]["coefficient"]}
    assert list(drawn) == ["x", "k"]
    assert "lower to upper bound" in ax.get_xlabel()
    plain = release.plot("coefficients").containers[0].lines[0].get_xdata()
    assert sorted(plain) == sorted(row["coefficient"] for term, row in rows.items() if term != "intercept")
    assert "lower to upper bound" in html(release)


@pytest.mark.long
def test_without_matplotlib_or_a_picture(ctx: dpsql.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    selected = ctx.dp_sis("t", target="y", k=1, epsilon=1, lower=0, upper=40, target_lower=0, target_upper=8)
    assert "svg" not in Page(html(selected)).tags
    counted = ctx.dp_count("t", epsilon=1)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "svg" not in Page(html(counted)).tags


def test_after_the_connection_was_closed() -> None:
    with dpsql.Context() as ctx:
        ctx.sql("CREATE TABLE t AS SELECT 1 AS x")
        release = ctx.dp_count("t", epsilon=1)
    assert f"{release.ledger_id} of dp_count on t" in Page(html(release)).texts

"""SQL macros, Python lists of arguments and the pages of the functions speak of the same functions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import dpsql
from dpsql.contract.names import OTHER_NAMES
from dpsql.functions.estimate import ESTIMATE
from dpsql.functions.registry import DECLARATIONS, FUNCTIONS
from support.cases import cases

FUNCTION_PAGES = Path(__file__).resolve().parents[2] / "docs" / "functions"


def macros() -> list[tuple[str, str, list[str]]]:
    with dpsql.connect() as connection:
        return connection.execute(  # type: ignore[no-any-return]
            "SELECT function_name, function_type, parameters FROM duckdb_functions() "
            "WHERE database_name = 'temp' AND function_type LIKE '%macro'"
        ).fetchall()


MACROS = macros()


def signature(name: str, kind: str) -> list[str]:
    [found] = [
        parameters
        for function, what, parameters in MACROS
        if (function, what) == (name, kind) and parameters[0] != "release"
    ]
    return found


@cases("name", FUNCTIONS)
def test_table_form_takes_what_the_plan_reads(name: str) -> None:
    assert signature(name, "table_macro") == ["source", *FUNCTIONS[name].plan.arguments]


def test_an_area_is_read_off_a_release_by_its_name() -> None:
    assert ("dp_auc", "table_macro", ["release", "dataset"]) in MACROS


@cases("name", FUNCTIONS)
def test_aggregate_form_takes_what_makes_sense_there(name: str) -> None:
    arguments = FUNCTIONS[name].plan.arguments.values()
    columns = [column for column in ("x", "y", "p") if any(argument.column == column for argument in arguments)]
    if not columns:
        assert (name, "macro") not in [(function, kind) for function, kind, _ in MACROS]
        return
    rest = {argument.name for argument in arguments if not argument.column and not argument.table_only}
    assert not rest & {"privacy_unit", "max_rows_per_unit", "row_id", "value", "by", "condition", "engine"}
    aggregate = signature(name, "macro")
    assert aggregate[: len(columns)] == columns
    assert set(aggregate[len(columns) :]) == rest


@pytest.mark.parametrize(("exact", "name"), [("exact_xty", "dp_sis"), ("exact_discordant", "dp_kendall")])
def test_exact_form_takes_what_shapes_the_statistic(exact: str, name: str) -> None:
    spending = {"k", "epsilon", "neighbours", "mechanism", "gamma", "center", "center_share", "dataset", "release"}
    spending |= {"engine", "during", "split", "blocks", "score", "verdict_share", "verdict", "n_rows"}
    assert set(signature(exact, "table_macro")) == {"source", *FUNCTIONS[name].plan.arguments} - spending


def test_estimate_takes_what_it_reads() -> None:
    assert signature("dp_estimate", "table_macro") == ["function", *ESTIMATE]


@cases("name", sorted({row[0] for row in MACROS if not row[0].startswith("dpsql_")} - OTHER_NAMES.keys()))
def test_every_function_has_a_page_with_all_arguments(name: str) -> None:
    assert name.startswith(("dp_", "exact_")) or name == "release"
    assert f"]({name}.md)" in (FUNCTION_PAGES / "index.md").read_text(encoding="utf-8")
    page = (FUNCTION_PAGES / f"{name}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {name}\n")
    table = page.partition("\n## Arguments\n")[2].partition("\n## ")[0]
    listed = set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
    forms = [set(parameters) for function, _, parameters in MACROS if function == name]
    # The columns of an aggregate form stand in its signature.
    assert set().union(*forms) - {"x", "y", "p"} <= listed
    assert all(re.search(rf"\b{name}\((.*\b)?{column}\b", page) for form in forms for column in form - listed)
    if name in FUNCTIONS:
        assert set(FUNCTIONS[name].plan.arguments) <= listed


@cases("name", [*FUNCTIONS, *DECLARATIONS, "dp_estimate"])
def test_every_argument_says_what_it_means_in_whole_sentences(name: str) -> None:
    signature = FUNCTIONS[name].plan.arguments if name in FUNCTIONS else {**DECLARATIONS, "dp_estimate": ESTIMATE}[name]
    for argument in signature.values():
        assert re.fullmatch(r"[A-Z'].*[^.]\.", argument.doc), argument.name
        assert len(argument.doc) > 15, argument.name
        if isinstance(argument.default, str):
            assert argument.default in argument.choices, argument.name


@cases("page", sorted(FUNCTION_PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_no_heading_of_a_page_stands_twice(page: Path) -> None:
    headings = re.findall(r"^#+ .*$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(headings) == len(set(headings))


def test_private_functions_are_volatile_and_see_nulls() -> None:
    """Without that DuckDB shares one draw, freezes it at PREPARE and skips empty sums."""
    from dpsql.udfs.specs import SPECS

    pure = {spec.name for spec in SPECS if spec.pure}
    assert pure == {
        *("dpsql_plan", "dpsql_spellings", "dpsql_type_queries", "dpsql_estimate"),
        *("dpsql_query_tables", "dpsql_query_cores", "dpsql_query_plan", "dpsql_other_name"),
        "dpsql_query_parsed",
        *(
            "dpsql_model",
            "dpsql_predict",
            "dpsql_predict_class",
            "dpsql_predictions",
            "dpsql_numeric",
            "dpsql_synthetic",
        ),
    }
    registered: list[dict[str, Any]] = []

    class Recorder:
        def create_function(self, name: str, *_: Any, **flags: Any) -> None:
            registered.append({"name": name, **flags})

    for spec in SPECS:
        spec.register(Recorder(), lambda: None, "VARCHAR")  # type: ignore[arg-type]
    assert all(flags["null_handling"] == "special" for flags in registered)
    assert {flags["name"] for flags in registered if not flags["side_effects"]} == pure

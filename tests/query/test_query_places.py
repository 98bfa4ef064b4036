"""A refusal says where in the text stands what it is of, and names the columns of the line to write."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import dpsql
from support.answers import private
from support.cases import cases
from support.worlds import hospital


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    with dpsql.connect() as opened:
        hospital(opened)
        yield opened


def refusal(con: Any, sql: str) -> str:
    with pytest.raises(duckdb.Error) as refused:
        con.execute(private(sql))
    found = re.search(r"\[DPSQL-.*", str(refused.value))
    assert found is not None, refused.value
    return found.group()


# What is refused: the text before it, its words, and the text behind.
@cases(
    ("before", "words", "behind"),
    [
        ("SELECT ward,\n  ", "min(visit_date)", "\nFROM visits GROUP BY ward"),
        ("SELECT 'é' AS é, ", "sum(DISTINCT days)", "\nFROM visits"),
        ("SELECT count(*) FROM visits\nWHERE days > 1\n  AND ", "hash(days) = 3", ""),
        ("SELECT count(*) FROM visits WHERE days > ", "(SELECT avg(days) FROM visits)", ""),
        ("SELECT doctor, count(*) FROM visits GROUP BY ", "doctor", ""),
        ("SELECT sum(", "nothing", "\n) FROM visits"),
        ("SELECT avg(s) FROM (SELECT patient, ", "stddev(days)", "\nAS s FROM visits GROUP BY patient)"),
        ("SELECT count(*) FROM (SELECT patient, ", "rank() OVER (ORDER BY days)", "\nFROM visits)"),
        ("SELECT count(*) FROM patients WHERE ", "age IN (SELECT days FROM visits)", ""),
        ("SELECT ward,\n\n\t", "(SELECT count(*) FROM visits v\n", "WHERE v.ward = w.ward) FROM wards w"),
        ("SELECT count(*) FROM (SELECT days FROM visits LIMIT ", "3", "\n)"),
        ("SELECT ", "getvariable('x')", "\nFROM wards"),
        ("SELECT ", "COLUMNS('d.*')", "\nFROM visits"),
    ],
    quick=4,
)
def test_a_refusal_says_where_it_stands(con: Any, before: str, words: str, behind: str) -> None:
    said = refusal(con, before + words + behind)
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    shown = repr(words.split("\n")[0])
    assert said.endswith(f"It stands at line {line}, column {column}: {shown}."), said


def test_long_words_are_cut(con: Any) -> None:
    said = refusal(con, f"SELECT min(days + {' + '.join(['1'] * 20)}) FROM visits")
    assert re.search(r"column 8: 'min\(.{30,40}\.\.\.'\.$", said), said


@cases(
    ("sql", "condition"),
    [
        ("SELECT count(*) FROM patients p, visits v WHERE p.age = v.days", "p.id = v.patient"),
        ("SELECT count(*) FROM visits a JOIN visits b USING (ward) WHERE a.days > 2", "a.patient = b.patient"),
        ("SELECT count(*) FROM visits v, labs WHERE taken = visit_date", "labs.visit = v.id"),
        ("SELECT count(*) FROM labs l JOIN visits ON taken = visit_date WHERE true", "l.visit = visits.id"),
        ("SELECT count(*) FROM patients p, labs l WHERE p.age = l.result", ""),
    ],
    quick=2,
)
def test_people_that_would_meet_have_the_condition_to_add(con: Any, sql: str, condition: str) -> None:
    said = refusal(con, sql)
    assert "DPSQL-S012" in said
    found = re.search(r"Add the condition (\S+ = \S+),", said)
    assert (found.group(1) if found else "") == condition, said
    if found:
        assert con.execute(private(f"{sql} AND {found.group(1)}")).fetchall()


def test_a_subquery_of_others_has_the_equality_to_add(con: Any) -> None:
    sql = "SELECT count(*) FROM patients p WHERE EXISTS (SELECT 1 FROM visits v WHERE v.days = p.age{})"
    found = re.search(r"equates it, (\S+ = \S+)\.", refusal(con, sql.format("")))
    assert found is not None
    assert con.execute(private(sql.format(f" AND {found.group(1)}"))).fetchall()


def test_a_name_of_two_tables_stands_behind_its_table(con: Any) -> None:
    joined = "FROM patients p JOIN visits v ON p.id = v.patient"
    assert "quantile_cont(v.id, 0.01)" in refusal(con, f"SELECT min(v.id) {joined}")
    assert "quantile_cont(days, 0.99)" in refusal(con, f"SELECT max(v.days) {joined}")


def test_two_stages_of_several_rows_go_by_a_public_table(con: Any) -> None:
    sql = "SELECT count(*) FROM visits v WHERE days > (SELECT avg(days) FROM visits w WHERE w.ward = v.ward)"
    said = refusal(con, sql)
    assert "DPSQL-P105" in said
    made = re.search(r"(CREATE TABLE answer AS FROM) dp_query\(\.\.\.\), of which (SELECT dp_public\('answer'\))", said)
    assert made is not None
    con.execute(
        f"{made.group(1)} {private('SELECT ward, avg(days) AS m FROM visits GROUP BY ward').removeprefix('FROM ')}"
    )
    con.execute(made.group(2))
    [[found]] = con.execute(private("SELECT count(*) FROM visits JOIN answer USING (ward) WHERE days > m")).fetchall()
    assert [(found,)] == con.execute(sql).fetchall()

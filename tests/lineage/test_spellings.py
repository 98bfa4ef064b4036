"""Every spelling of protected rows is charged to their budget, or refused: plain, prepared, through Context and the shell.

The spellings are data, `cases/spellings.toml`, whose first lines say what a case holds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from stage import FIT, VERSION, filled, outcome, read, stage

import dpsql
from dpsql.ledger.ledger import Ledger
from support.cases import cases
from support.sessions import ledger_of

FILE = read("spellings")
CASES_FILE = Path(__file__).parent / "cases" / "spellings.toml"
Case = dict[str, Any]
OUTCOMES = ("charged", "refused")


def here(case: Case) -> Case:
    """Return a case as this version of DuckDB has it."""
    own = case.get(f"on_{VERSION}")
    return case if own is None else {name: case[name] for name in case if name not in OUTCOMES} | own


CASES: list[Case] = [
    {**here(case), "group": group}
    for group, cases in FILE["cases"].items()
    for case in cases
    if case.get("only", VERSION) == VERSION
]
FRAME = pa.table({"a": [0.5] * 9, "y": [0.5] * 9})
FRAMES = ("frames", "registered", "relations")


def statement(case: Case) -> str:
    """Return the call of a case."""
    if "call" in case:
        return str(case["call"])
    source = str(case.get("source", case.get("view"))).replace("'", "''")
    return f"FROM dp_sis('{source}', {{FIT}})"


@pytest.fixture(scope="module")
def z(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    path = tmp_path_factory.mktemp("spellings")
    con = stage(path, FILE["stage"])
    for case in CASES:
        if "view" in case:
            con.execute(f"CREATE VIEW {case['view']} AS {filled(case['sql'], path)}")
    yield con
    con.close()


def folder(con: Any) -> Path:
    [(path,)] = con.execute("SELECT path FROM duckdb_databases() WHERE database_name = 'z'").fetchall()
    return Path(path).parent


def judge(case: Case, con: Any, run: Any, path: Path) -> None:
    """Run a call between what its case prepares and undoes, and compare what it was charged to or refused with."""
    with ExitStack() as undone:
        if "before" in case:
            undone.callback(con.execute, filled(case["after"], path))
            con.execute(filled(case["before"], path))
        if "registered" in case:
            con.register(case["registered"], FRAME)
            undone.callback(con.unregister, case["registered"])
        for kind in {"frames", "relations"} & case.keys():
            globals()[case[kind]] = FRAME if kind == "frames" else con.sql("FROM z.main.patients")
            undone.callback(globals().pop, case[kind])
        charged, code = outcome(con, run)
    if case.get("or_refused") and code:
        return
    if case.get("refused") == "*":
        assert code not in ("", "DuckDB"), f"charged to {charged!r}"
    else:
        assert (charged, code) == (expected(case), case.get("refused", ""))


def expected(case: Case) -> str:
    return " ".join(sorted(case.get("charged", "").split()))


# Variables of Python are seen where a statement stands, not where a context runs it.
ARGUMENTS: dict[str, Any] = {
    **{"target": "y", "features": ["a"], "k": 1, "epsilon": 0.01, "lower": 0, "upper": 1},
    **{"target_lower": 0, "target_upper": 1},
}


def is_aggregate(case: Case) -> bool:
    """Whether a call is of the aggregate form, of which EXECUTE shows no plan: it is refused there."""
    return "dp_quantile(" in statement(case) and "dp_quantile('" not in statement(case)


def lasts(case: Case) -> bool:
    """Whether what a case is about is there on other connections, too."""
    return (
        not any(name in case for name in ("before", *FRAMES))
        and case.get("source") != "copied_temp"
        and "FROM answers" not in case.get("sql", "")  # a view over a call, whose name is in the temporary schema
    )


def plain(case: Case, z: Any, path: Path) -> None:
    judge(case, z, lambda: z.execute(filled(statement(case), path)).fetchall(), path)


def prepared(case: Case, z: Any, path: Path) -> None:
    def run() -> None:
        z.execute(f"PREPARE p AS {filled(statement(case), path)}")
        try:
            z.execute("EXECUTE p").fetchall()
        finally:
            z.execute("DEALLOCATE p")

    judge(case, z, run, path)


@lru_cache(maxsize=1)
def context_of(z: Any) -> dpsql.Context:
    return dpsql.Context(z)


def context(case: Case, z: Any, path: Path) -> None:
    source = filled(case.get("source", case.get("view")), path)
    judge(case, z, lambda: context_of(z).dp_sis(source, **ARGUMENTS), path)


def cursor(case: Case, z: Any, path: Path) -> None:
    with z.cursor() as cursor:
        sql = filled(statement(case), path).replace("dp_sis(", "dpsql.dp_sis(")
        judge(case, z, lambda: cursor.execute(sql).fetchall(), path)


# The doors through which a spelling may come, and which cases may take each.
DOORS: dict[Any, Callable[[Case], bool]] = {
    plain: lambda case: True,
    prepared: lambda case: statement(case).split()[0] in ("FROM", "SELECT", "WITH") and not is_aggregate(case),
    context: lambda case: not {"call", "frames", "relations"} & case.keys(),
    cursor: lambda case: lasts(case) and "call" not in case,
}


def through_doors() -> Iterator[Any]:
    """Every case through every door that it may take; through one of them, which its hash chooses, it is quick."""
    for case in CASES:
        name = " ".join(f"{case['group']}: {case.get('before', '')} {case.get('sql', '')} {statement(case)}".split())
        doors = [door for door, may in DOORS.items() if may(case)]
        chosen = doors[zlib.crc32(name.encode()) % len(doors)]
        for door in doors:
            marks = [] if door is chosen else [pytest.mark.long]
            yield pytest.param(case, door, marks=marks, id=f"{door.__name__}: {name[:100]}")


@cases("case, door", through_doors(), data=CASES_FILE)
def test_a_spelling(z: Any, case: Case, door: Callable[[Case, Any, Path], None]) -> None:
    door(case, z, folder(z))


@pytest.mark.long
@pytest.mark.odds("0: looks at charges")
@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.long), 12])
def test_through_the_shell(tmp_path: Path, step: int) -> None:
    con = stage(tmp_path, [*FILE["stage"]])
    for case in CASES:
        if "view" in case:
            con.execute(f"CREATE VIEW {case['view']} AS {filled(case['sql'], tmp_path)}")
    con.close()
    # What the connection alone holds is not there: functions of Python, variables, temporary and attached tables.
    lost = ("remembered", "getvariable", "secret", "temp", "which", "attached", "counter", "nothing'")
    cases = [
        (case, Fraction(20_000 + number, 1_000_000))
        for number, case in enumerate([case for case in CASES if lasts(case)][::step])
        if not any(word in f"{statement(case)} {case.get('sql', '')}".lower() for word in lost)
        and statement(case).count("{FIT}") == 1
        and "or_refused" not in case
        and "\n" not in statement(case)
    ]
    fit = FIT.replace("0.01", "{}")
    lines = [
        filled(statement(case).replace("{FIT}", fit.format(float(amount))), tmp_path) + ";\n" for case, amount in cases
    ]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path)}
    done = subprocess.run(
        [sys.executable, "-m", "dpsql", "shell", "z.duckdb"],
        cwd=tmp_path,
        env=environment,
        input="".join(lines),
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    refused = [case for case, _ in cases if case.get("refused")]
    assert done.returncode == 4
    assert done.stderr.count("DPSQL-") + done.stderr.count("Error: ") >= len(refused)
    charged: dict[Fraction, list[str]] = {}
    with closing(Ledger.open(tmp_path / "z.duckdb.dpsql-ledger")) as ledger:
        for entry in ledger.entries():
            if entry.kind == "release":
                charged.setdefault(Fraction(str(entry.epsilon)), []).append(entry.dataset)
    for case, amount in cases:
        assert " ".join(sorted(charged.get(amount, []))) == expected(case), statement(case)


def test_frames_in_a_context(z: Any) -> None:
    context, path = dpsql.Context(z), folder(z)
    judge({"refused": "S014"}, z, lambda: context.dp_sis(FRAME, **ARGUMENTS), path)
    judge({"charged": "patients"}, z, lambda: context.dp_sis(FRAME, dataset="patients", **ARGUMENTS), path)


def test_what_was_claimed_stands_in_the_ledger(z: Any) -> None:
    z.execute(f"FROM dp_sis('main.over_parquet', {FIT}, dataset := 'patients', release := 'claimed')").fetchall()
    ledger = ledger_of(z)
    entry = ledger.releases(["dp_sis"], key="claimed")[0]
    assert entry.dataset == "patients"
    assert entry.lineage is not None
    assert entry.lineage["claimed"] is True
    z.execute(f"FROM dp_sis('monthly', {FIT}, release := 'two')").fetchall()
    both = ledger.releases(["dp_sis"], key="two")[0].lineage
    assert both is not None
    assert both["charged"] == ["patients", "s.cohort"]
    assert "claimed" not in both


def test_there_are_enough_spellings() -> None:
    assert len(CASES) >= 200
    assert len(
        {
            (case["group"], case.get("before"), case.get("sql"), statement(case), *map(case.get, FRAMES))
            for case in CASES
        }
    ) == len(CASES)

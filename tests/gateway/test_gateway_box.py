"""Whole boxes: statements with their results, what stops them, and each layer without the other."""

from __future__ import annotations

import datetime
import json
import math
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from dpsql.functions.registry import FUNCTIONS
from dpsql.gateway import box, boxed, frames, statement, zygote
from dpsql.gateway.problems import GatewayError
from dpsql.gateway.serving import ONE_THREAD, Process
from support import BEFORE_2_0
from support.cases import cases
from support.gateway_boxes import LOCKED, boxes_in, running

CASES = [json.loads(line) for line in (Path(__file__).parent / "hostile.jsonl").read_text("utf-8").splitlines()]
ANSWER = pa.table({"n": [3, 1, 2], "key": ["a", "b", None]})
# Statements that reach for a file with a row of a person.
REACHING = (
    "SELECT * FROM read_csv('{0}/decoy.csv')",
    "SELECT * FROM '{0}/decoy.csv'",
    "SELECT content FROM read_text('{0}/decoy.csv')",
    "SELECT content::VARCHAR FROM read_blob('{0}/decoy.csv')",
    "SELECT * FROM query('FROM ''{0}/decoy.csv''')",
    "SELECT (SELECT name FROM '{0}/decoy.csv' LIMIT 1)",
    "WITH a AS (FROM read_csv_auto('{0}/decoy.csv')) SELECT * FROM a",
    "SELECT * FROM sniff_csv('{0}/decoy.csv')",
    "SELECT * FROM duckdb_secrets()",
    "SELECT getenv('DPSQL_DECOY') AS Ann",
    "SELECT * FROM glob('{0}/*')",
    "COPY (SELECT 1) TO '{0}/copied'",
    "ATTACH '{0}/made.duckdb' AS made",
)


@contextmanager
def planted_in(folder: Path, planted: str, words: Sequence[str] = ()) -> Iterator[box.Boxes]:
    """Serve boxes of a program that has something planted."""
    path = folder / "zygote"
    Path(folder, "planted_zygote.py").write_text(
        f"from dpsql.gateway import boxed, zygote, statement\n{planted}\nzygote.main()"
    )
    process = Process("planted", ["planted_zygote", "--socket", str(path), *words])
    process.more = {**ONE_THREAD, "DPSQL_DECOY": "Ann", "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    with running(process, path) as found:
        yield found


@pytest.fixture
def reachable() -> Iterator[Path]:
    """Make a folder that everybody may read and write: boxes of root are of nobody, who does not enter `tmp_path`."""
    with tempfile.TemporaryDirectory(prefix="dpsql-boxes-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        (folder / "decoy.csv").write_text("id,name\n7,Ann\n")
        (folder / "decoy.csv").chmod(0o666)
        yield folder


@pytest.fixture(scope="module")
def boxes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[box.Boxes]:
    with boxes_in(tmp_path_factory.mktemp("boxes")) as found:
        yield found


def asked(boxes: box.Boxes, text: str, *answers: pa.Table) -> dict[str, list[object]]:
    with boxes.open() as opened:
        statement = opened.parse(text)
        given = answers or (ANSWER,) * len(statement.calls)
        return opened.finish(given).to_pydict()


def refused(boxes: box.Boxes, text: str, *answers: pa.Table) -> str:
    with pytest.raises(GatewayError) as caught:
        asked(boxes, text, *answers)
    return caught.value.code.removeprefix("DPSQL-")


@cases(
    ("text", "result"),
    [
        ("SELECT 1 AS x", {"x": [1]}),
        ("SELECT * FROM dp_count('v')", {"n": [3, 1, 2], "key": ["a", "b", None]}),
        ("SELECT n + 1 AS m, key FROM dp_count('v') WHERE n > 1 ORDER BY n", {"m": [3, 4], "key": [None, "a"]}),
        ("SELECT count(*) FROM people", {"n": [3, 1, 2], "key": ["a", "b", None]}),
        ("SHOW TABLES", {"n": [3, 1, 2], "key": ["a", "b", None]}),
        ("SELECT sum(n) OVER (ORDER BY n ROWS 1 PRECEDING) AS s FROM dp_count('v') ORDER BY s", {"s": [1, 3, 5]}),
        ("WITH c AS (FROM dp_count('v')) SELECT max(n) - (SELECT min(n) FROM c) AS d FROM c", {"d": [2]}),
        ("WITH released_0 AS (SELECT 7 AS n) SELECT sum(n)::INTEGER AS s FROM dp_count('v')", {"s": [6]}),
        ("SELECT a.n FROM dp_count('v') a LEFT JOIN dp_count('v') b ON a.n = b.n + 1 WHERE b.n IS NULL", {"n": [1]}),
        ("SELECT n FROM dp_count('v') UNION SELECT 3 EXCEPT SELECT 1 ORDER BY 1", {"n": [2, 3]}),
        ("SELECT key, count(*) FROM dp_count('v') GROUP BY key HAVING key = 'a'", {"key": ["a"], "count_star()": [1]}),
        ("SELECT date_trunc('month', DATE '2020-02-03')::DATE AS m", {"m": [datetime.date(2020, 2, 1)]}),
        ("SELECT n / 0 AS z FROM dp_count('v') WHERE n IN (SELECT 1)", {"z": [None]}),
    ],
    quick=1,
)
def test_statements_over_answers(boxes: box.Boxes, text: str, result: dict[str, list[object]]) -> None:
    found = asked(boxes, text)
    if "/ 0" in text:
        found = {"z": [None if value in (None, float("inf")) else value for value in found["z"]]}
    assert found == result


@cases(
    ("text", "whole"),
    [
        ("SELECT * FROM dp_count('v')", True),
        ("FROM dp_count('v') AS t", True),
        ("SELECT count(*) AS n FROM people WHERE age > 3", True),
        ("SHOW TABLES", True),
        ("DESCRIBE people", True),
        ("SELECT * FROM dp_count('v') LIMIT 1", False),
        ("SELECT * FROM dp_count('v') ORDER BY n", False),
        ("SELECT n, key FROM dp_count('v')", False),
        ("SELECT * EXCLUDE (n) FROM dp_count('v')", False),
        ("SELECT DISTINCT * FROM dp_count('v')", False),
        ("SELECT * FROM dp_count('v') AS t(a)", False),
        ("SELECT * FROM dp_count('v') WHERE n > 1", False),
        ("WITH released_0 AS (SELECT 7 AS n) SELECT * FROM dp_count('v')", False),
        ("SELECT * FROM dp_count('v'), dp_count('w')", False),
        ("SELECT 1", False),
        ("SET epsilon = 1", False),
    ],
    quick=10,
)
def test_what_needs_no_second_half(boxes: box.Boxes, text: str, whole: bool) -> None:
    """A whole statement's result is the answer of its call, as the box would have it."""
    with boxes.open() as opened:
        statement = opened.parse(text)
        assert statement.is_whole == whole
        if whole:
            assert opened.finish([ANSWER]) == ANSWER


@cases("function", sorted(FUNCTIONS), quick=6)
def test_what_a_function_returns_is_in_types_that_duckdb_keeps(function: str) -> None:
    """So an answer that goes through a box and one that does not have the same types."""
    given = pa.schema(list(FUNCTIONS[function].shape.arrow)).empty_table()
    with boxed.connect() as connection:
        boxed.add_table(connection, "released_0", boxed.stream_of(given))
        assert boxed._run(connection, statement.WHOLE, 1).schema == given.schema


def test_settings_need_no_answer(boxes: box.Boxes) -> None:
    with boxes.open() as opened:
        assert opened.parse("SET epsilon = 0.5").settings == {"epsilon": {"number": "0.5"}}


def test_what_fails_over_answers_has_a_code(boxes: box.Boxes) -> None:
    assert refused(boxes, "SELECT nope FROM dp_count('v')") == "G091"
    assert refused(boxes, "SELECT CAST(key AS INTEGER) FROM dp_count('v')") == "G091"
    many = pa.table({"n": list(range(2000))})
    assert refused(boxes, "SELECT a.n FROM dp_count('v') a, dp_count('v') b, dp_count('w') c", many, many) == "G092"
    large = "SELECT string_agg(concat(a.n, b.n, c.n, 'x', 'yyyyyyyyyyyyyyyyyyyyyyyyy')) FROM dp_count('v') a, dp_count('v') b, dp_count('v') c"
    assert refused(boxes, large, many) in ("G093", "G099")


@pytest.mark.parametrize("shape", ["{}", "[{}]", "{{'a': {}}}"])
def test_numbers_that_arrow_has_not(boxes: box.Boxes, shape: str) -> None:
    """DuckDB hands on a HUGEINT as a DECIMAL of 38 digits, whatever it holds."""
    assert asked(boxes, f"SELECT {shape.format('-' + '9' * 38)} AS x")["x"] != []
    assert refused(boxes, f"SELECT {shape.format(f'({2**127 - 1})::HUGEINT')} AS x") == "G091"


def test_answers_that_are_no_tables_end_the_box(boxes: box.Boxes) -> None:
    with boxes.open() as opened:
        opened.parse("FROM dp_count('v')")
        with pytest.raises(GatewayError) as caught:
            opened.finish([b"no stream"])
    assert caught.value.code == "DPSQL-G099"
    with boxes.open() as opened:
        opened.parse("FROM dp_count('v')")
        with pytest.raises(GatewayError) as caught:
            opened.finish([])
    assert caught.value.code == "DPSQL-G098"


def test_hostile_statements_through_whole_boxes(boxes: box.Boxes) -> None:
    """Some of each class, among them those that are too deep for a parser."""
    for case in CASES[::12]:
        text = (
            case["text"] if isinstance(case["text"], str) else "".join(piece * times for piece, times in case["text"])
        )
        if case["code"] is None or isinstance(case["code"], list) or len(text.encode("utf-8", "replace")) > 1 << 19:
            continue
        assert refused(boxes, text) == case["code"], text[:100]


def test_numbers_that_arrow_has_not_are_refused_and_infinite_ones_are_read(boxes: box.Boxes) -> None:
    """2^127 left a box as -2^127, and 40 digits as time or memory; 1e400 was written as the column infe0."""
    assert refused(boxes, f"SELECT {2**127}") == "G091"
    assert refused(boxes, f"SELECT [{2**127}] AS a") == "G091"
    if not BEFORE_2_0:
        assert refused(boxes, f"SELECT {10**39}") == "G090"  # DuckDB writes no plan of it
    for sql, value in (("SELECT 1e400", math.inf), ("SELECT -1e400", -math.inf), (f"SELECT {2**126}", 2**126)):
        assert list(asked(boxes, sql).values()) == [[value]]
    deep = "SELECT 1 AS n" + " UNION ALL SELECT 2" * 300 + " ORDER BY ALL"
    assert len(asked(boxes, deep)["n"]) == 301
    many = ", ".join(f"a{number} AS (SELECT 1)" for number in range(400))
    assert refused(boxes, f"WITH {many} SELECT 1") == "G003"


@pytest.mark.skipif(not LOCKED, reason="this system has no Landlock or no seccomp")
def test_a_box_is_locked_alone_and_has_its_channel_alone(boxes: box.Boxes) -> None:
    with boxes.open() as opened:
        opened.parse("FROM dp_count('v')")
        given = opened._channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        listening = zygote._CREDENTIALS.unpack(given)[0]  # of who listens
        children = Path(f"/proc/{listening}/task/{listening}/children").read_text().split()
        assert children
        for child in map(Path, (f"/proc/{one}" for one in children)):
            status = dict(line.split(":\t", 1) for line in (child / "status").read_text().splitlines())
            if status["State"].startswith("Z"):
                continue
            assert (status["Seccomp"], status["NoNewPrivs"], status["Threads"]) == ("2", "1", "1")
            opens = [os.readlink(one) for one in (child / "fd").iterdir()]
            assert sum(one.startswith("socket:") for one in opens) == 1
            assert {one for one in opens if not one.startswith("socket:")} <= {"/dev/null"}


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="this system does not list threads")
def test_boxes_are_forked_from_one_thread(tmp_path: Path) -> None:
    """Planted: a library that starts a thread; its locks would be no one's in a box."""
    planted = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    with pytest.raises(AssertionError, match="has ended"), planted_in(tmp_path, planted):
        pass


def test_boxes_inherit_nothing_of_each_other(boxes: box.Boxes) -> None:
    """What one box makes in its database, and how it locks it, no other one sees; planted names are free again."""
    for _ in range(2):
        assert asked(boxes, "SELECT n FROM dp_count('v') WHERE n > 2") == {"n": [3]}
    with boxes.open() as first, boxes.open() as second:
        assert len(first.parse("SELECT n + 1 AS m FROM dp_count('v')").calls) == 1
        assert second.parse("SELECT 1 AS x").calls == ()
        assert first.finish([ANSWER]).num_rows == 3
        assert second.finish([]).to_pydict() == {"x": [1]}


def test_a_socket_that_is_there_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes from the name to the first connection; planted: a name that stands before."""
    seen = []

    class Listening(socket.socket):
        def listen(self, *given: int) -> None:
            seen.append((tmp_path / "zygote").exists())
            super().listen(*given)
            raise KeyboardInterrupt

    monkeypatch.setattr(zygote.socket, "socket", Listening)
    monkeypatch.setattr(zygote, "ready", boxed.connect)
    monkeypatch.setattr(zygote.signal, "signal", lambda *_: None)
    monkeypatch.setattr(zygote.os, "environ", {})
    with pytest.raises(KeyboardInterrupt):
        zygote.serve(tmp_path / "zygote", locked=False)
    assert seen == [False]


def test_boxes_that_cannot_be_reached(tmp_path: Path) -> None:
    with pytest.raises(GatewayError) as caught:
        box.Boxes(tmp_path / "none").open()
    assert caught.value.code == "DPSQL-G036"


@pytest.mark.long
def test_what_runs_too_long_is_stopped(boxes: box.Boxes) -> None:
    many = pa.table({"n": list(range(2000))})
    text = "SELECT count(*) FROM dp_count('v') a, dp_count('v') b, dp_count('v') c WHERE a.n + b.n * c.n = 3"
    assert refused(boxes, text, many) == "G099"
    assert asked(boxes, "SELECT 1 AS x") == {"x": [1]}


def reach(boxes: box.Boxes, folder: Path) -> tuple[list[str], list[str]]:
    """Return what the statements that reach for a file show of it, and their codes."""
    shown, codes = [], []
    for text in REACHING:
        try:
            shown.append(str(list(asked(boxes, text.format(folder)).values())))
        except GatewayError as error:
            codes.append(error.code)
    return shown, codes


@pytest.mark.long
@pytest.mark.skipif(not LOCKED, reason="this system has no Landlock or no seccomp")
def test_without_the_walk_no_row_comes_out(reachable: Path) -> None:
    """Planted: the text of the stranger runs as it is; the lock and the judged plan hold."""
    planted = "boxed.read = lambda text, parse: statement.Statement((), {}, text)"
    with planted_in(reachable, planted) as found:
        shown, codes = reach(found, reachable)
        assert asked(found, "SELECT 1 AS x") == {"x": [1]}
    assert "Ann" not in "".join(shown)
    assert len(codes) >= 10
    assert {path.name for path in reachable.iterdir()} - {"__pycache__"} == {"decoy.csv", "zygote", "planted_zygote.py"}


@pytest.mark.long
def test_without_the_lock_and_the_plan_no_row_comes_out(reachable: Path) -> None:
    """Planted: nothing but the walk is left; it refuses them all."""
    planted = "boxed.check_plan = lambda text, count: None"
    with planted_in(reachable, planted, ["--without-os-sandbox"]) as found:
        shown, codes = reach(found, reachable)
    assert "Ann" not in "".join(shown)
    assert len(codes) == len(REACHING) - len(shown)
    assert {path.name for path in reachable.iterdir()} - {"__pycache__"} == {"decoy.csv", "zygote", "planted_zygote.py"}


@pytest.mark.long
def test_without_both_a_row_comes_out(reachable: Path) -> None:
    """The statements do reach for the file: with neither layer they get it."""
    planted = (
        "boxed.read = lambda text, parse: statement.Statement((), {}, text)\n"
        "boxed.check_plan = lambda text, count: None\n"
        "boxed._released = lambda connection, asked, blobs: boxed._run(connection, asked.post, 0)"
    )
    with planted_in(reachable, planted, ["--without-os-sandbox"]) as found:
        assert "Ann" in "".join(reach(found, reachable)[0])


@cases(
    "sql",
    [
        "SELECT * FROM people",
        "SELECT 1 WHERE EXISTS (SELECT * FROM people)",
        "SELECT * FROM released_2",
        "SELECT * FROM range(3)",
        "SELECT * FROM duckdb_tables()",
        "SELECT unnest([1, 2])",
        "WITH RECURSIVE r AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM r WHERE x < 3) SELECT * FROM r",
        "SELECT * FROM other.released_0",
        "SELECT * FROM s.released_0",
        "INSERT INTO people VALUES (1)",
    ],
    quick=8,
)
def test_plans_that_scan_anything_else(sql: str) -> None:
    with boxed.connect() as connection:
        connection.execute("CREATE TABLE released_0 (n INTEGER); CREATE TABLE released_1 (n INTEGER)")
        connection.execute("CREATE TABLE people (n INTEGER); CREATE TABLE released_2 (n INTEGER); CREATE SCHEMA s")
        connection.execute("CREATE TABLE s.released_0 (n INTEGER); ATTACH ':memory:' AS other")
        connection.execute("CREATE TABLE other.released_0 (n INTEGER)")

        def plan(text: str) -> str:
            return connection.execute("SELECT json_serialize_plan(?)", [text]).fetchall()[0][0]

        boxed.check_plan(plan("SELECT a.n FROM released_0 a JOIN released_1 b ON a.n = b.n WHERE a.n IN (1, 2)"), 2)
        with pytest.raises(GatewayError):
            boxed.check_plan(plan(sql), 2)


@pytest.mark.long
def test_a_connection_of_a_box_starts_no_thread() -> None:
    shown = (
        "import os; from dpsql.gateway import boxed, sandbox\n"
        "if os.fork() == 0:\n"
        "    c = boxed.connect(); c.execute('SELECT 1').fetchall(); sandbox.check_alone()\n"
        "    import pyarrow as pa; boxed.add_table(c, 'released_0', boxed.stream_of(pa.table({'n': [1]})))\n"
        "    boxed._run(c, 'SELECT n FROM main.released_0', 1); sandbox.check_alone(); os._exit(0)\n"
        "raise SystemExit(os.waitpid(-1, 0)[1])"
    )
    subprocess.run([sys.executable, "-c", shown], env={**os.environ, **ONE_THREAD}, check=True)


def test_an_answer_of_a_box_that_was_taken_over_is_judged() -> None:
    left, right = socket.socketpair()
    with left, box.Box(right, 5) as opened:
        for header, blobs in (
            ({"error": {"code": "X1"}}, []),
            ({"error": 3}, []),
            ({"calls": 3, "settings": {}}, []),
            ({"calls": [3], "settings": {}}, []),
            ({"calls": [{"function": 3}], "settings": {}}, []),
            ({"calls": []}, []),
            ({"calls": [], "settings": {}, "whole": True}, []),
        ):
            frames.send(left, header, blobs)
            with pytest.raises(GatewayError) as caught:
                opened.parse("SELECT 1")
            assert caught.value.code == "DPSQL-G098"
        stream = bytearray(boxed.stream_of(ANSWER))
        for blobs in ([], [b"x"], [bytes(stream[:-30])]):
            frames.send(left, {}, blobs)
            with pytest.raises(GatewayError) as caught:
                opened.finish([])
            assert caught.value.code == "DPSQL-G098"


def test_duckdb_is_of_a_version_that_this_knows() -> None:
    assert int(duckdb.__version__.split(".")[0]) in (1, 2)

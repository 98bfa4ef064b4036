"""No error of a function of Python shows a row, whatever object stands where a name or a number was meant.

Frames, series, arrays, dicts, lists, generators, models and exceptions that hold marked values stand in for every
argument of every public function and method, one at a time, with the others valid. The marks are then looked for in
the texts of the error, in what it came from, in the variables of the innermost frame of dpsql, in logs and on stderr.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import logging
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from test_arguments_at_extremes import CALLS

import dpsql
import dpsql.polars
from dpsql.contract import boundary, parameters
from dpsql.contract.grant_fields import Asker
from dpsql.contract.parameters import is_literal, show
from dpsql.errors import DpsqlError, GatewayError, original
from dpsql.functions.registry import FUNCTIONS
from dpsql.gateway.audit import Audit
from dpsql.gateway.problems import problem_of
from dpsql.remote import Remote, _refusal
from support.cases import cases

# Texts that are no words of a message, and a number: of each what `repr`, SQL and other spellings show.
NAMES = ("name-one", "markedname")
NUMBER = 7391.25
MARKS = (*NAMES, "7391.25")
HOME = (str(Path(dpsql.__file__).parent), str(Path(dpsql.__file__).parents[1] / "udfs"))


# Arguments that are texts of a language, or places: what they hold is the words of the caller.
TEXTS = {"condition", "sql", "statement", "job", "database", "path", "ledger", "url", "name"}


class MarkedError(Exception):
    """An exception of another package that quotes rows."""


class Lines:
    """An object whose own texts are rows."""

    def __str__(self) -> str:
        return f"{NAMES[0]} {NUMBER}"

    __repr__ = __str__

    def __iter__(self) -> Iterator[str]:
        raise MarkedError(str(self))


def rows_of_people() -> dict[str, Callable[[], Any]]:
    """Return what makes an object of marked rows, by its kind; a generator is made anew for each call."""
    names, numbers = list(NAMES), [NUMBER, 3.0]
    frame = pl.DataFrame({"name": names, "age": numbers})
    with dpsql.Context() as ctx:
        ctx.connection.execute("CREATE TABLE t AS SELECT random() AS y, random() AS a FROM range(50)")
        call: dict[str, Any] = {"lower": 0, "upper": 1, "target_lower": 0, "target_upper": 1, "epsilon": 10}
        release = ctx.dp_linear_regression("t", target="y", features=["a"], method="ada_ssp", delta=1e-6, **call)
        model = dataclasses.replace(
            ctx.model(release),
            feature_names_in_=np.array(names, dtype=object),
            coef_=np.array(numbers),
            target=names[0],
        )
    return {
        "Polars frame": lambda: frame,
        "lazy frame": frame.lazy,
        "pandas frame": lambda: pd.DataFrame({"name": names, "age": numbers}),
        "Arrow table": lambda: pa.table({"name": names, "age": numbers}),
        "series": lambda: frame["name"],
        "series of numbers": lambda: frame["age"],
        "pandas series": lambda: pd.Series(names),
        "array": lambda: np.array(names),
        "array of numbers": lambda: np.array([[NUMBER], [3.0]]),
        "array of one dimension": lambda: np.array(numbers),
        "Arrow array": lambda: pa.array(names),
        "dict": lambda: dict(zip(names, numbers, strict=True)),
        "dict of columns": lambda: frame.to_dict(as_series=False),
        "rows": frame.to_dicts,
        "tuples": frame.rows,
        "list": lambda: list(names),
        "list of numbers": lambda: list(numbers),
        "set": lambda: set(names),
        "generator": lambda: (name for name in names),
        "generator of numbers": lambda: iter(numbers),
        "cell": lambda: np.array(names)[0],
        "date": lambda: pd.Timestamp("2026-01-01").replace(nanosecond=0),
        "text of a frame": frame.write_json,
        "lines of a frame": frame.write_csv,
        "model": lambda: model,
        "exception": lambda: MarkedError(*names, NUMBER),
        "object": Lines,
    }


def shown(value: object, depth: int = 0) -> str:
    """Return what a tool that shows variables would show of a value, and what its parts are."""
    if isinstance(value, str | int | float | type(None)):
        return str(value)
    text = [repr(value)]
    if isinstance(value, dict) and depth < 3:
        text += [shown(part, depth + 1) for pair in value.items() for part in pair]
    elif isinstance(value, list | tuple | set | frozenset) and depth < 3:
        text += [shown(part, depth + 1) for part in value]
    elif isinstance(value, pa.Table | pa.Array):
        text.append(str(value.to_pylist()))
    elif isinstance(value, BaseException):
        text += [shown(value.args, depth + 1), shown(vars(value), depth + 1)]
    return " ".join(text)


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all that it came from."""
    yield error
    for below in (error.__cause__, error.__context__):
        if below is not None:
            yield from chain(below)


def texts_of(error: BaseException) -> Iterator[tuple[str, str]]:
    """Yield every text of an error that a log or a person may see, and where it is."""
    for one in chain(error):
        yield "text", shown(one)
        yield "notes", " ".join(getattr(one, "__notes__", ()))
        if isinstance(one, DpsqlError):
            yield "hint", str(one.hint)
    yield "traceback", "".join(traceback.format_exception(error))
    innermost = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith(HOME):
            innermost = trace.tb_frame
        trace = trace.tb_next
    if innermost is not None:
        yield "locals", " ".join(shown(value) for value in innermost.f_locals.values())


class Watch:
    """Runs calls, and keeps what they show of marked rows."""

    def __init__(self, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
        self._capfd, self._caplog = capfd, caplog
        self.kinds = rows_of_people()
        self.found: list[str] = []
        self.refused = self.answered = 0

    def call(self, what: str, run: Callable[[], object]) -> None:
        """Run a call; note each mark in what it raises, logs or prints."""
        before = len(self._caplog.records)
        texts: list[tuple[str, str]] = []
        try:
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                run()
            self.answered += 1
        except Exception as error:
            self.refused += 1
            texts += texts_of(error)
            if not isinstance(error, DpsqlError | TypeError | OSError | AttributeError | ImportError | duckdb.Error):
                self.found.append(f"{what}: {type(error).__name__} of another package")
        texts += [("warning", str(one.message)) for one in told]
        texts += [("log", record.getMessage()) for record in self._caplog.records[before:]]
        texts.append(("stderr", self._capfd.readouterr().err))
        self.found += [
            f"{what}: {mark} in its {where}: {text[:300]}" for where, text in texts for mark in MARKS if mark in text
        ]

    def each(
        self, what: str, function: Callable[..., object], given: dict[str, Any], names: Any = None, *, share: int = 1
    ) -> None:
        """Call a function with the kinds of rows in the place of each argument: with all, or with some in turns."""
        for place, name in enumerate(names or given):
            for kind, make in list(self.kinds.items())[place % share :: share]:
                if name in TEXTS and isinstance(make(), str):
                    continue
                self.call(f"{what}({name}={kind})", lambda name=name, make=make: function(**{**given, name: make()}))

    def nothing(self) -> None:
        """Raise if a mark was found, or nothing was tried."""
        assert not self.found, f"{len(self.found)} of {self.refused + self.answered}:\n" + "\n".join(self.found[:30])
        assert self.refused > 5


@pytest.fixture
def watch(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Watch:
    caplog.set_level(logging.DEBUG)
    return Watch(capfd, caplog)


def table() -> pl.DataFrame:
    """Return the table that the calls of other tests read."""
    numbers = [place / 60 for place in range(60)]
    columns: dict[str, Any] = dict.fromkeys("yacp", numbers)
    return pl.DataFrame({**columns, "b": [place % 2 == 0 for place in range(60)], "u": [p // 2 for p in range(60)]})


@pytest.fixture(scope="module")
def duck() -> Iterator[dpsql.Context]:
    with dpsql.Context() as context:
        context.connection.register("given", table().to_arrow())
        context.connection.execute("CREATE TABLE t AS SELECT * FROM given")
        yield context


def python_value(context: dpsql.Context, text: str) -> Any:
    [[value]] = context.connection.execute(f"SELECT {text}").fetchall()
    return value


def valid(context: dpsql.Context, name: str) -> dict[str, Any]:
    return {argument: python_value(context, value) for argument, value in CALLS[name][0].items()}


# Arguments are checked in few places: every kind of rows is tried with two functions, a sixth of the kinds with others,
# in turns; and some in every run.
ALL = ("dp_count", "dp_linear_regression")
TRIED = [
    ("dp_count", 12),
    *(pytest.param(name, 1 if name in ALL else 6, marks=pytest.mark.long) for name in FUNCTIONS),
]


def arguments_of(name: str) -> list[str]:
    return ["source", *FUNCTIONS[name].plan.arguments]


@pytest.mark.long
@cases(("name", "share"), TRIED)
def test_methods_of_a_context(watch: Watch, duck: dpsql.Context, name: str, share: int) -> None:
    given = {"source": "t", **valid(duck, name)}
    watch.each(name, getattr(duck, name), given, arguments_of(name), share=share)
    watch.nothing()


@pytest.mark.long
@cases(("name", "share"), TRIED)
def test_methods_on_an_engine_and_of_frames(watch: Watch, duck: dpsql.Context, name: str, share: int) -> None:
    given = valid(duck, name)
    context = dpsql.polars.use()
    watch.each(name, getattr(context, name), {"source": table(), **given}, arguments_of(name), share=share)
    method = getattr(table().dp.of("people").dp, name.removeprefix("dp_"))
    watch.each(f"frame.dp.{name}", method, given, FUNCTIONS[name].plan.arguments, share=share)
    watch.nothing()


@pytest.mark.long
def test_queries(watch: Watch, duck: dpsql.Context) -> None:
    dpsql.polars.use()
    given = {"sql": "SELECT b, count(*) AS n FROM t GROUP BY b", "epsilon": 1, "keys": {"b": [True, False]}}
    names = inspect.signature(duck.query).parameters
    watch.each("query", duck.query, given, names, share=15)
    frame = table().dp.of("people")
    watch.each(
        "frame.dp.query", frame.dp.query, {**given, "sql": given["sql"].replace("FROM t", "FROM self")}, names, share=5
    )
    watch.nothing()


def public_methods(owner: object) -> dict[str, Callable[..., object]]:
    known = (name for name in dir(type(owner)) if not name.startswith("_"))
    found = {name: getattr(owner, name) for name in known if inspect.isroutine(getattr(type(owner), name))}
    return {name: value for name, value in found.items() if inspect.isroutine(value)}  # others are made when asked for


# Methods that are tried above, and those that have no arguments or end what the others need.
ABOVE = {*FUNCTIONS, "query", "dp_query", "select_then_fit", "close", *(name.removeprefix("dp_") for name in FUNCTIONS)}


@pytest.mark.long
def test_other_methods(watch: Watch, duck: dpsql.Context) -> None:
    """Each argument alone: of the others those that must be given are names of nothing, or of the table."""
    polars_context = dpsql.polars.use()
    frame = table().dp.of("people")
    release = duck.dp_count("t", epsilon=1, release="named")
    fitted = {"target": "y", "features": ["a"], "method": "ada_ssp", "delta": 1e-6, "lower": 0, "upper": 1}
    model = duck.model(duck.dp_linear_regression("t", epsilon=9, target_lower=0, target_upper=1, **fitted))
    tried = 0
    for owner in (duck, polars_context, frame.dp, release, model):
        for name, method in public_methods(owner).items():
            if name in ABOVE:
                continue
            parameters = inspect.signature(method).parameters
            known = {"function": "dp_count", "source": "t", "dataset": "t", "release": "named", "statement": "SELECT 1"}
            known |= {"levels": {"b": [True]}, "model": "named", "unit": "u", "key": "named", "table": "t", "sql": "x"}
            needed = [one for one in parameters.values() if one.default is inspect.Parameter.empty]
            given = {one.name: known.get(one.name, "t") for one in needed if one.kind is not one.VAR_KEYWORD}
            names = [one.name for one in parameters.values() if one.kind is not one.VAR_KEYWORD]
            for argument in names:
                watch.each(f"{type(owner).__name__}.{name}", method, given, [argument])
                tried += 1
    assert tried > 80
    watch.nothing()


@pytest.mark.long
def test_functions_of_the_package(watch: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    places = {"database": tmp_path / "x.duckdb", "path": tmp_path / "y.duckdb", "job": "SELECT 1;", "name": "polars"}
    functions = {
        **{
            f"dpsql.{name}": getattr(dpsql, name) for name in ("connect", "connect_remote", "install", "run", "example")
        },
        "dpsql.attach_engine": dpsql.attach_engine,
        "dpsql.Context": dpsql.Context,
        "from_json": dpsql.LinearModel.from_json,
        **{f"dpsql.polars.{name}": getattr(dpsql.polars, name) for name in dpsql.polars.__all__},
    }
    with duckdb.connect() as connection:
        known = {**places, "connection": connection, "engine": dpsql.polars.engine({}), "url": "http://localhost:1"}
        for what, function in functions.items():
            listed = inspect.signature(function).parameters.values()
            needed = [one for one in listed if one.default is inspect.Parameter.empty]
            given = {one.name: known.get(one.name, "t") for one in needed if one.kind is not one.VAR_KEYWORD}
            watch.each(what, function, given, [one.name for one in listed if one.kind is not one.VAR_KEYWORD])
    watch.nothing()


class Gateway(Remote):
    """A gateway without a server: what it is asked runs in a database, and refusals come as they do over HTTP."""

    def __init__(self, context: dpsql.Context) -> None:
        super().__init__("http://localhost:1", "token")
        self._context = context

    def _asked(self, path: str, body: bytes | None, accept: str) -> bytes:
        try:
            self._context.connection.execute(json.loads(body or b'{"sql": "SELECT 1"}')["sql"]).fetchall()
        except duckdb.Error as error:
            found = original(error) or GatewayError("G001", f"the statement is not read: {str(error).splitlines()[0]}")
            raise _refusal(400, json.dumps(problem_of(found).document).encode()) from None
        raise _refusal(400, b"answered")


@cases(("name", "share"), TRIED)
def test_methods_of_a_gateway(watch: Watch, duck: dpsql.Context, name: str, share: int) -> None:
    given = {"source": "t", **valid(duck, name)}
    watch.each(name, getattr(Gateway(duck), name), given, arguments_of(name), share=share)
    watch.nothing()


def test_the_log_of_a_gateway_has_lines_of_code_and_no_row(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def failing(rows: list[str]) -> None:
        try:
            int(rows[0])
        except ValueError as error:
            raise MarkedError(*rows) from error

    audit = Audit(tmp_path / "log")
    try:
        failing(list(NAMES))
    except MarkedError as error:
        audit.failure("1", error)
        assert problem_of(error).document["code"] == "I000"
    written = (tmp_path / "log").read_text()
    assert all(part in written for part in ("MarkedError", "ValueError", f"{Path(__file__).name}:"))
    assert not [mark for mark in MARKS if mark in written or mark in caplog.text]
    assert "MarkedError" in caplog.text


def test_literals_are_shown_and_other_values_by_their_type() -> None:
    literals = {"a name": "'a name'", 3: "3", 0.5: "0.5", 2.0: "2", None: "NULL", "x" * 58: f"'{'x' * 58}'"}
    assert {value: show(value) for value in literals} == literals
    assert show(True) == "true"
    assert show("x" * 61) == "a text of more than 60 characters"
    assert show("name\nname-one") == "a text of many lines"
    assert show(np.float64(NUMBER)) == "a value of type float64"
    assert show(np.array(NAMES)[0]) == "a value of type str_"
    assert show(pd.Timestamp("2026-01-01")) == "a value of type Timestamp"
    assert not is_literal(10**5000)  # Python writes integers of at most 4,300 digits
    assert show(10**5000) == "a value of type int"
    assert (show([NUMBER]), show({"name-one": 1}), show((1,)), show({1})) == ("a list", "a struct", "a tuple", "a set")


def test_elements_are_hidden_wherever_they_are() -> None:
    message = "there is no column 'Ann'."
    for given in ({"by": ["Ann"]}, {"by": {"Ann"}}, {"keys": {"Ann": 1}}, {"keys": {"a": ["Ann"]}}):
        assert "Ann" not in boundary.without_elements(message, given, tuple), given
        assert "Ann" in boundary.without_elements(message, given, lambda: ["ann"]), given
    assert "7" not in boundary.without_elements("there are 7 of them.", {"lower": [7.0]}, tuple)
    assert "7" in boundary.without_elements("there are 7 of them.", {"lower": 7.0}, tuple)


def test_messages_keep_the_words_of_the_caller(duck: dpsql.Context) -> None:
    """What a caller typed is shown, and so is a public name; SQL shows the elements of a list, which are literals."""
    cases: list[tuple[dict[str, Any], str]] = [
        ({"by": "wrad", "keys": ["A"]}, "by 'wrad' is not a column of the source."),
        ({"by": ["wrad"], "keys": ["A"]}, "by '...' is not a column of the source."),
        ({"by": ["wrad"], "keys": ["A"]}, "('...' is by[0]: "),
        ({"by": ["u", "U"], "keys": ["A"]}, "by holds 'U' twice."),
        ({"epsilon": -0.5}, "epsilon must be a number between 1e-15 and 1e12; got -0.5. 1.0 is usual."),
        ({"epsilon": table()["y"]}, "got a value of type Series."),
    ]
    for given, text in cases:
        with pytest.raises(DpsqlError) as caught:
            duck.dp_count("t", **{"epsilon": 1, **given})
        assert text in str(caught.value)
    dpsql.polars.use()  # not what an earlier test uses
    with pytest.raises(DpsqlError, match="by 'wrad' is not a column"):
        table().dp.of("people").dp.count(by="wrad", keys=["A"], epsilon=1)
    with pytest.raises(DpsqlError, match=r"'\.\.\.' is by\[0\]"):
        table().dp.of("people").dp.count(by=["wrad"], keys=["A"], epsilon=1)
    with pytest.raises(DpsqlError, match=r"keys holds '\.\.\.' twice"):
        duck.planned("dp_count", "t", {"by": ["b"], "keys": ["A", "A"], "epsilon": 1})
    with pytest.raises(DpsqlError, match="keys holds 'A' twice"):
        duck.asked_by(Asker("ana")).planned("dp_count", "t", {"by": ["b"], "keys": ["A", "A"], "epsilon": 1})
    with pytest.raises(duckdb.Error, match="by 'wrad' is not a column"):
        duck.connection.execute("FROM dp_count('t', by := ['wrad'], keys := ['A'], epsilon := 1)")


def careless(value: object) -> str:
    """Show an argument as dpsql did: a text of anything, of at most 60 characters."""
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def test_a_renderer_that_trusts_its_argument_is_caught(
    watch: Watch, duck: dpsql.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parameters, "show", careless)
    watch.each("dp_count", duck.dp_count, {"source": "t", "epsilon": 1}, ["epsilon", "condition"])
    assert len(watch.found) > 10


def test_a_boundary_that_keeps_where_an_error_came_from_is_caught(
    watch: Watch, duck: dpsql.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boundary, "cut", lambda error: error)
    watch.each("from_json", dpsql.LinearModel.from_json, {"text": ""})
    watch.each("dp_count", duck.dp_count, {"source": "t", "epsilon": 1}, ["epsilon"])
    assert any("in its locals" in one for one in watch.found)


@pytest.mark.long
def test_a_boundary_that_shows_elements_is_caught(
    watch: Watch, duck: dpsql.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boundary, "without_elements", lambda message, given, names: message)
    watch.each("dp_count", duck.dp_count, {"source": "t", "epsilon": 1}, ["by"])
    assert any("in its text" in one for one in watch.found)

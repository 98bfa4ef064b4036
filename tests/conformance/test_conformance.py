"""Same integers, same rows: every call over sources, settings, types, collations, orders and macros of the caller."""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from calls import ANSWERS, CALLS, Call, share
from references import REFERENCES, statistic
from seam import Seen, Watch, watching
from session_settings import DEFAULT, Setting, enumerate_settings
from shadows import PLACES, Names, macros, names_used
from tables import COLLATIONS, GROUPS, ORDERS, SOURCES, TABLES, TYPES, base, typed

import dpsql
from dpsql.functions.registry import EXACT, FUNCTIONS
from support.cases import cases

FOUND = enumerate_settings()
EXPECTED = Path(__file__).with_name("expected.json")
SAMPLE = 90  # one of so many cases runs by default,
SAMPLED_CALLS = 6  # with so many of its calls
# Settings under which a call is refused before it reads a row, with the code.
REFUSED = {"arrow_lossless_conversion": "DPSQL-S008"}
# Pragmas under which DuckDB 1.5 runs every statement several times: each is a release of its own, and is charged.
REPEATED = ("enable_verification",)
# Settings that bear on how a table is stored, and so are made before it is.
_STORAGE = ("block", "compression", "fsst", "metadata_reuse", "bitpacking", "segment", "storage", "write", "zstd")


@dataclass(frozen=True)
class Case:
    """Coordinates: where the rows are, in what types, collation and order, under what setting."""

    number: int
    source: str = "table"
    setting: Setting = DEFAULT
    types: str = "plain"
    collation: str = ""
    order: str = "as made"
    group: int = 300

    def __str__(self) -> str:
        parts = [self.source, str(self.setting), self.types, self.collation or "no collation", self.order]
        return f"case {self.number}: {', '.join(parts)}, row groups of {self.group}"

    @property
    def calls(self) -> list[Call]:
        """The calls that the case is about."""
        about_text = self.collation or self.setting.name == "default_collation"
        return [call for call in CALLS if call.reads_text or not about_text]


def _cases() -> list[Case]:
    coordinates: list[dict[str, Any]] = [{"source": source, "types": types} for source in SOURCES for types in TYPES]
    coordinates += [{"source": source, "order": order} for source in SOURCES for order in ORDERS]
    coordinates += [{"source": source, "collation": collation} for source in SOURCES for collation in COLLATIONS]
    coordinates += [{"setting": setting} for setting in FOUND.settings]
    out = []
    for number, given in enumerate(coordinates):
        chosen = random.Random(number)
        turn = {"source": chosen.choice([*SOURCES]), "order": chosen.choice(ORDERS), "group": chosen.choice(GROUPS)}
        if "setting" in given:
            turn["types"] = chosen.choice([*TYPES])
        out.append(Case(number, **{**turn, **given}))
    return out


CASES = _cases()


@pytest.fixture(scope="module")
def watch() -> Iterator[Watch]:
    with watching() as opened:
        yield opened


class Reference:
    """What calls come to on a native table under default settings."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._connections: dict[str, Any] = {}
        self._seen: dict[tuple[str, str, bool], Seen] = {}

    def __call__(self, call: Call, types: str = "plain", *, through: bool = False) -> Seen:
        types = call.identities(types)
        key = (call.name, types, through)
        if key not in self._seen:
            if types not in self._connections:
                self._connections[types] = opened = dpsql.connect()
                for name in TABLES:
                    SOURCES["table"](opened, name, typed(name, types, "as made"), Path(), 0, "")
            self._seen[key] = ask(self._watch, self._connections[types], call, through=through)
            assert self._seen[key].error is None, (call.name, self._seen[key].error)
        return self._seen[key]

    def close(self) -> None:
        for opened in self._connections.values():
            opened.close()


@pytest.fixture(scope="module")
def reference(watch: Watch) -> Iterator[Reference]:
    made = Reference(watch)
    yield made
    made.close()


def ask(watch: Watch, connection: Any, call: Call, *, through: bool = False, wrap: str = "{sql}") -> Seen:
    sql = wrap.format(sql=call.sql.format(source=call.table))
    return watch.ask(connection, sql, CALLS.index(call) + through * len(CALLS), through=through)


def differences(
    watch: Watch, connection: Any, reference: Reference, calls: Sequence[Call], answers: Sequence[Call] = (), **how: Any
) -> list[str]:
    types, refusal, wrap = how.get("types", "plain"), how.get("refusal"), how.get("wrap", "{sql}")
    wrong = []
    for call, through in (*((call, False) for call in calls), *((call, True) for call in answers)):
        seen = ask(watch, connection, call, through=through, wrap=wrap)
        if refusal is None or seen.error != refusal:
            expected = reference(call, types, through=through)
            if how.get("repeated") and seen.passes:
                expected = replace(expected, passes=expected.passes * (len(seen.passes) // len(expected.passes)))
            differs = seen.differs(expected)
            if differs:
                wrong.append(f"{'the answer of ' if through else ''}{call.name}: {differs}")
    return wrong


def check(case: Case, watch: Watch, reference: Reference, folder: Path, calls: Sequence[Call], answers: Any) -> None:
    early = any(word in case.setting.name for word in _STORAGE)
    with dpsql.connect() as connection:
        for now in (True, False):
            if now == early:
                for sql in case.setting.statements:
                    connection.execute(sql)
            if now:
                for name in TABLES:
                    table = typed(name, case.types, case.order)
                    SOURCES[case.source](connection, name, table, folder, case.group, case.collation)
        refusal, repeated = REFUSED.get(case.setting.name), case.setting.name in REPEATED
        answers = [] if repeated else answers  # of which there are several, each with noise of its own
        wrong = differences(
            watch, connection, reference, calls, answers, types=case.types, refusal=refusal, repeated=repeated
        )
    if wrong:
        pytest.fail(
            f"{case} (alone: -m slow -k every_case[{case.number:04d}])\n{len(wrong)} of {len(calls) + len(answers)} differ:\n"
            + "\n".join(wrong),
            pytrace=False,
        )


def _sample() -> list[tuple[Case, list[Call], list[Call]]]:
    """Return cases that meet every source with a part of the calls, and the other coordinates with some."""
    by_source = {case.source: case for case in reversed(CASES) if not case.collation and case.setting is DEFAULT}
    out = []
    for place, case in enumerate(by_source.values()):
        calls = [*CALLS[place % 9 :: 9]]
        if "parquet" in case.source:
            calls += [call for call in CALLS if "constant" in call.name and call not in calls]
        out.append((case, calls, []))
    for place, case in enumerate(CASES[::SAMPLE]):
        chosen = random.Random(case.number)
        calls = chosen.sample(case.calls, min(SAMPLED_CALLS, len(case.calls)))
        out.append((case, calls, [ANSWERS[place % len(ANSWERS)]]))
    return out


@cases(("case", "calls", "answers"), _sample())
def test_a_sample_of_cases(
    case: Case, calls: list[Call], answers: list[Call], watch: Watch, reference: Reference, tmp_path: Path
) -> None:
    check(case, watch, reference, tmp_path, calls, answers)


@pytest.mark.slow
@cases("case", CASES, ids=lambda case: f"{case.number:04d}")
def test_every_case(case: Case, watch: Watch, reference: Reference, tmp_path: Path) -> None:
    calls = share(case.calls, case.number)
    check(case, watch, reference, tmp_path, calls, [call for call in ANSWERS if call in calls])


def test_every_function_is_called() -> None:
    assert {*FUNCTIONS, *EXACT} <= {call.function for call in CALLS}


def test_every_setting_is_known() -> None:
    assert not FOUND.unknown, (
        f"teach the suite these settings, in tests/conformance/session_settings.py: {FOUND.unknown}"
    )


@cases("call", [call for call in CALLS if call.name in REFERENCES], ids=lambda call: call.name)
def test_the_native_table_gives_what_plain_python_gives(call: Call, reference: Reference) -> None:
    seen = reference(call)
    assert statistic(seen) == REFERENCES[call.name](seen)


def test_every_call_has_its_digest() -> None:
    """Those of the next test, which is long, so that a new call is not forgotten until it runs."""
    assert {call.name for call in CALLS} == json.loads(EXPECTED.read_text(encoding="utf-8")).keys()


def test_every_version_gives_the_same_integers(reference: Reference) -> None:
    """`DPSQL_CONFORMANCE_WRITE=1` writes the digests anew, where a statistic was changed on purpose."""
    found = {call.name: digest(reference(call)) for call in CALLS}
    if os.environ.get("DPSQL_CONFORMANCE_WRITE"):
        EXPECTED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    expected = json.loads(EXPECTED.read_text(encoding="utf-8"))
    assert {name for name in found if found[name] != expected[name]} == set()


def digest(seen: Seen) -> str:
    parts: list[Any] = [seen.rows]
    for one in seen.passes:
        parts += [one.integers, one.rows.tolist(), None if one.named is None else sorted(one.named.items())]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


@pytest.fixture(scope="module")
def names(watch: Watch) -> Names:
    with dpsql.connect() as connection:
        _load(connection)
        return names_used(watch, connection)


def _load(connection: Any) -> None:
    for name in TABLES:
        SOURCES["table"](connection, name, base(name), Path(), 0, "")


PARTS = 12
# Common table expressions of one statement: DuckDB nests them, to a depth of 1000.
MOST_EXPRESSIONS = 500


def _shadowed(
    place: str, part: int, most: int | None, watch: Watch, reference: Reference, names: Names, folder: Path
) -> None:
    wrong = []
    with dpsql.connect(folder / "mine.duckdb" if place == "in a file" else ":memory:") as connection:
        _load(connection)
        for name in sorted(names.functions)[part::PARTS]:
            for sql in macros(name, names.functions[name], place):
                connection.execute(sql)
            users = names.users[name] if most is None else random.Random(name).sample(
                names.users[name], min(most, len(names.users[name]))
            )  # fmt: skip
            found = differences(watch, connection, reference, users)
            if found:
                wrong.append(f"macro {name}, {place}: {len(found)} of {len(users)} calls, such as {found[0]}")
            connection.execute(f'DROP MACRO "{name}"')
            connection.execute(f'DROP MACRO TABLE "{name}"')
    if wrong:
        pytest.fail("\n".join(wrong), pytrace=False)


@cases("part", range(PARTS))
def test_macros_of_the_caller_do_not_stand_in_for_ours(
    part: int, watch: Watch, reference: Reference, names: Names, tmp_path: Path
) -> None:
    _shadowed(PLACES[part % len(PLACES)], part, 3, watch, reference, names, tmp_path)


@pytest.mark.slow
@cases("place", PLACES)
@cases("part", range(PARTS))
def test_no_macro_of_the_caller_stands_in_for_ours(
    place: str, part: int, watch: Watch, reference: Reference, names: Names, tmp_path: Path
) -> None:
    _shadowed(place, part, None, watch, reference, names, tmp_path)


@pytest.mark.parametrize("what", ["tables", "views", "common table expressions"])
def test_relations_of_the_caller_do_not_stand_in_for_ours(
    what: str, watch: Watch, reference: Reference, names: Names
) -> None:
    body = "SELECT 42 AS ticket, 42 AS mean, 1 AS j, 42 AS s, 42 AS rows, 'word' AS name, 42 AS target"
    wraps = ["{sql}"]
    with dpsql.connect() as connection:
        _load(connection)
        relations = sorted(names.relations)
        if what == "common table expressions":
            some = (relations[start : start + MOST_EXPRESSIONS] for start in range(0, len(relations), MOST_EXPRESSIONS))
            wraps = [f"WITH {', '.join(f'{name} AS ({body})' for name in these)} {{sql}}" for these in some]
        else:
            for name in relations:
                connection.execute(f"CREATE {what[:-1].upper()} {name} AS {body}")
        wrong = [one for wrap in wraps for one in differences(watch, connection, reference, CALLS[::7], wrap=wrap)]
    assert wrong == []

"""CONTRIBUTING is right about the files that it names."""

from __future__ import annotations

import re
from pathlib import Path

from support.cases import cases

TEXT = Path("CONTRIBUTING.md").read_text(encoding="utf-8")
PACKAGED = ("", "dpsql/", "dpsql/contract/", "dpsql/engines/", "dpsql/engines/duckdb/", "dpsql/functions/")
ROOM = re.compile(r"^\* \*\*`(?P<room>[a-z/]+/)`\*\*(?P<rest>.*(?:\n  .*)*)", re.MULTILINE)


def test_the_modules_of_a_room_are_in_it() -> None:
    rooms = list(ROOM.finditer(TEXT))
    assert len(rooms) > 15
    for found in rooms:
        room = Path(found["room"])
        assert room.is_dir(), room
        for name in re.findall(r"`([a-z_]+\.py)`", found["rest"]):
            assert (room / name).is_file(), f"{room}/{name}"


@cases("path", sorted(set(re.findall(r"`((?:[a-z_.]+/)+[a-z_]*(?:\.\w+)?)`", TEXT))))
def test_a_path_exists(path: str) -> None:
    assert any(Path(start + path).exists() for start in PACKAGED)


def test_lines_are_short_but_in_tables() -> None:
    assert not [line for line in TEXT.splitlines() if len(line) > 120 and not line.startswith("|")]

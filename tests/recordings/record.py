"""Writes recorded.json: run `python tests/recordings/record.py` after a change that is meant to change results.

Needs dpsql installed, or the repository's folder in PYTHONPATH.
"""

from __future__ import annotations

import json
from pathlib import Path

from cases import every_case
from replay import Replay, arithmetic

RECORDED = Path(__file__).with_name("recorded.json")


def main() -> None:
    replay = Replay()
    try:
        found = {case.name: replay.run(case) for case in every_case()}
    finally:
        replay.close()
    lines = [f'"arithmetic": "{arithmetic()}"']
    lines += [f"{json.dumps(name)}: {json.dumps(result, ensure_ascii=False)}" for name, result in found.items()]
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{len(found)} cases recorded in {RECORDED}")


if __name__ == "__main__":
    main()

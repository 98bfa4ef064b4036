"""Run the tests of units and engines on exactly the lowest versions that pyproject.toml allows.

``python .ci/minimum.py [FOLDER] [ARGUMENTS OF PYTEST...]``. FOLDER, by default ``.venv-minimum``, becomes an
environment of its own. What the tests alone need is of any version that fits.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def pins() -> list[str]:
    """Return the lowest version of each dependency, as pip pins it.

    Raises
    ------
    ValueError
        A dependency states no lowest version.
    """
    found = []
    for stated in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]:
        lowest = re.fullmatch(r"([\w.-]+)(?:\[[\w,]+\])?>=([\w.]+)(?:,.*)?", stated)
        if lowest is None:
            raise ValueError(f"{stated}: give its lowest version, as name>=1.2")
        found.append(f"{lowest[1]}=={lowest[2]}")
    return found


def main(folder: str = ".venv-minimum", *arguments: str) -> int:
    """Make the environment, and run the tests in it; return the status of pytest."""
    venv.create(ROOT / folder, with_pip=True)
    python = str(ROOT / folder / "bin" / "python")
    limits = ROOT / folder / "pins.txt"
    limits.write_text("\n".join(pins()), encoding="utf-8")
    command = [python, "-m", "pip", "install", "-q", "-c", str(limits), "-e", f"{ROOT}[test]", "pyparsing<3.3"]
    subprocess.run(command, check=True)  # noqa: S603 - what pyproject.toml says
    asked = arguments or ("-n", "2", "tests/unit", "tests/engines")
    return subprocess.run([python, "-m", "pytest", "-q", *asked], cwd=ROOT, check=False).returncode  # noqa: S603


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))

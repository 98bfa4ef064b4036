"""Run ``python -m dpsql`` as the `dpsql` command."""

from __future__ import annotations

from dpsql.cli import main

if __name__ == "__main__":
    main(prog_name="dpsql")

"""The `dpsql` command. Heavy modules are imported inside the commands, so that ``--help`` answers at once."""

from __future__ import annotations

from dpsql.cli.commands import main

__all__ = ["main"]

"""The SQL prompt on a terminal: lines until a semicolon, highlighting, completion and history."""

from __future__ import annotations

import os
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.filters import completion_is_selected
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from prompt_toolkit.output import ColorDepth

from dpsql.cli.completion import SqlCompleter
from dpsql.cli.dot_commands import DOT_COMMANDS
from dpsql.cli.known_names import KnownNames
from dpsql.cli.splitting import is_blank, split


def is_complete(text: str) -> bool:
    """Tell whether Enter should run what was typed: a dot command, nothing, or statements that have ended."""
    return text.startswith(".") or is_blank(text) or split(text)[1] == ""


def new_prompt(names: KnownNames) -> PromptSession[str]:
    """Return the prompt: highlighting, completion, history, and lines until a semicolon."""
    keys = KeyBindings()

    @keys.add("enter", filter=~completion_is_selected)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.newline(copy_margin=False)

    @keys.add("enter", filter=completion_is_selected)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.complete_state = None

    path = history_path()
    history: History = InMemoryHistory() if path is None else FileHistory(str(path))
    return PromptSession(
        "dpsql> ",
        history=history,
        lexer=PygmentsLexer.from_filename("statement.sql"),
        completer=SqlCompleter(names, DOT_COMMANDS),
        complete_while_typing=False,
        multiline=True,
        prompt_continuation="   ... ",
        key_bindings=keys,
        color_depth=ColorDepth.DEPTH_1_BIT if os.environ.get("NO_COLOR") else None,
    )


def history_path() -> Path | None:
    """Return the file that keeps the history, readable by its owner alone; None where none can be kept."""
    if os.name == "nt":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    path = base / "dpsql" / "history"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
    except OSError:
        return None
    return path

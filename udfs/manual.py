"""Register dp_functions and dp_help, which show the manual on any connection with dpsql."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dpsql.contract.names import other_name
from dpsql.engines.duckdb.session import Session
from dpsql.manual.catalogue import MANUAL, help_lines, suggestion
from dpsql.udfs.values import UdfSpec, struct_list

_FUNCTIONS = dict.fromkeys(("name", "topic", "summary", "signature", "guarantee", "example"), "VARCHAR")


def functions(session: Session) -> Callable[..., list[dict[str, str]]]:
    """Bind () → one row per function."""

    def run() -> list[dict[str, str]]:
        return [
            {
                "name": page.name,
                "topic": page.topic,
                "summary": page.summary,
                "signature": "\n".join(page.calls),
                "guarantee": page.guarantee,
                "example": "\n".join(page.statements),
            }
            for page in MANUAL.values()
        ]

    return run


def explain(session: Session) -> Callable[..., list[str]]:
    """Bind (word or NULL) → lines of help."""

    def run(word: object) -> list[str]:
        topic = None if word is None else str(word).strip()
        lines = help_lines(topic or None)
        return lines if lines is not None else [f"There is no function {topic!r}. {suggestion(str(topic))}"]

    return run


def other(session: Session) -> Callable[..., str]:
    """Bind (another name, first argument, the others) → the refusal that says what to write. Pure."""

    def run(name: str, first: object, given: Mapping[str, object]) -> str:
        raise other_name(name, first, given)

    return run


SPECS = (
    UdfSpec("dpsql_other_name", other, "VARCHAR", native=True, pure=True, spoken=True),
    UdfSpec("dpsql_functions", functions, struct_list(_FUNCTIONS), native=True, nullary=True),
    UdfSpec("dpsql_help", explain, "VARCHAR[]", native=True),
)

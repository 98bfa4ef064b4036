"""Check the shape of an untrusted statement: each part of DuckDB's tree is known, or refused.

This check precedes the reading of the tree (`dpsql.contract.query.tree`), which has its own allow list: a refusal here
has the gateway's code and the place in the text. Nothing is recursive.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from dpsql.contract.names import OTHER_NAMES, other_name
from dpsql.contract.parameters import near_names, show
from dpsql.contract.query.privacy_options import CALL
from dpsql.gateway.functions import AGGREGATES, ALLOWED, CALLS
from dpsql.gateway.problems import GatewayError

MOST_BYTES, MOST_NODES, DEEPEST = 64_000, 20_000, 60
_NODES = frozenset(("SELECT_NODE", "SET_OPERATION_NODE", "CTE_NODE"))
_FROM = frozenset(("JOIN", "SUBQUERY", "EMPTY", "BASE_TABLE", "TABLE_FUNCTION"))
_FROM_REFUSED = frozenset(
    (
        *("PIVOT", "SHOW_REF", "EXPRESSION_LIST", "CTE", "COLUMN_DATA", "DELIM_GET", "BOUND_TABLE_REF", "AT"),
        *("EMPTY_FROM", "INVALID", "TABLE_SAMPLE", "UNPIVOT", "MATCH_RECOGNIZE"),
    )
)
_CLASSES = frozenset(
    (
        *("COLUMN_REF", "CONSTANT", "FUNCTION", "COMPARISON", "CONJUNCTION", "OPERATOR", "CASE", "STAR", "SUBQUERY"),
        *("WINDOW", "BETWEEN", "CAST", "TYPE"),
    )
)
# Parts that hold no other parts of a statement.
_PLAIN = frozenset(("type_info", "cast_type", "literal", "qualified_name"))
_JOINS = ("REGULAR", "CROSS", "NATURAL")
_SETTINGS = ("epsilon", "delta", "dataset", "fresh", "max_age")
_SET = re.compile(
    r"\s*SET\s+(?P<name>\w+|\"\w+\")(?:\s*=\s*|\s+TO\s+)(?P<value>.*?)\s*;?\s*", re.IGNORECASE | re.DOTALL | re.ASCII
)
_NUMBER = re.compile(r"[+-]?\d{1,40}(?:\.\d{0,40})?(?:[eE][+-]?\d{1,3})?|[+-]?\.\d{1,40}", re.ASCII)
_TEXT = re.compile(r"'([^']*)'")


def check_text(text: str) -> None:
    """Raise unless a text is short enough and valid.

    Raises
    ------
    GatewayError
        G001, G003.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise GatewayError("G001", "the statement is no UTF-8. Send one SELECT as text.") from None
    if size > MOST_BYTES:
        raise GatewayError("G003", f"the statement is longer than {MOST_BYTES} bytes. Ask a shorter one.")
    if "\0" in text:
        raise GatewayError("G001", "the statement holds a NUL. Send one SELECT as text.", position=text.index("\0"))


def settings_of(text: str) -> dict[str, object] | None:
    """Return the settings of a SET; None for any other statement.

    Raises
    ------
    GatewayError
        G001: the gateway does not read this SET.
    """
    match = _SET.fullmatch(text)
    if match is None:
        return None
    name, value = match["name"].strip('"').lower(), match["value"]
    if name not in _SETTINGS:
        raise GatewayError(
            "G001", f"SET {show(name)} is no setting of a session here. SET {', '.join(_SETTINGS)} to a literal."
        )
    if _NUMBER.fullmatch(value):
        return {name: {"number": value}}
    quoted = _TEXT.fullmatch(value)
    if quoted is not None:
        return {name: quoted[1]}
    if value.lower() in ("true", "false", "null", "default"):
        return {name: {"true": True, "false": False}.get(value.lower())}
    raise GatewayError("G001", f"SET {name} takes one literal. Write a number, a text in quotes, true or NULL.")


def check_shape(tree: str) -> bool:
    """Raise unless a tree is one SELECT with only known parts.

    Parameters
    ----------
    tree : str
        Result of ``json_serialize_sql``.

    Returns
    -------
    bool
        Whether it calls a DuckDB aggregate.

    Raises
    ------
    GatewayError
        G001 to G009, G013.
    """
    try:
        document = json.loads(tree)
    except (ValueError, RecursionError):
        raise _deep() from None
    if not isinstance(document, dict) or document.get("error") is not False:
        raise _unreadable(document if isinstance(document, dict) else {})
    statements = document.get("statements")
    if not isinstance(statements, list) or len(statements) != 1 or not isinstance(statements[0], dict):
        empty = not statements
        code_text = (
            "the statement is empty. Ask one SELECT." if empty else "there are several statements. Send each alone."
        )
        if empty:
            raise GatewayError("G001", code_text)
        raise GatewayError("G002", code_text)
    if statements[0].get("named_param_map"):
        raise _parameter(None)
    aggregates = False
    for nodes, (record, deep, called) in enumerate(_records(statements[0])):
        if nodes > MOST_NODES:
            raise GatewayError("G003", f"the statement has more than {MOST_NODES} parts. Ask a shorter one.")
        if deep > DEEPEST:
            raise _deep()
        _check_record(record)
        if not called and record.get("class") in ("FUNCTION", "WINDOW"):
            aggregates |= _check_function(record) in AGGREGATES
        if record.get("type") == "TABLE_FUNCTION":
            _check_call(record)
    return aggregates


def _records(statement: Mapping[str, object]) -> Iterator[tuple[Mapping[str, object], int, bool]]:
    """Yield each part of a tree with its depth, and whether it is, or is in, a call in FROM."""
    todo: list[tuple[object, int, bool]] = [(statement.get("node"), 0, False)]
    while todo:
        part, deep, called = todo.pop()
        if isinstance(part, list):
            todo += [(element, deep, called) for element in part]
        elif isinstance(part, dict):
            yield part, deep, called
            inner = deep + ("class" in part or str(part.get("type", "")).endswith("_NODE"))
            for name, child in part.items():
                if name == "expression" and "null_order" in part and _is_every_column(child):
                    continue
                if isinstance(child, (dict, list)) and name not in (
                    "value",
                    "type_info",
                    "cast_type",
                    "literal",
                    "qualified_name",
                ):
                    todo.append((child, inner, called or (name == "function" and part.get("type") == "TABLE_FUNCTION")))
                elif name == "value" and isinstance(child, dict) and "id" not in child and "type" not in child:
                    todo.append((child, inner, called))


def _is_every_column(expression: object) -> bool:
    """Return whether it orders by ALL: a star without choices."""
    if not isinstance(expression, dict) or expression.get("class") != "STAR" or expression.get("columns") is not True:
        return False
    chosen = ("relation_name", "expr", "exclude_list", "replace_list", "qualified_exclude_list", "rename_list")
    return not any(expression.get(name) for name in chosen)


def _check_record(record: Mapping[str, object]) -> None:
    kind, position = record.get("type"), _position(record)
    if "class" in record:
        name = str(record["class"])
        if name == "PARAMETER":
            raise _parameter(position)
        if name not in _CLASSES:
            raise GatewayError(
                "G008", f"{_words(name)} is not taken here. Write the statement without it.", position=position
            )
        if name == "STAR" and record.get("columns"):
            raise GatewayError("G008", "COLUMNS is not taken here. Write the columns out.", position=position)
        return
    if not isinstance(kind, str):
        return
    if kind.endswith("_NODE") and kind not in _NODES:
        raise GatewayError("G004", f"{_words(kind.removesuffix('_NODE'))} is not taken here. Ask one SELECT.")
    if record.get("sample") is not None:
        raise GatewayError("G005", "a sample is not taken here. Ask without TABLESAMPLE.", position=position)
    if kind in _FROM_REFUSED - _FROM or (
        kind == "JOIN" and record.get("ref_type") not in ("REGULAR", "CROSS", "NATURAL")
    ):
        if kind == "SHOW_REF":
            raise GatewayError("G005", "this SHOW is not taken. Write SHOW TABLES, or DESCRIBE and one name.")
        what = record.get("ref_type") if kind == "JOIN" else kind
        raise GatewayError("G005", f"{_words(str(what))} is not taken in FROM. Join by columns.", position=position)
    if kind in _FROM and record.get("at_clause") is not None:
        raise GatewayError("G005", "AT is not taken in FROM. Ask the table as it is.", position=position)


def _check_function(record: Mapping[str, object]) -> str:
    name, position = str(record.get("function_name")).lower(), _position(record)
    schema, catalog = str(record.get("schema") or ""), str(record.get("catalog") or "")
    if catalog or schema not in ("", "main", "pg_catalog"):
        raise GatewayError(
            "G009",
            f"the function {show(name)} has a schema. Call DuckDB's own by its name.",
            position=position,
        )
    if name in CALLS:
        raise GatewayError(
            "G009",
            f"{name} is asked in FROM.",
            position=position,
            hint=f"SELECT * FROM {name}('…')",
        )
    if name == CALL:
        return name
    if name not in ALLOWED:
        near = near_names(name, ALLOWED, 1)
        also = f" Do you mean {near[0]}?" if near else " Write the statement without it."
        raise GatewayError("G007", f"the function {show(name)} may not be called.{also}", position=position)
    return name


def _check_call(record: Mapping[str, object]) -> None:
    function = record.get("function")
    call = function if isinstance(function, dict) else {}
    name, position = str(call.get("function_name")).lower(), _position(call)
    if call.get("schema") or call.get("catalog"):
        raise GatewayError("G009", f"the function {show(name)} has a schema. Call it by its name.", position=position)
    if name not in CALLS:
        other = OTHER_NAMES.get(name)
        near = near_names(name, CALLS, 1)
        also = f"Do you mean {near[0]}?" if near else "Ask dp_count('…') or an aggregate."
        raise GatewayError(
            "G007",
            f"the function {show(name)} is not taken in FROM. {f'{other.why}.' if other else also}",
            position=position,
            hint=str(other_name(name, None, {})).partition(" Write ")[2] if other else None,
        )
    if record.get("with_ordinality") not in (None, "", "WITHOUT_ORDINALITY"):
        raise GatewayError(
            "G005", "WITH ORDINALITY is not taken. Number the rows with row_number().", position=position
        )


def _position(record: Mapping[str, object]) -> int | None:
    position = record.get("query_location")
    return position if type(position) is int and 0 <= position < MOST_BYTES else None


def _words(name: str) -> str:
    return name.replace("_", " ")


def _deep() -> GatewayError:
    return GatewayError("G003", f"the statement is nested deeper than {DEEPEST} levels. Ask a shorter one.")


def _parameter(position: int | None) -> GatewayError:
    return GatewayError("G013", "the statement has a parameter. Write its value.", position=position)


def _unreadable(document: Mapping[str, object]) -> GatewayError:
    message = str(document.get("error_message", ""))
    if "Only SELECT" in message:
        return GatewayError("G001", "this is no SELECT. Ask one SELECT; SET epsilon = 0.1 states what an answer costs.")
    if "expression depth" in message or "memory exhausted" in message:
        return _deep()
    try:
        position = int(str(document.get("position")))
    except ValueError:
        position = None
    return GatewayError(
        "G001", f"the statement is not read: {show(message)}. Ask one SELECT of DuckDB's SQL.", position=position
    )

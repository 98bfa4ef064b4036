"""Read a request: its token, and the statement and settings in its body. Refuse everything else.

Numbers stay as the text that was sent, so the ledger charges the written number and not the nearest double.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from dpsql.contract.names import did_you_mean
from dpsql.errors import GatewayError

MOST_BODY = 128 * 1024
# Settings that a body may hold next to its statement, and their types.
SETTINGS: Mapping[str, type] = {"epsilon": float, "delta": float, "fresh": bool, "dataset": str, "max_age": float}
_DIGITS = 40
# A client whose language writes 0.1 otherwise may send a number as a string.
_is_decimal = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?", re.ASCII).fullmatch


class _Number(str):
    """A number as written."""


def read_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a body.

    Raises
    ------
    GatewayError
        G021: it is no JSON in UTF-8, is too deep, is no object, or repeats a name.
    """
    try:
        text = body.decode()
        document = json.loads(
            text,
            object_pairs_hook=_without_twins,
            parse_float=_Number,
            parse_int=_Number,
            parse_constant=_no_number,
        )
        text.encode()
        json.dumps(document, ensure_ascii=False).encode()  # fails on half of a surrogate pair
    except RecursionError:
        raise GatewayError("G021", "the body is nested too deep. Send one object of texts and numbers.") from None
    except ValueError:
        raise GatewayError("G021", 'the body is no JSON. Send {"sql": "SELECT …"} in UTF-8.') from None
    if not isinstance(document, dict):
        raise GatewayError("G021", 'the body is no object. Send {"sql": "SELECT …"}.')
    return document


def _without_twins(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise GatewayError("G021", "the body names something twice. Send each name once.")
    return fields


def _no_number(_: str) -> NoReturn:
    raise GatewayError("G021", "the body holds NaN or infinity. Send numbers.")


def read_question(body: bytes) -> tuple[str, dict[str, str]]:
    """Return a body's statement and settings; settings are strings.

    Raises
    ------
    GatewayError
        G021: a field is missing, unknown, or of the wrong type.
    """
    fields = read_object(body)
    sql = fields.pop("sql", None)
    if not _is_text(sql):
        raise GatewayError("G021", 'the body has no text "sql". Send {"sql": "SELECT …"}.')
    settings = {}
    for name, value in fields.items():
        if name not in SETTINGS:
            step = did_you_mean(name, ["sql", *SETTINGS], f"There are sql, {', '.join(SETTINGS)}.")
            raise GatewayError("G021", f"the body has no field of this name. {step}")
        if value is not None:
            settings[name] = setting_text(name, value)
    return sql, settings


def setting_text(name: str, value: object) -> str:
    """Return a setting as a string.

    Raises
    ------
    GatewayError
        G021: the type is wrong.
    """
    kind = SETTINGS[name]
    if kind is bool and isinstance(value, bool):
        return "true" if value else "false"
    if kind is float and isinstance(value, str) and len(value) <= _DIGITS and _is_decimal(value):
        return str(value)
    if kind is str and _is_text(value):
        return str(value)
    description = {bool: "true or false", float: f"a number of at most {_DIGITS} digits", str: "a text"}[kind]
    raise GatewayError("G021", f"{name} must be {description}.")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and not isinstance(value, _Number)


def read_token(headers: Sequence[tuple[bytes, bytes]]) -> str:
    """Return the token in a request's headers.

    Raises
    ------
    GatewayError
        G020: no token or several.
    """
    credentials = [value.decode("latin-1") for name, value in headers if name.lower() == b"authorization"]
    scheme, _, token = credentials[0].partition(" ") if len(credentials) == 1 else ("", "", "")
    token = token.strip(" ")
    if scheme.lower() != "bearer" or not token or not all("!" <= character <= "~" for character in token):
        raise GatewayError("G020", "no token was given. Send the header Authorization: Bearer dpsql_….")
    return token

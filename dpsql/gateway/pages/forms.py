"""A form for each function, made of its list of arguments, and the statement that a filled one says.

The statement is shown before it is asked. What stands in it is what its writer could have typed, so it is read by the
same box as any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dpsql.contract.arguments import Argument
from dpsql.functions.registry import FUNCTIONS
from dpsql.gateway.pages.elements import Element, h

# What the gateway states itself (G016).
_STATED = {"engine", "release", "dataset"}
# What most calls say, beside what is required.
_USUAL = ("by", "keys", "lower", "upper", "bins", "n_bins", "quantiles", "delta", "condition", "during")
_MOST_BOXES = 40
_is_number = re.compile(r"[+-]?(?=[0-9.]*[0-9])[0-9]{0,40}(\.[0-9]{0,40})?([eE][+-]?[0-9]{1,3})?").fullmatch


def arguments_of(function: str) -> list[Argument]:
    """Return the arguments that a form asks for: what is required, then what is usual, then everything else."""
    every = [one for name, one in FUNCTIONS[function].plan.arguments.items() if name not in _STATED]
    asked = [one for one in every if one.required]
    usual = [one for one in every if is_usual(one) and not one.required]
    return [*asked, *usual, *(one for one in every if not is_usual(one))]


def is_usual(argument: Argument) -> bool:
    """Whether a form shows an argument at once."""
    return argument.required or argument.name in _USUAL


def statement_of(function: str, source: str, fields: Mapping[str, Sequence[str]]) -> str:
    """Return the statement of a filled form; what was left empty is left out."""
    said = [f"{name} := {value}" for name, value in _values(function, fields)]
    inner = ",\n  ".join([_quoted(source), *said])
    return f"SELECT * FROM {function}(\n  {inner}\n)"


def _values(function: str, fields: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    for argument in arguments_of(function):
        given = [one.strip() for one in fields.get(f"a.{argument.name}", ()) if one.strip()]
        if given:
            yield argument.name, _literal(argument, given)


def _literal(argument: Argument, given: Sequence[str]) -> str:
    """Return what was given as SQL: a number, a text, a list of these; a literal is left as it was written."""
    if len(given) > 1:
        return f"[{', '.join(map(_quoted, given))}]"
    text = given[0]
    if text[0] in "[{" or text.lower() in ("true", "false", "null"):
        return text
    if argument.choices or argument.name == "condition" or argument.annotation == "str":
        return _quoted(text)
    if "," in text and not argument.names_column:
        return f"[{', '.join(_word(part.strip()) for part in text.split(',') if part.strip())}]"
    if "," in text:
        return f"[{', '.join(_quoted(part.strip()) for part in text.split(',') if part.strip())}]"
    listed = argument.annotation == "Keys" and text != "private"
    return f"[{_word(text)}]" if listed else _word(text)


def _word(text: str) -> str:
    is_literal = len(text) > 1 and text[0] == text[-1] == "'"
    return text if _is_number(text) or is_literal else _quoted(text)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def field_of(argument: Argument, columns: Sequence[Mapping[str, Any]], epsilon: str | None) -> Element:
    """Return the field of an argument, with its label and what it means."""
    name, told = f"a.{argument.name}", f"doc-{argument.name}"
    label = [argument.name, h("span", {"class": "needed"}, " (required)") if argument.required else None]
    usual = argument.shown_default
    default = "" if not usual or argument.required else f" {'It is' if 'required' in usual else 'Default:'} {usual}."
    doc = h("p", {"class": "hint", "id": told}, argument.doc, default)
    names = [str(column["name"]) for column in columns]
    several = argument.names_column and argument.annotation != "str"
    if several and len(names) <= _MOST_BOXES:
        boxes = [
            h(
                "label",
                {"class": "box"},
                h("input", {"type": "checkbox", "name": name, "value": one}),
                h("bdi", {}, one),
            )
            for one in names
        ]
        return h(
            "fieldset", {"aria-describedby": told}, h("legend", {}, label), h("div", {"class": "boxes"}, boxes), doc
        )
    identity = f"field-{argument.name}"
    given = {"id": identity, "name": name, "aria-describedby": told, "required": argument.required}
    options: list[tuple[str, str]] = []
    if argument.names_column and len(names) <= 500 and not several:
        options = [(one, one) for one in names]
    elif argument.choices:
        options = [(one, one) for one in argument.choices]
    elif isinstance(argument.default, bool):
        options = [("true", "yes"), ("false", "no")]
    if options:
        every = [("", "choose a column" if argument.names_column and argument.required else "as usual"), *options]
        control = h("select", given, [h("option", {"value": value}, text) for value, text in every])
    else:
        number = argument.annotation in ("Number", "Integer")
        more = {"inputmode": "decimal"} if number else {}
        value = epsilon if argument.name == "epsilon" else None
        control = h("input", {**given, **more, "type": "text", "autocomplete": "off", "value": value})
    return h("div", {"class": "field"}, h("label", {"for": identity}, label), control, doc)

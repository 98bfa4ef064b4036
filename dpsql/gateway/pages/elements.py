"""HTML that is escaped by construction: no foreign text can enter a page as markup.

`h` makes an element from elements, strings and numbers; an element escapes strings when it is written. Links lead only
to this site, and no attribute holds a script or a style.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from html import escape

from dpsql.dataclass import dataclass

_is_name = re.compile(r"[a-zA-Z][a-zA-Z0-9:-]*").fullmatch
_is_own_address = re.compile(r"[#?].*|/(?![/\\]).*|").fullmatch
_ADDRESSES = {"href", "src", "action", "formaction"}
_NEVER = {"style", "srcdoc", "srcset", "data", "background", "poster", "ping", "http-equiv"}
_EMPTY = {"br", "hr", "img", "input", "link", "meta"}
_KEPT = {"textarea", "pre"}
# Invisible or direction-changing characters: a name with one looks like another name.
_unseen = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


@dataclass(frozen=True)
class Element:
    """An element of a page, made by `h`.

    Attributes
    ----------
    tag : str
    attributes : tuple of (str, str or None)
        None is an attribute without a value.
    children : tuple
    """

    tag: str
    attributes: tuple[tuple[str, str | None], ...]
    children: tuple[Element | str, ...]

    def __str__(self) -> str:
        attributes = "".join(
            f" {name}" if value is None else f' {name}="{escape(value)}"' for name, value in self.attributes
        )
        if self.tag in _EMPTY:
            return f"<{self.tag}{attributes}>"
        inner = "".join(
            str(child) if isinstance(child, Element) else escape(child if self.tag in _KEPT else _visible(child))
            for child in self.children
        )
        start = "\n" if self.tag in _KEPT else ""  # HTML parsers drop the first line break
        return f"<{self.tag}{attributes}>{start}{inner}</{self.tag}>"


def h(tag: str, attributes: Mapping[str, object] | None = None, *children: object) -> Element:
    """Return an element.

    Parameters
    ----------
    tag : str
    attributes : mapping, optional
        False and None omit an attribute, and True gives it no value.
    *children : Element, str, int, float, None, or iterables of these

    Raises
    ------
    ValueError
        An attribute may hold a script or a style, or an address leads elsewhere.
    """
    if _is_name(tag) is None or tag.lower() == "style":
        raise ValueError(f"{tag!r} is no element of these pages")
    pairs: list[tuple[str, str | None]] = []
    for name, value in (attributes or {}).items():
        if value is None or value is False:
            continue
        if _is_name(name) is None or name.lower().startswith("on") or name.lower() in _NEVER:
            raise ValueError(f"the attribute {name!r} is not for these pages")
        if name.lower() in _ADDRESSES and _is_own_address(str(value)) is None:
            raise ValueError("an address leads elsewhere")
        pairs.append((name, None if value is True else str(value)))
    inner = tuple(_flat(children))
    if inner and tag.lower() == "script":
        raise ValueError("a script is a file of its own")
    return Element(tag, tuple(pairs), inner)


def _flat(children: Iterable[object]) -> Iterable[Element | str]:
    for child in children:
        if child is None or child is False:
            continue
        if isinstance(child, Element | str):
            yield child
        elif isinstance(child, Iterable):
            yield from _flat(child)
        else:
            yield str(child)


def _visible(text: str) -> str:
    """Return a text with invisible characters escaped."""
    return _unseen.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def document(root: Element) -> bytes:
    """Return a whole page."""
    return b"<!doctype html>\n" + str(root).encode("utf-8", "replace")

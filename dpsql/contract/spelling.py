"""What a misspelt name may have meant, from public names; and how messages spell calls in SQL, Python and on frames."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable

from dpsql.contract.names import FRAME_PREFIX
from dpsql.contract.parameters import fold, show

# What others call an argument, by its names here; all of them are meant. The spelling decides about any other word.
MEANT = {
    "aggregate": ("aggregates",),
    "bounds": ("lower", "upper"),
    "cap": ("max_rows_per_unit",),
    "col": ("target",),
    "column": ("target",),
    "columns": ("features",),
    "count_distinct": ("distinct_of",),
    "database": ("dataset",),
    "distinct": ("distinct_of",),
    "edges": ("bins",),
    "eps": ("epsilon",),
    "field": ("target",),
    "filter": ("condition",),
    "group": ("by",),
    "group_by": ("by",),
    "groupby": ("by",),
    "groups": ("keys",),
    "having": ("condition",),
    "id": ("privacy_unit",),
    "levels": ("target_levels",),
    "limit": ("k",),
    "max": ("upper",),
    "max_value": ("upper",),
    "maximum": ("upper",),
    "min": ("lower",),
    "min_value": ("lower",),
    "minimum": ("lower",),
    "n": ("k",),
    "name": ("release",),
    "percentile": ("quantiles",),
    "percentiles": ("quantiles",),
    "person": ("privacy_unit",),
    "range": ("lower", "upper"),
    "save_as": ("release",),
    "table": ("source",),
    "top": ("k",),
    "top_k": ("k",),
    "unit": ("privacy_unit",),
    "user_id": ("privacy_unit",),
    "value": ("target",),
    "where": ("condition",),
    "x": ("features",),
    "y": ("target",),
}


def did_you_mean(word: str, known: Iterable[str], otherwise: str) -> str:
    """Return a question with the names that are spelled most like a word, or another text where there is none.

    Parameters
    ----------
    word : str
        As the caller gave it.
    known : iterable of str
        Public names: of columns, protected tables, functions.
    otherwise : str
        A sentence.
    """
    names = {fold(name): name for name in known}
    close = difflib.get_close_matches(fold(word), names, n=3, cutoff=0.6)
    return f"Did you mean {' or '.join(show(names[name]) for name in close)}?" if close else otherwise


def meant_argument(word: str, known: Collection[str]) -> str:
    """Return what to say of an argument that a function does not have: the one that is meant, or all that it has.

    Parameters
    ----------
    word : str
        As the caller gave it.
    known : collection of str
        The function's arguments.
    """
    meant = MEANT.get(fold(word), ())
    if meant and set(meant) <= set(known):
        return f"Did you mean {' and '.join(meant)}?"
    close = difflib.get_close_matches(fold(word), known, n=1, cutoff=0.6)
    return f"Did you mean {close[0]}?" if close else f"It takes: {', '.join(known)}."


# Between quotes a message shows what somebody wrote. An apostrophe within a word is none.
_QUOTED = re.compile(r"((?<!\w)'(?:[^']|'')*')")
_CALL = re.compile(r"\b(?:SELECT (?:\* )?(?:FROM )?|FROM )(?=dp_\w+\()")
_GIVEN = re.compile(r"\b(\w+) := ?")
_NOTHING_GIVEN = re.compile(r"\b(\w+) := (?=(?:and|from|or)\b)")
_FRAME = re.compile(rf"'{FRAME_PREFIX}\w*'")
_CONSTANT = re.compile(r"=(true|false|NULL)\b")
_CONSTANTS = {"true": "True", "false": "False", "NULL": "None"}
# Of a call in Python: one that sets a budget, a budget that is named, and any other call of a private function.
_PROTECTS = re.compile(r"\bctx\.dp_protect\(('(?:[^']|'')*')(?:, source=False)?(?:, )?")
_DATASET = re.compile(r"\bdataset=('(?:[^']|'')*')")
_RELEASES = re.compile(r"\bctx\.dp_(\w+)\('(?:[^']|'')*'(?:, )?")


def in_python(message: str) -> str:
    """Return a message that spells the next step in SQL with the step as a call of `dpsql.Context`."""
    parts = _QUOTED.split(_FRAME.sub("the frame", message))
    return "".join(part if place % 2 else _python(part) for place, part in enumerate(parts))


def _python(text: str) -> str:
    text = _NOTHING_GIVEN.sub(r"\1=... ", _CALL.sub("ctx.", text))
    text = _GIVEN.sub(r"\1=", text)
    text = _CONSTANT.sub(lambda found: f"={_CONSTANTS[found[1]]}", text)
    return text.replace("features=release(", "features=ctx.release(")


def on_frames(message: str) -> str:
    """Return a message that spells the next step in SQL or Python with the step as a call on a Polars frame."""
    text = _PROTECTS.sub(r"frame.dp.of(\1).dp.protect(", in_python(message))
    return _RELEASES.sub(r"frame.dp.\1(", _DATASET.sub(r"frame.dp.of(\1)", text))

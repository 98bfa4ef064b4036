"""Compares an output that a page shows with one of a real run, in which noise differs.

Tables are compared cell by cell: the names of columns, words, and numbers that are not noise must agree. Anything else is
compared as words, with its numbers, times and hashes masked. A line ``…`` stands for any lines.
"""

from __future__ import annotations

import re

# Columns whose numbers follow from the draw; of a selection and a model also what they hold.
NOISY = frozenset(
    (
        *("value", "lower", "upper", "count", "count_lower", "count_upper", "cumulative", "score", "coefficient"),
        *("auc", "fpr", "tpr", "threshold", "feature", "term", "recorded_at", "hash"),
    )
)
# Errors that depend on the draw in functions whose rows have these columns.
NOISY_ERRORS = {"std_error": ("coefficient", "auc"), "fpr_std_error": ("fpr",), "tpr_std_error": ("tpr",)}
_SURE = {"clear", "unclear"}
_RULE = re.compile(r"^[\s┌┐└┘├┤┬┴┼─═╞╪╡│|+-]*$")
_CELL = re.compile(r"\s*[│┆|]\s*")
_NUMBER = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z|\b[0-9a-f]{16,}\b|(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?!\w)")
_ANY = "…"


def differences(shown: str, real: str, *, noisy: bool = False) -> list[str]:
    """Return what a shown output says that a real one does not; none if they agree.

    With `noisy`, any number of a table may differ.
    """
    ours, theirs = _parts(shown), _parts(real)
    if any(part[0][0] == _ANY for part in ours):
        theirs = theirs[: len(ours)]
    if len(ours) != len(theirs):
        return [f"{len(ours)} tables or texts are shown, {len(theirs)} are printed: {theirs[-1]}"]
    return [wrong for one, other in zip(ours, theirs, strict=True) for wrong in _differ(one, other, noisy)]


def _parts(text: str) -> list[list[list[str]]]:
    """Return the tables and the texts of an output as rows of cells; a line of text is a row of one cell."""
    parts: list[list[list[str]]] = []
    for line in map(str.strip, _lines(text)):
        # The bar in front tells a table of one column from a line of text.
        cells = ["│", *_CELL.split(line.strip("│┆").strip())] if line[:1] in ("│", "┆") else [line]
        is_next = parts and len(parts[-1][0]) > 1 and (len(parts[-1][0]) == len(cells) or cells == [_ANY])
        if is_next:
            parts[-1].append(cells)
        else:
            parts.append([cells])
    return parts


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines() if not _RULE.match(line)]


def _masked(line: str) -> str:
    return " ".join(_NUMBER.sub("#", line).split())


def _differ(wanted: list[list[str]], found: list[list[str]], noisy: bool) -> list[str]:
    """Compare a table with a table, or a line with a line."""
    names = wanted[0]
    if len(names) == 1:
        same = names[0] == _ANY or _masked(names[0]) == _masked(found[0][0])
        return [] if same else [f"{names[0]!r} is shown, {found[0][0]!r} is printed"]
    if wanted[-1] == [_ANY]:
        wanted = wanted[:-1]
        found = found[: len(wanted)]
    if names != found[0]:
        return [f"columns {names} are shown, {found[0]} are printed"]
    if len(wanted) != len(found) and "threshold" not in names:  # thresholds that fall together are one row
        return [f"{len(wanted)} lines are shown, {len(found)} are printed"]
    return [
        f"{name}: {one!r} is shown, {other!r} is printed"
        for ours, theirs in zip(wanted[1:], found[1:], strict=False)
        for name, one, other in zip(names, ours, theirs, strict=True)
        if not (_agree(name, names, one, other) or (noisy and _masked(one) == _masked(other)))
    ]


def _agree(name: str, names: list[str], one: str, other: str) -> bool:
    if one == other or (name == "verdict" and {one, other} <= _SURE):
        return True
    noisy = name in NOISY or any(sign in names for sign in NOISY_ERRORS.get(name, ()))
    is_word = name in ("feature", "term")
    return noisy and (is_word or (_masked(one) == "#" and _masked(other) == "#"))

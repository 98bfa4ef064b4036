"""What a misspelt name may have meant, from public names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from dpsql.contract.parameters import fold, show


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

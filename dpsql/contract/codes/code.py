"""The class of error codes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Code:
    """One error code.

    Attributes
    ----------
    code : str
        A letter and three digits, as in ``[DPSQL-P001]``.
    when : str
        The cause, in one sentence.
    what_to_do : str
        The next step, in one sentence.
    """

    code: str
    when: str
    what_to_do: str

    def __str__(self) -> str:
        return f"DPSQL-{self.code}: {self.when}\n{self.what_to_do}"

"""Limits on rows by their owner: rows are put in order only where an owner has more of them than count.

To put all rows in the order of what they hold, owner by owner, takes most of the time of a call. But a sample of so
many rows is all rows of whoever has no more. So the rows are kept once, their numbers are counted, and only those of
owners with more are put in order and sampled. Which rows of an owner count is what it was: a function of its own rows
and the key of the call. The rows are read once, so what is counted is what is handed over, whatever a file does
meanwhile; and keys that are NULL are one owner in all three steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpsql.engines.duckdb.steps.step import Frame, Step
from dpsql.rendering import call

# With fewer rows that count, most owners have more, and one order of all rows is faster.
_FEW = 8


@dataclass(frozen=True)
class Cap:
    """A limit.

    Attributes
    ----------
    condition : str
        SQL of whether a row counts, by windows over all rows of its owner.
    owner : tuple of str
        Columns; none where rows of several owners are compared.
    most : int or str
        How many rows of an owner count, or SQL of that.
    """

    condition: str
    owner: tuple[str, ...] = ()
    most: int | str = 0

    @property
    def divides(self) -> bool:
        """Whether it is worth to tell owners with more rows apart."""
        return bool(self.owner) and (isinstance(self.most, str) or self.most >= _FEW)


def within(frame: Frame, name: str, cap: Cap, rows: str, flag: str = "") -> tuple[list[Step], str]:
    """Return the steps before a limit, and the query of the rows that count.

    Parameters
    ----------
    frame : Frame
    name : str
        Of the limit, for the names of its steps.
    cap : Cap
    rows : str
        FROM item of all rows.
    flag : str
        With it all rows stay, and a column of this name says whether they count.
    """
    chosen = f"SELECT *, ({cap.condition}) AS {flag}\n  FROM {{rows}}" if flag else (
        f"SELECT * FROM {{rows}}\n  QUALIFY {cap.condition}"
    )  # fmt: skip
    if not cap.divides:
        return [], chosen.format(rows=rows)
    whole, above = frame.name(f"{name}rows"), frame.name(f"{name}above")
    owner = ", ".join(cap.owner)
    counted = f"SELECT {owner} FROM {whole}\n  GROUP BY {owner} HAVING {call('count_star')} > {cap.most}"
    steps = [
        Step(f"{name}rows", "The rows of all owners, read once.", f"SELECT * FROM {rows}", kept=True),
        Step(f"{name}above", "The owners with more rows than count: only these are put in order.", counted, kept=True),
    ]
    light, heavy = (_joined(word, whole, above, cap.owner) for word in ("ANTI", "SEMI"))
    all_of_them = f"SELECT *, true AS {flag} FROM {light}" if flag else f"SELECT * FROM {light}"
    return steps, f"{all_of_them}\n  UNION ALL\n  {chosen.format(rows=heavy)}"


def _joined(word: str, rows: str, owners: str, columns: Sequence[str]) -> str:
    equal = " AND ".join(f"one.{column} IS NOT DISTINCT FROM other.{column}" for column in columns)
    return f"(SELECT * FROM {rows} AS one {word} JOIN {owners} AS other ON {equal})"

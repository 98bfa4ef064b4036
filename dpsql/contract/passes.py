"""The passes of a call: what every engine must know of each before a row is read."""

from __future__ import annotations

from dataclasses import dataclass

# The statements that compute a statistic: from rows passed to the call's collector, or as sums in SQL.
COLLECTED, XTY, HISTOGRAM, FEATURE_COUNTS, GROUPED = "collected", "xty", "histogram", "feature_counts", "grouped"


@dataclass(frozen=True)
class Pass:
    """One reading of the rows by a call.

    Attributes
    ----------
    statement : str
        Name of the statement that computes the statistic.
    keyed : bool
        Whether every row comes with a key that is the same in all passes: a hash of its id, or without an id of its
        contents. The key decides the block of the row.
    whole_blocks : int
        Number of blocks that the rows are sorted into before they are collected; 0 for no sorting.
    most_rows : int or None
        Limit on the number of rows that count; excess rows are dropped at random. None for no limit.
    draws_names : bool
        Whether the feature names are private, and drawn from the rows of this pass.
    keeps_rows : str
        What to ask for on an engine if rows must be kept one by one; empty if the statistic is a fold.
    may_stop : bool
        Whether the rows of earlier passes may decide that this one is left out.
    reads_rows : bool
        Whether it reads rows, rather than what the call has drawn.
    """

    statement: str = COLLECTED
    keyed: bool = False
    whole_blocks: int = 0
    most_rows: int | None = None
    draws_names: bool = False
    keeps_rows: str = ""
    may_stop: bool = False
    reads_rows: bool = True

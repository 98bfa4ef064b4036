"""Broken scans for private intervals: each looks like `dpsql.mechanisms.interval_scan` and is not private.

Numbers are largest losses in units of what the scans claim, found by `check_exhaustively` in
`tests/privacy/test_exhaustive_interval.py`; the right law passes the same check.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from support.laws.interval import Ends, ends_law, scan_law
from support.laws.quantile import Rows


def closed_ends_law(rows: Rows, cells: int, start: int, scale: float, left: int) -> dict[Ends, float]:
    """Return the law of scans that count the rows of the cell they are at.

    - **What is wrong**: a row of the start enters both scans.
    - **Caught by**: `check_exhaustively`.
    - **Counter-example**: a row in the start, with two cells on either side: 4 / s, where 2 / s is paid for.
    """
    known = [row for row in rows if row is not None]
    below = scan_law([sum(row <= cell for row in known) for cell in range(start, -1, -1)], scale, left)
    above = scan_law([sum(row >= cell for row in known) for cell in range(start, cells)], scale, left)
    return {(start - down, start + up): p * q for down, p in below.items() for up, q in above.items()}


def redrawn_threshold_law(beyond: Sequence[int], scale: float, left: int) -> dict[int, float]:
    """Return the law of a scan with a new threshold for every cell.

    - **What is wrong**: that a scan goes on says something at each cell, and is paid for once.
    - **Caught by**: `check_exhaustively`.
    - **Counter-example**: a row beyond a start, with a cell between: 1.5 times.
    """
    found, going = {}, 1.0
    for cell, rows in enumerate(beyond):
        stops = scan_law([rows, 0], scale, left)[0] if cell < len(beyond) - 1 else 1.0
        found[cell] = going * stops
        going *= 1 - stops
    return found


def added_threshold_law(beyond: Sequence[int], scale: float, left: int) -> dict[int, float]:
    """Return the law of a scan that stops at ``E_i - beyond_i >= -E_0 - r``.

    - **What is wrong**: the noise of the threshold has the wrong sign, and cannot be smaller than 0.
    - **Caught by**: `check_exhaustively`.
    - **Counter-example**: r rows beyond a cell, where a scan stops for sure, and one more: infinite loss.
    """
    decay = math.exp(-1 / scale)
    law = dict.fromkeys(range(len(beyond)), 0.0)
    for threshold in range(math.ceil(90 * scale)):
        chance = (1 - decay) * decay**threshold
        for cell, rows in enumerate(beyond):
            stops = decay ** max(0, rows - left - threshold) if cell < len(beyond) - 1 else 1.0
            law[cell] += chance * stops
            chance *= 1 - stops
    return law


def moved_start_law(rows: Rows, cells: int, start: int, scale: float, left: int) -> dict[Ends, float]:
    """Return the law of scans from the cell nearest to the start that has rows.

    - **What is wrong**: which cells have rows is not public.
    - **Caught by**: `check_exhaustively`.
    - **Counter-example**: one row in the start, and one beside it: infinite loss.
    """
    filled = sorted((abs(row - start), row) for row in rows if row is not None)
    return ends_law(rows, cells, filled[0][1] if filled else start, scale, left)


def told_rows_law(rows: Rows, cells: int, start: int, scale: float, left: int) -> dict[Ends, float]:
    """Return the law of the upper end of a scan with the noisy count that it stopped at, ``beyond_i - E_i``.

    - **What is wrong**: the noise of the cell is spent on the comparison.
    - **Caught by**: `check_exhaustively`.
    - **Counter-example**: E_i is not below 0, so the largest value tells the rows beyond: infinite loss.
    """
    decay = math.exp(-1 / scale)
    beyond = [sum(row is not None and row > cell for row in rows) for cell in range(start, cells)]
    law: dict[Ends, float] = {}
    reach = math.ceil(90 * scale)
    for threshold in range(reach):
        chance = (1 - decay) * decay**threshold
        for cell, count in enumerate(beyond):
            least = max(0, threshold - left + count) if cell < len(beyond) - 1 else 0
            for noise in range(least, least + reach):
                told = (start + cell, count - noise)
                law[told] = law.get(told, 0.0) + chance * (1 - decay) * decay**noise
            chance *= 1 - decay**least
    return law

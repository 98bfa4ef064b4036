"""The rows of private bounds: post-processing, so it costs no privacy.

==============  ==================================================================================================
verdict         meaning
==============  ==================================================================================================
clear           more than half of the rows with a value lie inside, and the interval was not started beyond all rows:
                each but for a chance of `failure` (`dpsql.mechanisms.interval_scan`)
undetermined    there are too few rows for that, and no bounds
not measured    bounds of a version that did not count rows
==============  ==================================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpsql.contract.json import Json
from dpsql.contract.verdicts import CLEAR, NOT_MEASURED, UNDETERMINED
from dpsql.mechanisms.interval_scan import PrivateInterval


def interval_record(interval: PrivateInterval) -> list[Json]:
    """Return what the ledger keeps of an interval: both ends, and the rows inside and outside."""
    lower, upper = interval.ends or (None, None)
    return [lower, upper, interval.inside, interval.outside]


def interval_row(record: Sequence[Any], std_error: float | None) -> Mapping[str, Json]:
    """Return the row of a stored interval."""
    lower, upper, inside, outside = record if len(record) == 4 else [*record, None, None]
    verdict = NOT_MEASURED if inside is None else UNDETERMINED if lower is None else CLEAR
    return {
        "lower": lower,
        "upper": upper,
        "rows_inside": inside,
        "rows_outside": outside,
        "std_error": std_error,
        "verdict": verdict,
    }

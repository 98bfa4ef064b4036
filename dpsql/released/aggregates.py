"""Released aggregates: what the ledger keeps of them, and their rows. Everything here is free post-processing.

The ledger keeps the noisy integers, and what is public about them. Values, errors and intervals are computed whenever
the release is read (`dpsql.released.covariance`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NotRequired, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.contract.json import Json
from dpsql.mechanisms.aggregates import NoisyBlock
from dpsql.mechanisms.interval_scan import PrivateInterval
from dpsql.released.covariance import Estimated, estimates, nothing_left
from dpsql.released.intervals import interval_record
from dpsql.released.left_out import LeftOut, are_biased
from dpsql.released.results import Groups, groups_record
from dpsql.released.sampling import sampled_mean
from dpsql.released.stored_blocks import StoredBlock, restored_block, stored_block
from dpsql.released.verdicts import interval_verdicts
from dpsql.statistics.aggregates import AVG, COUNT


class Aggregated(Groups):
    """Aggregates of groups: a block for each target."""

    aggregates: list[str]
    ddof: int
    confidence: float
    blocks: list[StoredBlock]
    sizes: NotRequired[list[int]]  # of the groups, where these are public
    left_out: NotRequired[LeftOut]  # where it was measured
    sampled: NotRequired[int]  # rows of a unit in a group, where intervals of averages are about the population


class Asked(Protocol):
    """What a plan asked for."""

    @property
    def key_columns(self) -> tuple[str, ...]:
        """Names of the key columns."""

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the targets."""

    @property
    def aggregates(self) -> tuple[str, ...]:
        """What is estimated of every target."""

    @property
    def ddof(self) -> int:
        """What variances subtract from the number of rows."""

    @property
    def confidence(self) -> Fraction:
        """Coverage of the intervals."""

    @property
    def sampling(self) -> bool | None:
        """Whether intervals of averages are about the population."""

    @property
    def rows_per_group(self) -> int:
        """Rows of a unit in a group."""

    @property
    def group_sizes(self) -> tuple[int, ...] | None:
        """The public number of rows of each group; None where these are private."""


def record_of(
    noisy: Sequence[NoisyBlock],
    asked: Asked,
    keys: Sequence[Sequence[str | None]],
    types: Sequence[str],
    drawn: Sequence[PrivateInterval | None] = (),
) -> dict[str, Json]:
    """Return what the ledger keeps of a release, an `Aggregated`.

    Parameters
    ----------
    noisy : sequence of NoisyBlock
        A block for each target, or one for all rows.
    asked : Asked
    keys : sequence of sequence of str or None
        The key of each group, by column.
    types : sequence of str
        SQL type of each column of `by`; another key column is a BOOLEAN.
    drawn : sequence of (PrivateInterval or None)
        The private bounds of each target; none where bounds are public.
    """
    targets = asked.targets or (None,)
    intervals: list[dict[str, Json]] = [{} if one is None else {"drawn": interval_record(one)} for one in drawn]
    intervals = intervals or [{} for _ in targets]
    return {
        **groups_record(asked.key_columns, keys, types),
        "aggregates": list(asked.aggregates),
        "ddof": asked.ddof,
        "confidence": float(asked.confidence),
        "blocks": [
            {**stored_block(target, block), **interval}
            for target, block, interval in zip(targets, noisy, intervals, strict=True)
        ],
        **({} if asked.group_sizes is None else {"sizes": list(asked.group_sizes)}),
        **({"sampled": asked.rows_per_group} if asked.sampling else {}),
    }


def estimated(result: Aggregated) -> Iterator[tuple[str | None, str, Estimated]]:
    """Yield target, name and estimates of every aggregate."""
    for stored in result["blocks"]:
        noisy = restored_block(stored)
        asked: dict[str, Any] = {name: result.get(name) for name in ("confidence", "ddof", "sizes")}
        found = {
            name: one.without(nothing_left(noisy, name, **asked))
            for name, one in estimates(noisy, result["aggregates"], **asked).items()
        }
        if "sampled" in result:
            tail, unit = 1.0 - result["confidence"], result["sampled"]
            count = estimates(noisy, (COUNT,), confidence=result["confidence"])[COUNT]
            mean, ends = found[AVG], stored["bounds"] or (-np.inf, np.inf)
            mean = sampled_mean(noisy, mean, count.lower, tail=tail, rows_per_unit=unit)
            found[AVG] = replace(mean, lower=np.maximum(mean.lower, ends[0]), upper=np.minimum(mean.upper, ends[1]))
        bounded = None not in stored.get("drawn", ())
        for name in result["aggregates"]:
            yield stored["target"], name, found[name] if bounded or name == COUNT else _unknown(found[name])


def width_before(stored: StoredBlock, name: str) -> float:
    """Return how wide the interval of an aggregate was that was public before: of a mean its bounds, of others NaN."""
    bounds = stored["bounds"]
    return np.nan if name != AVG or bounds is None else bounds[1] - bounds[0]


def _unknown(found: Estimated) -> Estimated:
    """Return estimates that are all NULL, of as many groups."""
    return Estimated(*[np.full_like(found.value, np.nan)] * 4)


def entries(result: Aggregated, kind: pa.StructType) -> pa.StructArray:
    """Return the rows of a release: group by group in the order of the keys, and in a group target by target."""
    series = list(estimated(result))
    groups = len(series[0][2].value)
    order = np.arange(groups * len(series)).reshape(len(series), groups).T.ravel()
    columns: dict[str, pa.Array] = {"keys": key_lists(result["keys"], order % groups)}
    columns["target"] = pa.array(np.repeat([name for name, _, _ in series], groups)[order], type=pa.string())
    columns["aggregate"] = pa.array(np.repeat([name for _, name, _ in series], groups)[order], type=pa.string())
    numbers = {
        part: np.concatenate([getattr(found, part) for _, _, found in series])[order]
        for part in ("value", "std_error", "lower", "upper")
    }
    columns |= {part: pa.array(values, mask=np.isnan(values)) for part, values in numbers.items()}
    judged = "left_out" in result or any("drawn" in stored for stored in result["blocks"])
    biased = np.concatenate(are_biased(result, series))[order] if judged else None
    widths = [width_before(stored, name) for stored in result["blocks"] for name in result["aggregates"]]
    ends = numbers["value"], numbers["lower"], numbers["upper"]
    columns["verdict"] = interval_verdicts(*ends, biased, np.repeat(widths, groups)[order])
    fields = list(kind)
    return pa.StructArray.from_arrays([columns[field.name].cast(field.type) for field in fields], fields=fields)


def key_lists(keys: Sequence[Sequence[str | None]], groups: NDArray[np.intp]) -> pa.ListArray:
    """Return the keys of the groups of some rows, given by column, as a column of lists."""
    width, count = len(keys), len(groups)
    offsets = pa.array(np.arange(count + 1, dtype=np.int32) * width)
    if not keys:
        return pa.ListArray.from_arrays(offsets, pa.array([], type=pa.string()))
    texts = [pa.array(column, type=pa.string()).take(pa.array(groups)) for column in keys]
    places = np.arange(count * width).reshape(width, count).T.ravel()
    return pa.ListArray.from_arrays(offsets, pa.concat_arrays(texts).take(pa.array(places)))

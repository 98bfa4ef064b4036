"""Released aggregates: what the ledger keeps of them, and their rows. Everything here is free post-processing.

The ledger keeps the noisy integers, and what is public about them. Values, errors and intervals are computed whenever
the release is read (`dpsql.released.moments`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Protocol, TypedDict

import numpy as np
import pyarrow as pa

from dpsql.contract.json import Json
from dpsql.mechanisms.aggregates import Lattice, NoisyBlock
from dpsql.released.moments import Estimated, estimates
from dpsql.statistics.aggregates import (
    Bernstein,
    Block,
    CentredPair,
    Chebyshev,
    DirectSum,
    GroupCount,
    TransformedPair,
    ValueBlock,
    Words,
)

_KINDS: dict[str, Callable[..., Block]] = {
    one.kind: one for one in (GroupCount, DirectSum, TransformedPair, Bernstein, CentredPair, Chebyshev)
}


class StoredBlock(TypedDict):
    """The noisy integers of one target, by coordinate and group: high words, and low words of `word_bits` bits."""

    target: str | None
    kind: str
    bounds: Sequence[float] | None
    noise: str
    bits: int
    spread: str
    words: list[list[list[int]]]
    word_bits: int


class Aggregated(TypedDict):
    """Aggregates of groups: their keys by column, the SQL types of these, and a block for each target."""

    columns: list[str]
    types: list[str]
    keys: list[list[str | None]]
    aggregates: list[str]
    ddof: int
    confidence: float
    blocks: list[StoredBlock]


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


def record_of(
    noisy: Sequence[NoisyBlock], asked: Asked, keys: Sequence[Sequence[str | None]], types: Sequence[str]
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
    """
    targets = asked.targets or (None,)
    columns = list(asked.key_columns)
    return {
        "columns": columns,
        "types": [*types, *["BOOLEAN"] * (len(columns) - len(types))],
        "keys": [list(column) for column in keys],
        "aggregates": list(asked.aggregates),
        "ddof": asked.ddof,
        "confidence": float(asked.confidence),
        "blocks": [_stored(target, block) for target, block in zip(targets, noisy, strict=True)],
    }


def _stored(target: str | None, noisy: NoisyBlock) -> dict[str, Json]:
    block, lattice, words = noisy.block, noisy.lattice, noisy.words
    return {
        "target": target,
        "kind": block.kind,
        "bounds": [block.lower, block.upper] if isinstance(block, ValueBlock) else None,
        "noise": lattice.noise,
        "bits": lattice.bits,
        "spread": str(lattice.spread),
        "words": [part.tolist() for part in (words.high, words.low) if isinstance(part, np.ndarray)],
        "word_bits": words.bits,
    }


def _restored(stored: StoredBlock) -> NoisyBlock:
    kind = _KINDS[stored["kind"]]
    block = kind() if stored["bounds"] is None else kind(*stored["bounds"])
    lattice = Lattice(stored["noise"], stored["bits"], Fraction(stored["spread"]))
    words = [np.array(part, dtype=np.int64) for part in stored["words"]]
    low = words[1] if len(words) > 1 else 0
    return NoisyBlock(block, lattice, Words(words[0], low, stored["word_bits"]))


def estimated(result: Aggregated) -> Iterator[tuple[str | None, str, Estimated]]:
    """Yield target, name and estimates of every aggregate."""
    for stored in result["blocks"]:
        found = estimates(_restored(stored), result["aggregates"], confidence=result["confidence"], ddof=result["ddof"])
        for name in result["aggregates"]:
            yield stored["target"], name, found[name]


def entries(result: Aggregated, kind: pa.StructType) -> pa.StructArray:
    """Return the rows of a release: group by group in the order of the keys, and in a group target by target."""
    series = list(estimated(result))
    groups = len(series[0][2].value)
    order = np.arange(groups * len(series)).reshape(len(series), groups).T.ravel()
    texts = [pa.array(column, type=pa.string()).take(pa.array(order % groups)) for column in result["keys"]]
    columns: dict[str, pa.Array] = {"keys": _lists(texts, len(order))}
    columns["target"] = pa.array(np.repeat([name for name, _, _ in series], groups)[order], type=pa.string())
    columns["aggregate"] = pa.array(np.repeat([name for _, name, _ in series], groups)[order], type=pa.string())
    for part in ("value", "std_error", "lower", "upper"):
        values = np.concatenate([getattr(found, part) for _, _, found in series])[order]
        columns[part] = pa.array(values, mask=np.isnan(values))
    fields = list(kind)
    return pa.StructArray.from_arrays([columns[field.name].cast(field.type) for field in fields], fields=fields)


def keyed_rows(result: Aggregated, kind: pa.StructType) -> list[dict[str, object]]:
    """Return the rows of a release with their keys by the names of the columns, as texts."""
    found = []
    for row in entries(result, kind).to_pylist():
        found.append({**dict(zip(result["columns"], row.pop("keys"), strict=True)), **row})
    return found


def _lists(columns: Sequence[pa.Array], count: int) -> pa.ListArray:
    """Return columns of texts as a column of lists."""
    width = len(columns)
    offsets = pa.array(np.arange(count + 1, dtype=np.int32) * width)
    if not columns:
        return pa.ListArray.from_arrays(offsets, pa.array([], type=pa.string()))
    places = np.arange(count * width).reshape(width, count).T.ravel()
    return pa.ListArray.from_arrays(
        offsets, pa.concat_arrays([column.cast(pa.string()) for column in columns]).take(pa.array(places))
    )

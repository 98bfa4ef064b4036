"""How the ledger keeps noisy blocks: their integers, and what is public about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import NotRequired, TypedDict

import numpy as np

from dpsql.contract.json import Json
from dpsql.mechanisms.aggregates import Lattice, NoisyBlock
from dpsql.statistics.aggregates import (
    CUBE,
    Bernstein,
    Block,
    CentredPair,
    CentredSum,
    Chebyshev,
    DirectSum,
    GroupCount,
    TransformedPair,
    ValueBlock,
    Words,
)
from dpsql.statistics.left_out import UnitsOver
from dpsql.statistics.shared_count import SharedTarget

_ABOUT_THE_MIDDLE = CentredSum, CentredPair, Chebyshev, SharedTarget
_BLOCKS = (GroupCount, UnitsOver, DirectSum, TransformedPair, Bernstein, *_ABOUT_THE_MIDDLE)
_KINDS: dict[str, Callable[..., Block]] = {one.kind: one for one in _BLOCKS}


class StoredBlock(TypedDict):
    """The noisy integers of one target, by coordinate and group: high words, and low words of `word_bits` bits.

    Where bounds are private, `drawn` is their interval (`dpsql.released.intervals.interval_record`); without ends the
    target has no values, and only its count is told. `weight` is that of a count that targets share, and `together` the
    number of coordinates that have noise of a cube together.
    """

    target: str | None
    kind: str
    bounds: Sequence[float] | None
    noise: str
    bits: int
    spread: str
    words: list[list[list[int]]]
    word_bits: int
    weight: NotRequired[int]
    together: NotRequired[int]
    drawn: NotRequired[list[float | None]]


def stored_block(target: str | None, noisy: NoisyBlock) -> dict[str, Json]:
    """Return what the ledger keeps of a block, a `StoredBlock`."""
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
        **({"weight": block.weight} if isinstance(block, SharedTarget) else {}),
        **({"together": lattice.together} if lattice.noise == CUBE else {}),
    }


def restored_block(stored: StoredBlock) -> NoisyBlock:
    """Return the block that `stored_block` wrote."""
    kind = _KINDS[stored["kind"]]
    weight = {"weight": stored["weight"]} if "weight" in stored else {}
    block = kind() if stored["bounds"] is None else kind(*stored["bounds"], **weight)
    lattice = Lattice(stored["noise"], stored["bits"], Fraction(stored["spread"]), stored.get("together", 1))
    words = [np.array(part, dtype=np.int64) for part in stored["words"]]
    low = words[1] if len(words) > 1 else 0
    return NoisyBlock(block, lattice, Words(words[0], low, stored["word_bits"]))

"""Exact noise samplers beside OpenDP: samples per second, alternating in one run.

Run ``python benchmarks/noise.py``. Needs opendp (extra ``bench``). Both sides draw integers with exact laws
from the operating system's entropy; OpenDP adds its noise to a vector of zeros, its fastest interface.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from importlib.metadata import version

from dpsql.noise.discrete import discrete_gaussian, discrete_laplace

ROUNDS = 5
OURS, THEIRS = 1_000_000, 10_000


def seconds(function: Callable[[], object]) -> float:
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def compare(name: str, ours: Callable[[int], object], theirs: Callable[[int], object]) -> float:
    """Print and return how many times as many samples per second we draw (median of paired ratios)."""
    ours(1000)
    theirs(1000)
    own, peer = [], []
    for _ in range(ROUNDS):
        own.append(OURS / seconds(lambda: ours(OURS)))
        peer.append(THEIRS / seconds(lambda: theirs(THEIRS)))
    ratio = statistics.median(a / b for a, b in zip(own, peer, strict=True))
    mega = statistics.median(own) / 1e6, statistics.median(peer) / 1e6
    print(f"{name:<42} dpsql {mega[0]:7.2f} M/s   OpenDP {mega[1]:6.3f} M/s   ratio {ratio:6.0f}")
    return ratio


def main() -> int:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    print(f"opendp {version('opendp')}; M/s: million samples per second, median of {ROUNDS} rounds")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    space_l2 = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    zeros = {size: [0] * size for size in (1000, THEIRS)}
    ratios = []
    for scale in (10, 1000, 10**6):
        laplace = dp.m.make_laplace(*space, scale=float(scale))
        ratios.append(
            compare(
                f"discrete Laplace, scale {scale}",
                lambda size, scale=scale: discrete_laplace(Fraction(scale), size),
                lambda size, peer=laplace: peer(zeros[size]),
            )
        )
        gaussian = dp.m.make_gaussian(*space_l2, scale=float(scale))
        ratios.append(
            compare(
                f"discrete Gaussian, standard deviation {scale}",
                lambda size, scale=scale: discrete_gaussian(Fraction(scale) ** 2, size),
                lambda size, peer=gaussian: peer(zeros[size]),
            )
        )
    print(f"smallest ratio {min(ratios):.0f}; goal 50")
    return 0 if min(ratios) >= 50 else 1


if __name__ == "__main__":
    sys.exit(main())

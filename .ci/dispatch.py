"""Run the tests of orders and of laws once for every path that this processor can take.

NumPy, OpenBLAS and numba choose their inner loops by the processor. Which way a partial sort leaves equal keys, and the
last bits of an exponential and of a sum of doubles, follow from that choice. No order, no exact integer and no law may,
and no answer but for rounding.

NumPy's choice is narrowed by ``NPY_DISABLE_CPU_FEATURES``, which refuses the baseline and warns of names it does not
know. So the list is made from what this build dispatches and this processor has: without all but the lowest level,
then without any. With the last setting OpenBLAS, too, takes the loops of an old processor. Where there is
nothing to leave out, one run is all there is to do. With ``--others`` the processor as it is, which all other runs of
these tests look at, is left out. Paths of other tests that are named are run in their place.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from pathlib import Path

from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

TESTS = [
    "tests/unit/test_orders.py",
    "tests/unit/test_dispatch.py",
    "tests/unit/test_mechanisms_ranking.py",
    "tests/unit/test_mechanisms_select.py",
    "tests/unit/test_mechanisms_quantile.py",
    "tests/unit/test_noise_race.py",
    "tests/unit/test_kernels_doubled.py",
    "tests/unit/test_mechanisms_canonical_lipschitz.py",
    "tests/unit/test_kernels_lasso_votes.py",
    "tests/unit/test_kernels_block_gram.py",
    "tests/statistical/test_mechanism_laws.py",
    "tests/recordings/test_recordings.py",
]
# Long, and of nothing that a processor decides.
LEFT_OUT = " and ".join(
    f"not {word}"
    for word in (
        "sklearn",
        "first_visit",
        "extreme_epsilon",
        "refused",
        "checked",
        "a_million",
        "many_candidates",
        "envelope",
    )
)
OTHERS = "--others"
OLD_BLAS = {"x86_64": "Prescott", "amd64": "Prescott", "aarch64": "ARMV8", "arm64": "ARMV8"}


def settings() -> list[dict[str, str]]:
    """Return the environments: as it is, and with fewer features, and with none; no two alike."""
    present = [name for name in __cpu_dispatch__ if __cpu_features__.get(name)]
    found: list[dict[str, str]] = [{}]
    for left_out in (present[1:], present):
        setting = {"NPY_DISABLE_CPU_FEATURES": " ".join(left_out)}
        if left_out and setting not in found:
            found.append(setting)
    core = OLD_BLAS.get(platform.machine().lower())
    if core is not None:
        found[-1] = {**found[-1], "OPENBLAS_CORETYPE": core}
    return found


def main() -> int:
    """Run all settings; return 1 when one fails."""
    failed, options = 0, [option for option in sys.argv[1:] if option != OTHERS]
    tests = [] if any(Path(option.partition("::")[0]).exists() for option in options) else ["-k", LEFT_OUT, *TESTS]
    for setting in settings()[len(sys.argv) - 1 - len(options) :]:
        shown = " ".join(f'{name}="{value}"' for name, value in setting.items()) or "the processor as it is"
        print(f"-- {shown}", flush=True)
        start = time.monotonic()
        command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", *options, *tests]
        failed |= subprocess.run(command, env={**os.environ, **setting}, check=False).returncode != 0  # noqa: S603  # our own arguments
        print(f"-- {time.monotonic() - start:.0f} s", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

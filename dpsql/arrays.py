"""Arrays of numbers, as the rooms hand them to each other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
# Doubles, or floats as Arrow holds them.
Floats = NDArray[np.floating]
Longs = NDArray[np.int64]
# Exact integers: in 64 bits where they fit, else Python's.
Integers = Longs | NDArray[np.object_]

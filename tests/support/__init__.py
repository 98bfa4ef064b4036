"""What several tests share: exact laws of the private functions, planted faults, and runners."""

from __future__ import annotations

import duckdb

# Whether DuckDB is older than 2.0, which answers some questions otherwise.
BEFORE_2_0 = duckdb.__version__.startswith("1.")

"""What the gateway refuses. The class stands with the others, since a broker's error passes through DuckDB, too."""

from __future__ import annotations

from dpsql.errors import GatewayError

__all__ = ["GatewayError"]

"""Without the extra `serve` the transports are not there to be tested."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("uvicorn") and find_spec("mcp") and find_spec("grpc") else ["test_gateway_*.py"]

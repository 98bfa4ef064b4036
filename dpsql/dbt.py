"""Use dpsql inside dbt: a dbt-duckdb plugin that lets models, tests and hooks call the private functions.

In ``profiles.yml``::

    plugins:
      - module: dpsql.dbt
        config:
          ledger: clinic.duckdb.dpsql-ledger
          strict: true

The guide is ``docs/dbt.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

try:
    from dbt.adapters.duckdb.plugins import BasePlugin, DuckDBPyConnection
    from dbt_common.exceptions import DbtRuntimeError
except ImportError as missing:
    raise ImportError(
        "dpsql.dbt is a plugin of dbt-duckdb, which is not installed. Run pip install 'dpsql[dbt]'."
    ) from missing

from dpsql.contract.names import refuse_unknown
from dpsql.contract.parameters import boolean, text
from dpsql.engines.duckdb.installation import default_ledger, install
from dpsql.errors import DpsqlError, LedgerError

__all__ = ["Plugin"]


class Plugin(BasePlugin):
    """Install dpsql on dbt's connection, and on each of its cursors.

    The configuration is ``ledger`` and ``strict``, as for `dpsql.connect`. The plugin raises errors of dpsql as a
    `DbtRuntimeError`, which dbt shows without a traceback.
    """

    def initialize(self, plugin_config: dict[str, Any]) -> None:
        """Read the configuration; refuse any other key."""
        # dbt-duckdb adds the profile's settings of DuckDB to the configuration.
        config = {name: value for name, value in plugin_config.items() if name not in (self.creds.settings or {})}
        with _errors_for_dbt():
            refuse_unknown(config, ("ledger", "strict"), "the config of the plugin dpsql.dbt")
            ledger = config.get("ledger")
            self._ledger = (
                None if ledger is None else text("ledger", ledger, hint="Give a path or a postgresql:// URL.")
            )
            self._strict = boolean("strict", config.get("strict", False))

    def configure_connection(self, conn: DuckDBPyConnection) -> None:
        """Install on the connection whose cursors dbt uses."""
        with _errors_for_dbt():
            if self._ledger is None and default_ledger(conn) is None:
                raise LedgerError(
                    "L017",
                    "the database of the profile is in memory, and a ledger in memory would forget all charges at the "
                    "end of the run. Give ledger in the config of the plugin dpsql.dbt.",
                )
            install(conn, ledger=self._ledger, strict=self._strict)

    def configure_cursor(self, cursor: DuckDBPyConnection) -> None:
        """Install on a cursor, because the functions' short names belong to one connection."""
        with _errors_for_dbt():
            install(cursor, ledger=self._ledger, strict=self._strict)


@contextmanager
def _errors_for_dbt() -> Iterator[None]:
    try:
        yield
    except DpsqlError as error:
        raise DbtRuntimeError(str(error)) from error

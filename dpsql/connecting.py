"""Open a database with dpsql installed, or a gateway (`dpsql.connect`)."""

from __future__ import annotations

from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack, overload

import duckdb

from dpsql.contract.boundary import public_sql
from dpsql.engines.duckdb import installation
from dpsql.engines.duckdb.installation import ConnectOptions
from dpsql.ledger.location import LedgerPlace

if TYPE_CHECKING:
    from dpsql.remote import Remote


@overload
def connect(
    path: str | PathLike[str] = ":memory:",
    *,
    ledger: str | PathLike[str] | None = None,
    strict: bool = False,
    **options: Unpack[ConnectOptions],
) -> duckdb.DuckDBPyConnection: ...
@overload
def connect(path: str, *, token: str | None) -> Remote: ...
@public_sql
def connect(path: str | PathLike[str] = ":memory:", *, token: str | None = None, **options: Any) -> Any:
    """Open a DuckDB database with dpsql installed, or a gateway by its address.

    Parameters
    ----------
    path : path or URL
        Database file, or ``':memory:'``; or the address of a gateway, such as ``'https://dpsql.example.org'``.
    ledger : path or URL, optional
        The store of budgets and releases. By default ``x.duckdb.dpsql-ledger`` next to ``x.duckdb``, and in memory for
        an in-memory database. Machines can share a ``postgresql://`` URL.
    strict : bool
        Refuse every release on a dataset without a budget of `dp_protect`.
    token : str, optional
        The gateway's token, as for `dpsql.connect_remote`.
    **options
        Options of `duckdb.connect`, such as ``read_only=True``.

    Returns
    -------
    connection : duckdb.DuckDBPyConnection or Remote
        An ordinary DuckDB connection, which you close; for a gateway, a `dpsql.remote.Remote`.

    Raises
    ------
    LedgerError
        The ledger cannot be opened, or the database belongs to another ledger.
    """
    if isinstance(path, str) and path.startswith(("https://", "http://")):
        return import_module("dpsql.remote").connect_remote(path, token, **options)
    # No stack frame of a failure shows a password in the location.
    options["ledger"] = LedgerPlace.of(options.get("ledger")) or options.get("ledger")
    return installation.connect(path, **options)

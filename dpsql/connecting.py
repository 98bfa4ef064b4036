"""`dpsql.connect`: a database with dpsql in it, or the address of a gateway."""

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
        Where budgets and releases are kept. By default ``x.duckdb.dpsql-ledger`` beside ``x.duckdb``, and in
        memory for an in-memory database. A ``postgresql://`` URL shares it between machines.
    strict : bool
        Refuse every release on a dataset that `dp_protect` never gave a budget.
    token : str, optional
        Of a gateway, as for `dpsql.connect_remote`.
    **options
        Passed on to `duckdb.connect`, such as ``read_only=True``.

    Returns
    -------
    connection : duckdb.DuckDBPyConnection or Remote
        An ordinary DuckDB connection. Close it when done. Of a gateway a `dpsql.remote.Remote`.

    Raises
    ------
    LedgerError
        The ledger cannot be opened, or the database belongs to another one.
    """
    if isinstance(path, str) and path.startswith(("https://", "http://")):
        return import_module("dpsql.remote").connect_remote(path, token, **options)
    # A password in it shows in no frame of a failure.
    options["ledger"] = LedgerPlace.of(options.get("ledger")) or options.get("ledger")
    return installation.connect(path, **options)

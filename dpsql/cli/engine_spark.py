"""Opens an engine of Spark Connect."""

from __future__ import annotations

import re
from socket import create_connection
from typing import Any
from urllib.parse import urlsplit

from pyspark.sql.connect.session import SparkSession

import dpsql.spark
from dpsql.engines.port import Engine


def open_engine(_: str, location: str) -> Engine:
    """Return the engine of a server by its URL."""
    remote, settings = split_settings(location)
    url = urlsplit(remote)
    with create_connection((url.hostname, url.port or 15002), timeout=10):  # the client would try for ten minutes
        session: Any = SparkSession.builder.remote(remote).create()  # not one that another option has opened
    for name, value in settings.items():
        session.conf.set(name, value)
    return dpsql.spark.engine(session)


def split_settings(location: str) -> tuple[str, dict[str, str]]:
    """Return a URL of Spark Connect without the parameters that are dpsql's, and these: settings of the session."""
    place, *parameters = location.split(";")
    ours = dict(one.split("=", 1) for one in parameters if re.match(r"dpsql\.\w+=", one))
    return ";".join([place, *(one for one in parameters if one.partition("=")[0] not in ours)]), ours

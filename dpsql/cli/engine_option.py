"""The option ``--engine NAME=LOCATION``: an engine to attach, by where its tables are."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from socket import create_connection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from dpsql.errors import SourceError

if TYPE_CHECKING:
    from dpsql.engines.port import Engine

FORMS = "NAME=sc://HOST:PORT (Spark Connect), NAME=polars:PARQUET or NAME=datafusion:PARQUET"


@dataclass(frozen=True)
class EngineOption:
    """An engine as it was asked for; it is opened by `engine`.

    Attributes
    ----------
    name : str
        The engine's name; of Parquet files, the name of their table too.
    kind : {'spark', 'polars', 'datafusion'}
    location : str
        A URL, or a path, which may hold ``*``. It may hold a token, so it is in no message.
    """

    name: str
    kind: str
    location: str

    @classmethod
    def read(cls, text: str) -> EngineOption:
        """Read the value of the option.

        Raises
        ------
        click.BadParameter
            It has another form.
        """
        found = re.fullmatch(r"([A-Za-z_][A-Za-z0-9_]*)=(?:(polars|datafusion):(.+)|(sc://.+))", text, re.DOTALL)
        if found is None:
            raise click.BadParameter(f"an engine has the form {FORMS}.")
        name, kind, path, url = found.groups()
        return cls(name, kind or "spark", path or url)

    def engine(self) -> Engine:
        """Open the engine.

        Raises
        ------
        SourceError
            S038: a package is missing, or nothing is there.
        """
        try:
            return _OPEN[self.kind](self)
        except ModuleNotFoundError as error:
            raise SourceError(
                "S038", f"engine {self.name} needs the package {error.name}. Install it beside dpsql."
            ) from None
        except Exception as error:
            raise SourceError(
                "S038",
                f"engine {self.name} cannot be opened ({type(error).__name__}). Check that its server runs, or that "
                "its Parquet files are there.",
            ) from None


def _spark(option: EngineOption) -> Engine:
    from pyspark.sql.connect.session import SparkSession

    import dpsql.spark

    remote, settings = split_settings(option.location)
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


def _polars(option: EngineOption) -> Engine:
    import polars

    import dpsql.polars

    frame = polars.scan_parquet(option.location)
    frame.collect_schema()
    return dpsql.polars.engine({option.name: frame})


def _datafusion(option: EngineOption) -> Engine:
    from datafusion import SessionConfig, SessionContext

    import dpsql.datafusion

    session = SessionContext(SessionConfig().set("datafusion.execution.collect_statistics", "false"))
    session.register_parquet(option.name, option.location)
    return dpsql.datafusion.engine(session)


_OPEN: dict[str, Callable[[EngineOption], Engine]] = {"spark": _spark, "polars": _polars, "datafusion": _datafusion}


def read_options(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> tuple[EngineOption, ...]:
    """Read every value of the option, for click."""
    return tuple(map(EngineOption.read, texts))

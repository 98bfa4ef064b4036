"""The option ``--engine NAME=LOCATION``: an engine to attach, by where its tables are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

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
        match = re.fullmatch(r"([A-Za-z_][A-Za-z0-9_]*)=(?:(polars|datafusion):(.+)|(sc://.+))", text, re.DOTALL)
        if match is None:
            raise click.BadParameter(f"an engine has the form {FORMS}.")
        name, kind, path, url = match.groups()
        return cls(name, kind or "spark", path or url)

    def engine(self) -> Engine:
        """Open the engine.

        Raises
        ------
        SourceError
            S038: a package is missing, or nothing is there.
        """
        try:
            engine: Engine = import_module(f"dpsql.engines.{self.kind}").open_engine(self.name, self.location)
            return engine
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


def read_options(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> tuple[EngineOption, ...]:
    """Read every value of the option, for click."""
    return tuple(map(EngineOption.read, texts))

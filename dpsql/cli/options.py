"""Define options that several commands share, such as engines, and the decorator that loads a command's work."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from dpsql.dataclass import dataclass
from dpsql.errors import SourceError

if TYPE_CHECKING:
    from dpsql.engines.port import Engine

Command = TypeVar("Command", bound=Callable[..., object])
FORMATS = ("table", "csv", "json", "parquet", "arrow")
MEMORY = ":memory:"


FORMS = "NAME=sc://HOST:PORT (Spark Connect), NAME=polars:PARQUET or NAME=datafusion:PARQUET"


@dataclass(frozen=True)
class EngineOption:
    """An engine as the user named it; `engine` opens it.

    Attributes
    ----------
    name : str
        The engine's name; for Parquet files, also the name of their table.
    kind : {'spark', 'polars', 'datafusion'}
    location : str
        A URL, or a path, which may contain ``*``. It may contain a token, so no message shows it.
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
            The value has another form.
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
            S038: a package is missing, or the location is empty.
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


def database_options(command: Command) -> Command:
    """Add the options of a command that opens a database."""
    for option in (
        click.option("--strict", is_flag=True, help="Refuse releases from datasets without a budget."),
        click.option("--read-only", is_flag=True, help="Open the database without write access."),
        click.option("--create", is_flag=True, help="Make the database, if it is not there."),
        engine_option,
        ledger_option,
    ):
        command = option(command)
    return command


def runs(path: str) -> Callable[[Callable[[], None]], Callable[..., None]]:
    """Make a command run a function of a neighbouring module, which may be heavy and is loaded only then.

    The function takes the command's parameters by name, and may return an exit code.
    """
    module, _, name = path.rpartition(".")

    def decorate(documented: Callable[[], None]) -> Callable[..., None]:
        @wraps(documented)
        def run(**options: object) -> None:
            code = getattr(import_module(f"dpsql.cli.{module}"), name)(**options)
            if code:
                click.get_current_context().exit(code)

        return run

    return decorate


def _or_of_group(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Return the value of an option, or the value that the command's group received: ``dpsql ledger --db``."""
    parameters = {} if context.parent is None else context.parent.params
    return value or parameters.get(str(option.name), value)


ledger_option = click.option(
    "--ledger",
    metavar="FILE|URL",
    callback=_or_of_group,
    help="Where charges are kept; x.duckdb.dpsql-ledger beside x.duckdb by default.",
)
engine_option = click.option(
    "--engine",
    "engines",
    multiple=True,
    metavar="NAME=LOCATION",
    callback=read_options,
    help="Attach an engine for calls with engine := 'NAME': sc://HOST:PORT, polars:PARQUET or datafusion:PARQUET.",
)
FILE = click.Path(dir_okay=False, path_type=Path)
output_option = click.option(
    "-o", "--output", type=FILE, metavar="FILE", help="Write rows here: .parquet, .csv, .json or .arrow."
)
format_option = click.option(
    "--format", "form", type=click.Choice(FORMATS), help="Of rows; by the ending of the output file, or table."
)
db_option = click.option(
    "--db", "database", default=MEMORY, metavar="DATABASE", help="DuckDB file; in memory by default."
)


def place_options(command: Command) -> Command:
    """Add the options for the ledger's location."""
    db = click.option(
        "--db",
        "database",
        metavar="DATABASE",
        callback=_or_of_group,
        help="Look at the ledger beside this database file.",
    )
    return ledger_option(db(command))


def rows_option(command: Command) -> Command:
    """Add the option for the format of rows."""
    return click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True)(command)

"""Send statements from the prompt to a gateway, unchanged; DuckDB only parses them here."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

import click
import duckdb
from rich.table import Table

from dpsql.cli.messages import say
from dpsql.cli.output import Result, empty_view
from dpsql.cli.prompted import KnownFunction, KnownNames
from dpsql.errors import GatewayError
from dpsql.functions.registry import FUNCTIONS, QUERY, function_of
from dpsql.remote import Remote

_SET = re.compile(r"SET\s+(epsilon|delta|fresh|dataset|max_age)\s*(?:=|TO)\s*('[^']*'|[\w.+-]+)\s*", re.IGNORECASE)
_NUMBERS = ("epsilon", "delta", "max_age")


class RemoteRunner:
    """A gateway, with the settings of this prompt.

    Parameters
    ----------
    remote : Remote

    Attributes
    ----------
    connection : duckdb.DuckDBPyConnection
        Parses statements; runs none.
    settings : dict
        The values that SET gave: epsilon, delta, fresh, dataset and max_age.
    """

    def __init__(self, remote: Remote) -> None:
        self.remote = remote
        self.connection = duckdb.connect()
        self.settings: dict[str, object] = {}
        self._receipts: list[dict[str, Any]] = []

    @property
    def place(self) -> str:
        """The address that answers statements."""
        return f"gateway {self.remote.url}"

    def execute(self, statement: str) -> Result | None:
        """Send one statement, or store the value of a SET."""
        self._receipts = []
        setting = _SET.fullmatch(statement)
        if setting is not None:
            self._set(setting[1].lower(), setting[2])
            return None
        started = time.perf_counter()
        table, self._receipts = self.remote.answer(statement, self.settings)
        return Result(table, False, time.perf_counter() - started)

    def _set(self, name: str, text: str) -> None:
        value: object = text.strip("'")
        try:
            if name in _NUMBERS:
                value = float(text)
            elif name == "fresh":
                value = {"true": True, "false": False}[text.strip("'").lower()]
        except (ValueError, KeyError):
            raise GatewayError(
                "G016", f"{name} cannot be {text}. SET epsilon = 0.1 and SET fresh = true are."
            ) from None
        self.settings[name] = value

    def say_receipts(self, *, private: bool = False) -> None:
        """Print the cost of the last statement."""
        for receipt in self._receipts:
            charge = "charged" if receipt.get("charged") else f"from {receipt.get('recorded_at')}, nothing was charged"
            say(f"release {receipt['entry']} of {receipt['dataset']}: {receipt['guarantee']}; {charge}.")

    def raise_if_stopped(self) -> None:
        """Do nothing: Ctrl-C ends the wait itself."""

    def budgets(self) -> Table:
        """Return each dataset's limit, spent and remaining budget."""
        return _view(self.remote.budget())

    def policies(self, *dataset: str) -> Table:
        """Return the public facts about datasets."""
        names = dataset or tuple(str(entry["name"]) for entry in self.remote.datasets())
        return _view([self.remote.dataset(name) for name in names])

    def entries(self, *dataset: str) -> Table:
        """Return the principal's own releases."""
        own = [release for release in self.remote.releases() if not dataset or release.get("dataset") in dataset]
        return _view(own, ("entry", "recorded_at", "function", "dataset", "guarantee"))

    def explain(self, statement: str) -> str:
        """Return the cost of a statement."""
        calls = self.remote.estimate(statement, **self.settings)["calls"]
        lines = [", ".join(f"{name}: {value}" for name, value in call.items() if value is not None) for call in calls]
        return "\n".join(lines) or "It calls no private function, and costs nothing."

    def fill(self) -> list[str]:
        """Refuse: tables belong to the owner.

        Raises
        ------
        click.UsageError
        """
        raise click.UsageError("a gateway takes no tables. Make them with dpsql example, and serve them.")


class RemoteNames(KnownNames):
    """The names that a gateway knows.

    Parameters
    ----------
    runner : RemoteRunner
    """

    def __init__(self, runner: RemoteRunner) -> None:
        super().__init__(runner)
        self._remote = runner.remote

    @property
    def functions(self) -> list[KnownFunction]:
        """Every function that the principal may call."""
        plans = {name: function.plan for name, function in FUNCTIONS.items()} | {QUERY: function_of(QUERY).plan}
        return [KnownFunction(name, True, tuple(plan.arguments)) for name, plan in plans.items()]

    def _columns(self) -> dict[str, list[tuple[str, str]]]:
        """Return the datasets with the public facts about their columns; empty if the gateway does not answer."""
        try:
            names = [str(dataset["name"]) for dataset in self._remote.datasets()]
            return {name: _columns_of(self._remote.dataset(name)) for name in names}
        except GatewayError:
            return {}


def prompted(url: str) -> tuple[RemoteRunner, RemoteNames]:
    """Return the prompt of a gateway address, and the names that it knows."""
    runner = RemoteRunner(Remote(url))
    return runner, RemoteNames(runner)


def _columns_of(described: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(str(column["name"]), str(column.get("type", ""))) for column in described.get("columns", ())]


def _view(rows: Sequence[Mapping[str, Any]], names: Sequence[str] | None = None) -> Table:
    """Return objects as a table to print."""
    titles = list(names or dict.fromkeys(name for row in rows for name in row))
    view = empty_view(*titles)
    for row in rows:
        view.add_row(*("" if row.get(name) is None else str(row[name]) for name in titles))
    return view

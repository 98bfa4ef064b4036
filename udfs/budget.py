"""Register the functions for budgets, owners' declarations, the ledger and estimates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeAlias

from dpsql.contract.parameters import boolean, fold, text, text_list
from dpsql.engines.attached import engines_of
from dpsql.engines.duckdb.lineage.several import TableEntry, protect_tables, read_entries
from dpsql.engines.duckdb.lineage.sources import Owned
from dpsql.engines.duckdb.lineage.texts import catalogued
from dpsql.engines.duckdb.session import Session
from dpsql.errors import ParameterError
from dpsql.functions import estimate as estimates
from dpsql.ledger.budget import DEFAULT_NAMES, PERIOD_NAMES, STATED_NAMES
from dpsql.ledger.policy import of_session
from dpsql.udfs.values import ESTIMATED, Plans, UdfSpec, seen_of, struct_list

# The spent and remaining budget are in words at both ends, because a narrow terminal omits the middle. By default the
# macro omits the details of accounting, from `rho_spent` to `zcdp_delta`.
_BUDGET = {
    "dataset": "VARCHAR",
    "spent": "VARCHAR",
    "block": "VARCHAR",
    "budget": "VARCHAR",
    "releases": "BIGINT",
    "epsilon_spent": "DOUBLE",
    "epsilon_remaining": "DOUBLE",
    "delta_spent": "DOUBLE",
    "delta_remaining": "DOUBLE",
    "rho_spent": "DOUBLE",
    "rho_remaining": "DOUBLE",
    "accountant": "VARCHAR",
    "renyi_spent": "DOUBLE",
    "renyi_remaining": "DOUBLE",
    "epsilon_zcdp": "DOUBLE",
    "zcdp_delta": "DOUBLE",
    "remaining": "VARCHAR",
}
_IN_WORDS = {"spent": "spent_text", "remaining": "remaining_text"}


_LIMITS = ("epsilon", "delta", "rho", "accountant", "claims", "enum_labels", "extremes")
_BUDGETED = (*_LIMITS, "neighbours", "privacy_unit", "max_rows_per_unit", *STATED_NAMES, *PERIOD_NAMES, *DEFAULT_NAMES)

_MERGE_HINT = "Give the names of the budgets, and the tables of all of them: merge := ['patients'], tables := {...}."

Said: TypeAlias = Mapping[str, object]
Known: TypeAlias = Sequence[str] | None
Texts: TypeAlias = Mapping[str, Any] | None


def protect(session: Session) -> Callable[..., str]:
    """Bind (dataset, budget and policy, tables read, catalog, …) → the current declaration."""

    def run(
        dataset: object,
        declaration: Said,
        seen: Plans,
        texts: Texts,
        public_seen: Sequence[Plans] | None,
        table_names: Known,
        tables_seen: Sequence[Plans] | None,
    ) -> str:
        dataset = text("dataset", dataset, hint="Give the name of the budget.")
        hint = "Give the names of tables: public := ['wards']."
        names = () if declaration["public"] is None else text_list("public", declaration["public"], hint=hint)
        listed = [
            _owned(session, "dp_public", name, declaration, plans, table_names, texts)
            for name, plans in zip(names, public_seen or [None] * len(names), strict=True)
        ]
        settings = {name: declaration[name] for name in _BUDGETED if declaration[name] is not None}
        replace, mark = declaration["replace"] is True, declaration["mark"] is not False
        dated_ahead = declaration["dated_ahead"] is not False
        merge = () if declaration["merge"] is None else text_list("merge", declaration["merge"], hint=_MERGE_HINT)
        if declaration["tables"] is not None:
            statements = _statements(session, declaration, tables_seen, table_names, texts)
            return protect_tables(
                session.sources,
                dataset,
                settings,
                statements,
                public=listed,
                merge=merge,
                replace=replace,
                mark=mark,
                dated_ahead=dated_ahead,
            )
        if merge:
            raise ParameterError("P111", f"merge needs tables. {_MERGE_HINT}")
        table = None
        if declaration["engine"] is not None:
            dataset, table = (
                engines_of(session).named(declaration["engine"]).budgeted(dataset, declaration["privacy_unit"])
            )
        elif declaration["source"] is not False:
            table = session.sources.owned("dp_protect", dataset, seen_of(seen), table_names or (), catalogued(texts))
        return session.sources.protect(
            dataset, settings, table, public=listed, replace=replace, mark=mark, dated_ahead=dated_ahead
        )

    return run


def _statements(
    session: Session, declaration: Said, seen: Sequence[Plans] | None, table_names: Known, texts: Texts
) -> list[TableEntry]:
    """Return an owner's declarations for several tables of DuckDB."""
    if declaration["engine"] is not None or declaration["source"] is False:
        raise ParameterError(
            "P111", "tables are tables of DuckDB's catalog. Leave engine and source out, or protect one table."
        )
    names = list(declaration["tables"]) if isinstance(declaration["tables"], Mapping) else []
    tables = {
        name: session.sources.owned("dp_protect", name, seen_of(plans), table_names or (), catalogued(texts))
        for name, plans in zip(names, seen or [None] * len(names), strict=True)
    }
    return read_entries(declaration["tables"], tables)


def _owned(
    session: Session, function: str, table: str, declaration: Said, seen: Plans, table_names: Known, texts: Texts
) -> Owned:
    """Return a table that its owner names, in DuckDB or in the engine named with it."""
    if declaration["engine"] is not None:
        return engines_of(session).named(declaration["engine"]).owned(function, table)
    return session.sources.owned(function, table, seen_of(seen), table_names or (), catalogued(texts))


def public(session: Session) -> Callable[..., str]:
    """Bind (table, owner's declaration, tables read, names of tables, catalog) → the current declaration."""

    def run(table: str, declaration: Said, seen: Plans, table_names: Known, texts: Texts) -> str:
        owned_table = _owned(session, "dp_public", table, declaration, seen, table_names, texts)
        return f"{session.sources.public(owned_table, force=declaration['force'] is True)}: public"

    return run


def _is_stated(declaration: Said, name: str) -> bool:
    """Return a boolean of a declaration; NULL states nothing."""
    return declaration[name] is not None and boolean(name, declaration[name])


def derive(session: Session) -> Callable[..., str]:
    """Bind (table, base, owner's declaration, tables read, names of tables, catalog) → the current declaration."""

    def run(table: str, base: object, declaration: Said, seen: Plans, table_names: Known, texts: Texts) -> str:
        base = text("base", base, hint="Give the protected table that it was made from.")
        unit = declaration["privacy_unit"]
        owned_table = _owned(session, "dp_derive", table, declaration, seen, table_names, texts)
        if declaration["engine"] is not None:
            base = engines_of(session).named(declaration["engine"]).base(base)
        name = session.sources.derive(
            owned_table,
            base,
            privacy_unit=None if unit is None else text("privacy_unit", unit, hint="Give the name of the id's column."),
            own_rows_only=_is_stated(declaration, "own_rows_only"),
            one_row_each=_is_stated(declaration, "one_row_each"),
        )
        return f"{name}: derived from {base}"

    return run


def unplaced(session: Session) -> Callable[..., list[dict[str, str]]]:
    """Bind (request, list of {database, schema, name}) → the undeclared tables."""

    def run(request: Said, listed: Sequence[Mapping[str, str]] | None) -> list[dict[str, str]]:
        if request["engine"] is not None:
            return session.sources.unplaced(engines_of(session).named(request["engine"]).catalog())
        paths = ((entry["database_name"], entry["schema_name"], entry["table_name"]) for entry in listed or ())
        return session.sources.unplaced((path, "") for path in paths)

    return run


def budget(session: Session) -> Callable[..., list[dict[str, object]]]:
    """Bind () → one row per dataset."""
    return lambda: [
        {name: getattr(row, _IN_WORDS.get(name, name)) for name in _BUDGET} for row in session.ledger.budgets()
    ]


def policy(session: Session) -> Callable[..., list[dict[str, object]]]:
    """Bind () → one row per declaration of an owner."""

    def run() -> list[dict[str, object]]:
        rows = session.ledger.policies()
        keys = {(row.dataset, row.declaration) for row in rows}
        listed = session.sources.declarations().listed
        here = [entry for entry in listed if (fold(entry.dataset), f"dp_{entry.kind}") not in keys]
        return [asdict(row) for row in (*rows, *(of_session(entry.dataset, entry.kind, entry.base) for entry in here))]

    return run


def ledger(session: Session) -> Callable[..., list[dict[str, object]]]:
    """Bind () → one row per entry."""
    return lambda: [{name: getattr(row, name) for name in _LEDGER} for row in session.ledger.entries()]


_LEDGER = {
    "sequence": "BIGINT",
    "recorded_at": "VARCHAR",
    "kind": "VARCHAR",
    "dataset": "VARCHAR",
    "block": "VARCHAR",
    "function": "VARCHAR",
    "release": "VARCHAR",
    "epsilon": "DOUBLE",
    "delta": "DOUBLE",
    "rho": "DOUBLE",
    "guarantee": "VARCHAR",
    "status": "VARCHAR",
    "event": "VARCHAR",
    "principal": "VARCHAR",
    "hash": "VARCHAR",
}


_POLICY = dict.fromkeys(("dataset", "declaration", "argument", "column_name", "value"), "VARCHAR") | {
    "entry": "BIGINT",
    "recorded_at": "VARCHAR",
}
_UNPLACED = ("table_name", "if_public", "if_derived", "if_protected")


def estimate(session: Session) -> Callable[..., Sequence[Mapping[str, object]]]:
    """Bind (function, public arguments) → the cost and the noise of a call."""

    def run(function: object, arguments: dict[str, object]) -> Sequence[Mapping[str, object]]:
        return estimates.estimate(function, **{name: value for name, value in arguments.items() if value is not None})

    return run


SPECS = (
    UdfSpec("dpsql_protect", protect, "VARCHAR", native=True, spoken=True),
    UdfSpec("dpsql_public", public, "VARCHAR", native=True, spoken=True),
    UdfSpec("dpsql_derive", derive, "VARCHAR", native=True, spoken=True),
    UdfSpec("dpsql_unplaced", unplaced, struct_list(dict.fromkeys(_UNPLACED, "VARCHAR")), native=True),
    UdfSpec("dpsql_budget", budget, struct_list(_BUDGET), native=True, nullary=True),
    UdfSpec("dpsql_policy", policy, struct_list(_POLICY), native=True, nullary=True),
    UdfSpec("dpsql_ledger", ledger, struct_list(_LEDGER), native=True, nullary=True),
    UdfSpec("dpsql_estimate", estimate, ESTIMATED, native=True, pure=True),
)

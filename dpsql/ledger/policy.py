"""Read back data owners' declarations: budgets with their bounds, keys and limits, public and derived tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dpsql.contract.covers import COVERING, covers
from dpsql.contract.events import UNITS_PER_ONE
from dpsql.dataclass import dataclass
from dpsql.ledger.budget import BOUND_NAMES, ENUM_LABELS, EXTREMES, NO_UNIT, Budget
from dpsql.ledger.rows import RecordedDeclaration, merged_into, path_text
from dpsql.rendering import text

# The recorded arguments that bind a call.
_IN_FORCE = (
    *("neighbours", "max_rows_per_unit", "groups", "rows_per_group", "lower", "upper", "bounds", "target_bounds"),
    *("target_levels", "keys", "keys_table"),
)
_DECLARES = ("protect", "public", "derive")


@dataclass(frozen=True)
class PolicyRow:
    """One declaration of an owner, in `dp_policy`.

    Attributes
    ----------
    dataset : str
        The budget, or the public or derived table.
    declaration : str
        ``'dp_protect'``, ``'dp_public'`` or ``'dp_derive'``.
    argument : str
        The argument of the declaration; ``'public'`` for a public table.
    column_name : str or None
        The column of the declaration, if it is by column.
    value : str or None
        The value as SQL; None if undeclared, so that every call may choose.
    entry : int or None
        The entry of the ledger; None for a declaration of this session alone.
    recorded_at : str or None
        The time, in UTC.
    """

    dataset: str
    declaration: str
    argument: str
    column_name: str | None
    value: str | None
    entry: int | None
    recorded_at: str | None


def policy_rows(
    budgets: Mapping[str, Budget], latest: Mapping[str, Mapping[str, RecordedDeclaration]]
) -> Iterator[PolicyRow]:
    """Yield current declarations: each dataset's budget, or else its latest declaration."""
    for dataset, kinds in sorted(latest.items()):
        declared = [kinds[kind] for kind in _DECLARES if kind in kinds]
        if not declared:
            continue
        declaration = kinds["protect"] if "protect" in kinds else max(declared, key=lambda row: row.sequence)
        for argument, column, value in _terms(declaration, budgets.get(dataset)):
            yield PolicyRow(
                dataset, declaration.function, argument, column, value, declaration.sequence, declaration.recorded_at
            )


def _terms(declaration: RecordedDeclaration, budget: Budget | None) -> Iterator[tuple[str, str | None, str | None]]:
    """Yield argument, column and value of a declaration."""
    into = merged_into(declaration.lineage) if declaration.kind == "protect" else None
    if into is not None:
        yield "merged_into", None, _sql(into)
    elif declaration.kind == "protect" and budget is not None:
        yield from _limits(budget)
        for table in (declaration.lineage or {}).get("tables", ()):
            yield "tables", table["name"], _sql(path_text(table))
            if table.get("rows") is not None:
                yield "max_rows_per_unit", table["name"], _sql(table["rows"])
    elif declaration.kind == "derive":
        yield "base", None, _sql(declaration.facts.get("base"))
        if declaration.facts.get("unit") is not None:
            yield "privacy_unit", None, _sql(declaration.facts.get("unit"))
    elif declaration.kind == "public":
        yield "public", None, "true"


def _limits(budget: Budget) -> Iterator[tuple[str, str | None, str | None]]:
    for name in ("epsilon", "delta", "rho"):
        amount = getattr(budget, name)
        if amount is not None and (amount or name != "delta"):
            yield name, None, f"{float(amount):.12g}"
    yield "accountant", None, _sql("zcdp" if budget.rho is not None else budget.accountant)
    yield "neighbours", None, _sql(budget.neighbours)
    yield "privacy_unit", None, _sql(budget.privacy_unit or NO_UNIT)
    if budget.max_rows_per_unit is not None:
        yield "max_rows_per_unit", None, _sql(budget.max_rows_per_unit)
    if budget.enum_labels != ENUM_LABELS[0]:
        yield "enum_labels", None, _sql(budget.enum_labels)
    if budget.extremes != EXTREMES[0]:
        yield "extremes", None, _sql(budget.extremes)
    for name in ("period", "period_of", "period_zone"):
        setting = getattr(budget, name)
        if isinstance(setting, Mapping):
            yield from (
                (name, table, _sql(column)) for table, column in setting.items() if column and " -> " not in column
            )
        elif setting is not None:
            yield name, None, _sql(setting)
    for name, units in budget.total_limits.items():
        yield name, None, f"{units / UNITS_PER_ONE:.12g}"
    for name, units in budget.default_amounts.items():
        yield name, None, f"{units / UNITS_PER_ONE:.12g}"
    for name, value in (budget.bounds or {}).items():
        if isinstance(value, Mapping) and name in (*BOUND_NAMES, "keys"):
            for column, entry in value.items():
                yield name, column, _sql(entry)
        else:
            yield name, None, _sql(value)


def _sql(value: object) -> str | None:
    """Return a JSON value as SQL; None stays None."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return text(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_sql(element) or 'NULL' for element in value)}]"
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def in_force(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's policy: the unit, its limits, its coverage, and the bounds, levels and keys in use.

    Parameters
    ----------
    arguments : mapping
        The call's recorded arguments. They include the owner's declarations for omitted arguments.
    """
    unit = (arguments.get("layout") or {}).get("privacy_unit") or NO_UNIT
    used = {name: arguments[name] for name in _IN_FORCE if arguments.get(name) not in (None, [])}
    return {**dict.fromkeys(COVERING, covers(arguments)), "privacy_unit": unit, **used}


def of_session(dataset: str, kind: str, base: str | None) -> PolicyRow:
    """Return the row of a session-only declaration."""
    argument, value = ("base", _sql(base)) if kind == "derive" else (kind, "true")
    return PolicyRow(dataset, f"dp_{kind}", argument, None, value, None, None)

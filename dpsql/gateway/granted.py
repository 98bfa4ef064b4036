"""A principal's view: the granted names, letter for letter, and their public facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dpsql.contract.events import UNITS_PER_ONE
from dpsql.contract.expression.kinds import has_labels
from dpsql.contract.names import dotted, source_parts, source_sql
from dpsql.contract.parameters import fold, near_names, show
from dpsql.errors import GatewayError, ParameterError
from dpsql.functions.registry import FUNCTIONS, QUERY
from dpsql.ledger.budget import DEFAULT_NAMES, Budget
from dpsql.ledger.caps import NO_DATASET
from dpsql.ledger.granting import GrantedBudget
from dpsql.ledger.grants import Grant
from dpsql.ledger.ledger import Ledger
from dpsql.ledger.rows import tables_of
from dpsql.rendering import text

if TYPE_CHECKING:
    from dpsql.context import Context

# Declared by column.
_BY_COLUMN = ("lower", "upper", "keys", "target_levels")


class Granted:
    """Grants of a principal, by table or view name.

    Parameters
    ----------
    principal : str
    grants : sequence of Grant
        Unexpired grants.
    ledger : Ledger
    """

    def __init__(self, principal: str, grants: Sequence[Grant], ledger: Ledger) -> None:
        self.principal = principal
        self.grants = grants
        self._ledger = ledger
        latest = ledger.declarations().latest
        self._of: dict[str, Grant] = {}
        self._parts: dict[str, tuple[str, ...]] = {}
        for grant in grants:
            declaration = latest.get(grant.dataset, {}).get("protect")
            if grant.sources:
                sources = {name: _parts(name) for name in grant.sources}
            else:
                sources = asked_as(grant.dataset, None if declaration is None else declaration.lineage)
            for name, parts in sources.items():
                if name not in self._of:
                    self._of[name], self._parts[name] = grant, parts

    @property
    def names(self) -> list[str]:
        """The granted names."""
        return sorted(self._of)

    @property
    def shows_totals(self) -> bool:
        """Whether all grants show dataset totals."""
        return bool(self.grants) and all(grant.total for grant in self.grants)

    def source(self, name: str) -> str:
        """Return a name's table in the database, as `parts_of` reads it.

        Raises
        ------
        GatewayError
            G015, the same whether the table exists or not.
        """
        return dotted(self.parts(name))

    def parts(self, name: str) -> tuple[str, ...]:
        """Return the parts of a name's table: table, or schema and table; or raise as `source` does."""
        self.dataset_of(name)
        return self._parts[name]

    def dataset_of(self, name: str) -> Grant:
        """Return a name's grant, or raise as `source` does."""
        grant = self._of.get(name)
        if grant is None:
            near = self._near(name)  # a name of the principal, so it reveals no other name
            raise GatewayError("G015", NO_DATASET, hint=None if near is None else f"Do you mean {show(near)}?")
        return grant

    def _near(self, name: str) -> str | None:
        """Return a granted name that differs in case or schema, or is similar."""
        folded = {candidate.lower(): candidate for candidate in self.names}
        spelling = name.lower()
        last = [
            candidate for candidate in self.names if self._parts[candidate][-1].lower() == spelling.rpartition(".")[2]
        ]
        alike = ([folded[spelling]] if spelling in folded else last) or near_names(name, self.names, 1)
        return alike[0] if alike else None

    def listed(self) -> list[dict[str, Any]]:
        """Return the granted names, with the terms of each grant."""
        return [
            {
                "name": name,
                "dataset": grant.dataset,
                "role": grant.role,
                "functions": functions_of(grant),
                **self._defaults(grant),
                "expires": grant.expires,
                "share": grant.share,
            }
            for name, grant in sorted(self._of.items())
        ]

    def _defaults(self, grant: Grant) -> dict[str, str | None]:
        """Return what a question of a dataset spends that states no epsilon, and no delta where it needs one."""
        amounts = (self._ledger.policy(grant.dataset) or Budget()).default_amounts
        usual = {name: amounts.get(name) for name in ("default_epsilon", "default_delta")}
        texts = {name: None if units is None else f"{units / UNITS_PER_ONE:.12g}" for name, units in usual.items()}
        return texts | {f"default_{name}": str(float(amount)) for _, name, amount in grant.defaults}

    def described(self, name: str, context: Context) -> dict[str, Any]:
        """Return a name's public facts: columns, types, and the owner's declarations."""
        grant = self.dataset_of(name)
        table, policies = self.columns(name, context), self._ledger.policies(grant.dataset)
        columns: list[dict[str, Any]] = []
        for column, kind in zip(*(table.column(index).to_pylist() for index in (0, 1)), strict=True):
            of_column = [
                row for row in policies if row.column_name is not None and fold(row.column_name) == fold(column)
            ]
            public = {row.argument: row.value for row in of_column if row.argument in _BY_COLUMN}
            columns.append({"name": column, "type": kind, **public})
        facts = {row.argument: row.value for row in policies if row.column_name is None and row.argument in _WHOLE}
        return {
            "name": name,
            "dataset": grant.dataset,
            "columns": columns,
            "functions": functions_of(grant),
            "stated": facts,
            "budget": [row for row in self.budgets() if row["dataset"] == grant.dataset],
        }

    def columns(self, name: str, context: Context) -> pa.Table:
        """Return name and type of each column; read no row, and show only labels that the owner declared."""
        item = source_sql(self.source(name))
        description = context.sql(f"DESCRIBE FROM {item}")
        if any(has_labels(kind) for kind in description.column("column_type").to_pylist()):
            description = context.sql(f"FROM dp_query({text(f'DESCRIBE {item}')}, epsilon := 1)")
        return description.select(["column_name", "column_type"])

    def budgets(self) -> list[dict[str, Any]]:
        """Return the principal's spent and remaining budget; dataset totals only if granted."""
        totals = {row.dataset: row for row in self._ledger.budgets() if row.block in (None, "total")}
        mine = {grant.dataset: grant for grant in self.grants}
        rows = []
        for budget in self._ledger.granted_budgets(self.principal):
            if budget.dataset not in mine:
                continue
            row: dict[str, Any] = asdict(budget)
            total = totals.get(budget.dataset)
            if mine[budget.dataset].total and total is not None:
                row |= {"total_budget": total.budget, "total_spent": total.spent_text}
                row["total_remaining"] = total.remaining_text
            rows.append(row)
        return rows

    def budget_table(self) -> pa.Table:
        """Return `budgets` as a table."""
        names = [field.name for field in fields(GrantedBudget)]
        kinds = [pa.string()] * 3 + [pa.int64()] + [pa.float64()] * (len(names) - 4)
        rows = [{name: row[name] for name in names} for row in self.budgets()]
        return pa.Table.from_pylist(rows, schema=pa.schema(list(zip(names, kinds, strict=True))))


_WHOLE = ("neighbours", "privacy_unit", "max_rows_per_unit", "period", "period_of", "accountant", *DEFAULT_NAMES)


def functions_of(grant: Grant) -> list[str]:
    """Return the functions that a grant allows."""
    names = [*(name for name, function in FUNCTIONS.items() if function.spends), QUERY]
    return [name for name in names if grant.asks and (grant.functions is None or name in grant.functions)]


def asked_as(dataset: str, facts: Any) -> dict[str, tuple[str, ...]]:
    """Return the name parts of a dataset's tables, by the names in queries."""
    tables = {}
    for record in tables_of(facts):
        table = record.get("table")
        if table:
            parts = tuple(map(str, table[-2:]))
            parts = parts[1:] if parts[0] == "main" else parts
            tables[".".join(parts)] = parts
    return tables or {dataset: _parts(dataset)}


def _parts(name: str) -> tuple[str, ...]:
    """Return the parts of a name as an owner writes it."""
    try:
        return tuple(source_parts(name))
    except ParameterError:  # no call can name it
        return (name,)

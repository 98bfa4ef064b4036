"""The ledger's two tables and the statements on them; imported when a ledger is first used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    DDL,
    Column,
    Index,
    Integer,
    MetaData,
    Select,
    Table,
    Text,
    bindparam,
    event,
    func,
    insert,
    select,
)

SCHEMA_VERSION = "1"

metadata = MetaData()

meta = Table(
    "dpsql_ledger_meta",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

# Amounts are decimal text in units of 1e-18: exact on every database, and free of any integer's width.
entry = Table(
    "dpsql_ledger",
    metadata,
    Column("sequence", Integer, primary_key=True, autoincrement=False),
    Column("recorded_at", Text, nullable=False),
    Column("kind", Text, nullable=False),  # 'protect' or 'release'
    Column("dataset", Text, nullable=False),
    Column("name", Text),
    Column("function", Text, nullable=False),
    Column("arguments", Text, nullable=False),  # JSON, public
    Column("fingerprint", Text, nullable=False),
    Column("event", Text),  # JSON; NULL for 'protect'
    Column("guarantee", Text, nullable=False),
    Column("epsilon", Text),  # this row's charge; NULL when no finite one exists
    Column("delta", Text, nullable=False),
    Column("rho", Text),
    Column("epsilon_spent", Text),  # the dataset's totals after this row
    Column("delta_spent", Text, nullable=False),
    Column("rho_spent", Text),
    Column("releases", Integer, nullable=False),
    Column("budget_sequence", Integer),  # the 'protect' row in force; NULL while unlimited
    Column("budget", Text),  # JSON of a 'protect' row
    Column("result", Text),  # JSON; NULL when charged without a result
    Column("status", Text, nullable=False),
    Column("hash", Text, nullable=False),
)
COLUMNS = tuple(column.name for column in entry.columns)

Index("dpsql_ledger_by_dataset", entry.c.dataset, entry.c.sequence)
_has_result = entry.c.name.is_not(None) & entry.c.result.is_not(None)
# A second result under one name cannot be stored, whatever the code above the database does.
Index(
    "dpsql_ledger_one_result_per_name",
    entry.c.dataset,
    entry.c.name,
    unique=True,
    sqlite_where=_has_result,
    postgresql_where=_has_result,
)

# Append-only in the database too: against accidents, not against its administrator.
for _operation in ("UPDATE", "DELETE"):
    event.listen(
        entry,
        "after_create",
        DDL(  # type: ignore[no-untyped-call]
            f"CREATE TRIGGER dpsql_ledger_no_{_operation.lower()} BEFORE {_operation} ON dpsql_ledger "
            "BEGIN SELECT RAISE(ABORT, 'the dpsql ledger is append-only'); END"
        ).execute_if(dialect="sqlite"),
    )
event.listen(
    entry,
    "after_create",
    DDL(  # type: ignore[no-untyped-call]
        "CREATE OR REPLACE FUNCTION dpsql_ledger_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'the dpsql ledger is append-only'; END $$"
    ).execute_if(dialect="postgresql"),
)
event.listen(
    entry,
    "after_create",
    DDL(  # type: ignore[no-untyped-call]
        "CREATE TRIGGER dpsql_ledger_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON dpsql_ledger "
        "FOR EACH STATEMENT EXECUTE FUNCTION dpsql_ledger_append_only()"
    ).execute_if(dialect="postgresql"),
)

# Built once, so that SQLAlchemy compiles each of them once per process.
_policy = entry.alias("policy")

read_meta = select(meta.c.key, meta.c.value)
add_meta = insert(meta)
append = insert(entry)
head = select(entry.c.sequence, entry.c.hash).order_by(entry.c.sequence.desc()).limit(1)
state = (
    select(
        entry.c.epsilon_spent,
        entry.c.delta_spent,
        entry.c.rho_spent,
        entry.c.releases,
        entry.c.budget_sequence,
        _policy.c.budget,
    )
    .select_from(entry.outerjoin(_policy, _policy.c.sequence == entry.c.budget_sequence))
    .where(entry.c.dataset == bindparam("dataset"))
    .order_by(entry.c.sequence.desc())
    .limit(1)
)
named = select(entry).where(
    entry.c.dataset == bindparam("dataset"),
    entry.c.name == bindparam("name"),
    entry.c.result.is_not(None),
)
event_at = select(entry.c.event).where(entry.c.sequence == bindparam("sequence"))
everything = select(entry).order_by(entry.c.sequence)
of_dataset = select(entry).where(entry.c.dataset == bindparam("dataset")).order_by(entry.c.sequence)
_last = select(func.max(entry.c.sequence)).group_by(entry.c.dataset)
states = (
    select(
        entry.c.dataset,
        entry.c.epsilon_spent,
        entry.c.delta_spent,
        entry.c.rho_spent,
        entry.c.releases,
        _policy.c.budget,
    )
    .select_from(entry.outerjoin(_policy, _policy.c.sequence == entry.c.budget_sequence))
    .where(entry.c.sequence.in_(_last))
    .order_by(entry.c.dataset)
)


def of_functions(functions: Sequence[str]) -> Select[Any]:
    """Return the statement of what some functions released, in the order of the chain."""
    return select(entry).where(entry.c.function.in_(functions), entry.c.result.is_not(None)).order_by(entry.c.sequence)

"""The ledger's tables and the statements on them; imported at the first use of a ledger.

`dpsql_ledger` contains the rows of the chain. `dpsql_ledger_last` names the last row of the chain, of each dataset, of
each block, of the declarations, and under each name of a release; triggers maintain it. A row is found by an index, and
counts only if `dpsql_ledger_last` names the same row: damage in one place cannot hide a row. The module also upgrades a
ledger of an earlier version to the present one, in one transaction.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import cache
from typing import Any

from sqlalchemy import (
    DDL,
    Column,
    ColumnElement,
    Connection,
    FromClause,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    bindparam,
    event,
    func,
    insert,
    literal_column,
    null,
    select,
    text,
    update,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateTable, DropIndex

from dpsql.ledger.chain import (
    CHAIN,
    GRANTED,
    GRANTS,
    MISSING_COLUMNS,
    NO_DECLARATIONS,
    RESERVED,
    Last,
    Row,
    dataset_key,
    note,
    row_of,
    verified_rows,
)

SCHEMA_VERSION = "5"
UPGRADED_VERSIONS = tuple(MISSING_COLUMNS)  # read unchanged, and upgraded when opened for writing

metadata = MetaData()

meta = Table(
    "dpsql_ledger_meta",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

# Amounts are decimal text in units of 1e-18: exact on every database, without integer limits.
entry = Table(
    "dpsql_ledger",
    metadata,
    Column("sequence", Integer, primary_key=True, autoincrement=False),
    Column("recorded_at", Text, nullable=False),
    Column("kind", Text, nullable=False),  # 'release', or the kind of a declaration, such as 'protect'
    Column("dataset", Text, nullable=False),
    Column("name", Text),
    Column("function", Text, nullable=False),
    Column("arguments", Text, nullable=False),  # JSON, public
    Column("fingerprint", Text, nullable=False),
    Column("event", Text),  # JSON; NULL for a declaration
    Column("guarantee", Text, nullable=False),
    Column("epsilon", Text),  # this row's charge; NULL without a finite one
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
    # New since version 1. The hash covers them unless they are NULL, so the hashes of older rows stay valid.
    Column("composition", Text),  # JSON of the accountant's state after this row; NULL if the totals suffice
    Column("lineage", Text),  # JSON; the tables read, and the budgets charged for them
    Column("hold", Integer),  # the entry that charged this release before its first draw; NULL if this one charges
    # The charged or described period, or account of a principal; NULL for the whole dataset.
    Column("block", Text),
    Column("principal", Text),  # who asked through the gateway, or gets a grant; NULL without the gateway
)
COLUMNS = tuple(column.name for column in entry.columns)

Index("dpsql_ledger_by_dataset", entry.c.dataset, entry.c.sequence)
blocks_index = Index("dpsql_ledger_by_block", entry.c.dataset, entry.c.block, entry.c.sequence)
# The rows of an index. SQLAlchemy's own arguments for it would load the dialects of both databases.
_WHERE = "dpsql_where"


@compiles(CreateIndex)
def _create_index(create: CreateIndex, compiler: Any, **options: Any) -> str:
    where, created = create.element.info.get(_WHERE), str(compiler.visit_create_index(create, **options))
    if where is None:
        return created
    return f"{created} WHERE {compiler.sql_compiler.process(where, include_table=False, literal_binds=True)}"


_has_result = entry.c.name.is_not(None) & entry.c.result.is_not(None)
# The database itself refuses a second result under one name.
Index(
    "dpsql_ledger_one_result_per_name",
    entry.c.dataset,
    entry.c.name,
    unique=True,
    info={_WHERE: _has_result},
)
# The database itself refuses to complete a reservation twice.
reservations_index = Index(
    "dpsql_ledger_one_end_per_hold",
    entry.c.hold,
    unique=True,
    info={_WHERE: entry.c.hold.is_not(None)},
)
_is_declaration = entry.c.kind.not_in(NO_DECLARATIONS)
declarations_index = Index("dpsql_ledger_declarations", entry.c.sequence, info={_WHERE: _is_declaration})

_is_grant = entry.c.kind.in_(GRANTS)
grants_index = Index("dpsql_ledger_grants", entry.c.sequence, info={_WHERE: _is_grant})
_has_principal = entry.c.principal.is_not(None)
principals_index = Index(
    "dpsql_ledger_by_principal",
    entry.c.principal,
    entry.c.sequence,
    info={_WHERE: _has_principal},
)

# The last row under a key, and the number of rows.
last = Table(
    "dpsql_ledger_last",
    metadata,
    Column("key", Text, primary_key=True),
    Column("sequence", Integer, nullable=False),
    Column("hash", Text, nullable=False),
    Column("number", Integer, nullable=False),
)
_note = (
    "INSERT INTO dpsql_ledger_last (key, sequence, hash, number) SELECT {key}, NEW.sequence, NEW.hash, 1 "
    "WHERE {condition} ON CONFLICT (key) DO UPDATE SET sequence = excluded.sequence, hash = excluded.hash, "
    "number = dpsql_ledger_last.number + 1;"
)
# As in `ledger_chain.keys_of`.
_notes = " ".join(
    _note.format(key=key, condition=condition)
    for key, condition in (
        ("'chain'", "TRUE"),
        ("'declared'", f"NEW.kind NOT IN {NO_DECLARATIONS}"),
        (f"'{GRANTED}'", f"NEW.kind IN {GRANTS}"),
        ("'dataset:' || NEW.dataset", "NEW.block IS NULL"),
        ("'block:' || length(NEW.dataset) || ':' || NEW.dataset || ':' || NEW.block", "NEW.block IS NOT NULL"),
        (
            "'release:' || length(NEW.dataset) || ':' || NEW.dataset || ':' || NEW.name",
            "NEW.name IS NOT NULL AND NEW.result IS NOT NULL",
        ),
    )
)

# The database also enforces append-only: against accidents, not against its administrator.
_guards = {
    "sqlite": [
        f"CREATE TRIGGER dpsql_ledger_no_{operation.lower()} BEFORE {operation} ON dpsql_ledger "
        "BEGIN SELECT RAISE(ABORT, 'the dpsql ledger is append-only'); END"
        for operation in ("UPDATE", "DELETE")
    ],
    "postgresql": [
        "CREATE OR REPLACE FUNCTION dpsql_ledger_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'the dpsql ledger is append-only'; END $$",
        "CREATE TRIGGER dpsql_ledger_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON dpsql_ledger "
        "FOR EACH STATEMENT EXECUTE FUNCTION dpsql_ledger_append_only()",
    ],
}
# In the database, so that a process of version 1 that runs after an upgrade maintains them too.
note_triggers = {
    "sqlite": [f"CREATE TRIGGER dpsql_ledger_note AFTER INSERT ON dpsql_ledger BEGIN {_notes} END"],
    "postgresql": [
        "CREATE OR REPLACE FUNCTION dpsql_ledger_note() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN {_notes} RETURN NULL; END $$",
        "CREATE TRIGGER dpsql_ledger_note AFTER INSERT ON dpsql_ledger "
        "FOR EACH ROW EXECUTE FUNCTION dpsql_ledger_note()",
    ],
}
_unnoted = {
    "sqlite": ["DROP TRIGGER IF EXISTS dpsql_ledger_note"],
    "postgresql": ["DROP TRIGGER IF EXISTS dpsql_ledger_note ON dpsql_ledger"],
}
for _triggers in (_guards, note_triggers):
    for _dialect, _texts in _triggers.items():
        for _text in _texts:
            event.listen(
                entry,
                "after_create",
                DDL(_text).execute_if(dialect=_dialect),  # type: ignore[no-untyped-call]
            )

read_meta = select(meta.c.key, meta.c.value)
add_meta = insert(meta)
read_version = select(meta.c.value).where(meta.c.key == "schema_version")
set_version = update(meta).where(meta.c.key == "schema_version").values(value=SCHEMA_VERSION)
set_ledger_id = update(meta).where(meta.c.key == "ledger_id").values(value=bindparam("ledger_id"))
append = insert(entry)
add_last = insert(last)


class Statements:
    """The statements that read a ledger of one version.

    Built once per version, so that SQLAlchemy compiles each statement once per process.

    Attributes
    ----------
    rows : Select
        Every row in chain order, each column as in `COLUMNS`.
    entry : Select
        The row `:sequence`, and the hash of the row before it.
    state : Select
        One row: the last row of the chain, the row `:seen`, the last row of `:dataset` and the row of its budget.
    release : Select
        One row: the note under `:key`, the row under `:name` of `:dataset`, and the hash of the row before it.
    end_of_reservation : Select
        The number of the row that ends the reservation `:hold`.
    open_reservations : Select
        The numbers of the open reservations under `:name` of `:dataset`, the last first.
    lost_reservations : Select
        The numbers of all open reservations of principals.
    lasts : Select
        `dpsql_ledger_last`.
    datasets : Select
        The last row of each dataset, by an index.
    blocks, blocks_named : Select
        The last row of each block of `:dataset`, by an index; `blocks_named` reads only `:blocks`.
    last_of_blocks : Select
        The note under each of `:keys` with its hash, the row of that number, and the hash of the row before it.
    declarations, grants : Select
        Every row of a declaration, or of a grant, and the hash of the row before it.
    of_principal : Select
        Every row with a result that `:principal` asked for, and the hash of the row before it.
    of_account : Select
        The rows of `:block` of `:dataset`, starting one row before the first row recorded at `:start` or later, if it
        exists, and for each the hash of the row before it in the chain.
    of_account_from : Select
        The rows of `:block` of `:dataset` from entry `:start` on, likewise.
    releases_since : Select
        The releases of `:dataset` from the first row recorded at `:start` or later, and for each the hash of the row
        before it in the chain.
    releases_from : Select
        The releases of `:dataset` from entry `:start` on, likewise.
    last_of_accounts : Select
        The last row of each account, a dataset's own or a block's, among the entries after `:since` up to `:until`, and
        for each the hash of the row before it.
    """

    def __init__(self, version: str) -> None:
        self.has_lasts = version != "1"
        row, before, policy, before_policy, tail, seen = (
            _table(version, name) for name in ("row", "before", "policy", "before_policy", "tail", "seen")
        )
        with_before = row.outerjoin(before, before.c.sequence == row.c.sequence - 1)
        columns = [row.c[name] for name in COLUMNS]
        query = select(*columns, before.c.hash).select_from(with_before)
        self.rows = select(*columns).order_by(row.c.sequence)
        self.entry = query.where(row.c.sequence == bindparam("sequence"))
        self.end_of_reservation = select(row.c.sequence).where(row.c.hold == bindparam("hold"))
        of_name = (row.c.dataset == bindparam("dataset")) & (row.c.name == bindparam("name"))
        ended = select(before.c.sequence).where(before.c.hold == row.c.sequence).exists()
        reserved = of_name & (row.c.status == RESERVED)
        self.open_reservations = select(row.c.sequence).where(reserved & ~ended).order_by(row.c.sequence.desc())
        of_any = (row.c.status == RESERVED) & (row.c.kind == "release") & row.c.principal.is_not(None)
        of_any &= row.c.name.is_not(None)  # entries of further datasets have none
        self.lost_reservations = select(row.c.sequence).where(of_any & ~ended).order_by(row.c.sequence)
        self.declarations = query.where(row.c.kind.not_in(NO_DECLARATIONS)).order_by(row.c.sequence)
        self.grants = query.where(row.c.kind.in_(GRANTS)).order_by(row.c.sequence)
        ownership = (row.c.principal == bindparam("principal")) & row.c.result.is_not(None)
        self.of_principal = query.where(ownership).order_by(row.c.sequence)
        inner = _table(version, "inner")
        since = select(func.min(inner.c.sequence)).where(_of_account(inner), inner.c.recorded_at >= bindparam("start"))
        prior = select(func.max(inner.c.sequence)).where(_of_account(inner), inner.c.sequence < since.scalar_subquery())
        first = func.coalesce(prior.scalar_subquery(), since.scalar_subquery())
        self.of_account = query.where(_of_account(row), row.c.sequence >= first).order_by(row.c.sequence)
        from_entry = row.c.sequence >= bindparam("start")
        self.of_account_from = query.where(_of_account(row), from_entry).order_by(row.c.sequence)
        of_no_block = (inner.c.dataset == bindparam("dataset")) & inner.c.block.is_(None)
        begin = select(func.min(inner.c.sequence)).where(of_no_block, inner.c.recorded_at >= bindparam("start"))
        released = (row.c.dataset == bindparam("dataset")) & row.c.block.is_(None) & (row.c.kind == "release")
        self.releases_since = query.where(released, row.c.sequence >= begin.scalar_subquery())
        self.releases_since = self.releases_since.order_by(row.c.sequence)
        self.releases_from = query.where(released, from_entry).order_by(row.c.sequence)
        between = (inner.c.sequence > bindparam("since")) & (inner.c.sequence <= bindparam("until"))
        newest = select(func.max(inner.c.sequence)).where(between).group_by(inner.c.dataset, inner.c.block)
        self.last_of_accounts = query.where(row.c.sequence.in_(newest)).order_by(row.c.sequence)
        self.lasts = select(last.c.key, last.c.sequence, last.c.hash, last.c.number)
        self.last = self.lasts.where(last.c.key == bindparam("key"))
        self.last_of_datasets = self.lasts.where(last.c.key.startswith(dataset_key("")))
        self.datasets = select(row.c.dataset, func.max(row.c.sequence)).where(row.c.block.is_(None))
        self.datasets = self.datasets.group_by(row.c.dataset)
        of_blocks = (row.c.dataset == bindparam("dataset")) & row.c.block.is_not(None)
        every_block = select(row.c.block, func.max(row.c.sequence)).where(of_blocks).group_by(row.c.block)
        self.blocks = every_block.where(row.c.principal.is_(None))
        self.blocks_named = every_block.where(row.c.block.in_(bindparam("blocks", expanding=True)))
        in_list = last.c.key.in_(bindparam("keys", expanding=True))
        with_last = last.join(row, row.c.sequence == last.c.sequence)
        self.last_of_blocks = select(last.c.key, last.c.hash, *columns, before.c.hash).where(in_list)
        self.last_of_blocks = self.last_of_blocks.select_from(
            with_last.outerjoin(before, before.c.sequence == row.c.sequence - 1)
        )
        of_chain, of_dataset = last.alias("of_chain"), last.alias("of_dataset")
        lasts = [of_chain.c.sequence, of_chain.c.hash, of_dataset.c.sequence, of_dataset.c.hash]
        start: FromClause = select(literal_column("1").label("one")).subquery("start")
        source = start
        if self.has_lasts:
            source = start.outerjoin(of_dataset, of_dataset.c.key == bindparam("key"))
        match = (row.c.dataset == bindparam("dataset")) & (row.c.name == bindparam("name")) & row.c.result.is_not(None)
        self.release = select(
            *(lasts[2:] if self.has_lasts else [null(), null()]), *columns, before.c.hash
        ).select_from(source.outerjoin(row, match).outerjoin(before, before.c.sequence == row.c.sequence - 1))
        source = start
        if self.has_lasts:
            source = source.outerjoin(of_chain, of_chain.c.key == CHAIN)
            source = source.outerjoin(of_dataset, of_dataset.c.key == bindparam("key"))
        self.state = select(
            *(lasts if self.has_lasts else [null() for _ in lasts]),
            tail.c.sequence,
            tail.c.hash,
            seen.c.hash,
            *columns,
            before.c.hash,
            *(policy.c[name] for name in COLUMNS),
            before_policy.c.hash,
        ).select_from(
            source.outerjoin(tail, tail.c.sequence == select(func.max(inner.c.sequence)).scalar_subquery())
            .outerjoin(seen, seen.c.sequence == bindparam("seen"))
            .outerjoin(
                row,
                row.c.sequence
                == select(func.max(inner.c.sequence))
                .where((inner.c.dataset == bindparam("dataset")) & inner.c.block.is_(None))
                .scalar_subquery(),
            )
            .outerjoin(before, before.c.sequence == row.c.sequence - 1)
            .outerjoin(policy, policy.c.sequence == row.c.budget_sequence)
            .outerjoin(before_policy, before_policy.c.sequence == policy.c.sequence - 1)
        )


def _of_account(rows: FromClause) -> ColumnElement[bool]:
    return (rows.c.dataset == bindparam("dataset")) & (rows.c.block == bindparam("block"))


def _table(version: str, name: str) -> FromClause:
    """Return the table of rows under another name, with NULL for columns that an earlier version lacks."""
    missing = MISSING_COLUMNS.get(version)
    if missing is None:
        return entry.alias(name)
    columns = [null().label(column.name) if column.name in missing else column for column in entry.columns]
    return select(*columns).subquery(name)


@cache
def statements(version: str) -> Statements:
    """Return the statements of a version."""
    return Statements(version)


def stream(connection: Connection, version: str) -> Generator[Row]:
    """Yield every row in chain order, a thousand at a time, unchanged."""
    with connection.execute(statements(version).rows, execution_options={"yield_per": 1000}) as result:
        for values in result:
            yield row_of(COLUMNS, values)


def upgrade(connection: Connection, ledger_id: str, location: str) -> None:
    """Add everything that an earlier version lacks; its rows keep their hashes. The caller is the only writer.

    Raises
    ------
    LedgerError
        L030: a row was changed after it was written. Nothing changes.
    """
    version = connection.execute(read_version).scalar_one()
    if version not in UPGRADED_VERSIONS:
        return  # another process was first, while this one waited for the lock
    lasts: dict[str, Last] = {}
    if version == "1":
        for row in verified_rows(location, ledger_id, stream(connection, version)):
            note(lasts, row)
    for name in MISSING_COLUMNS[version]:
        column = CreateColumn(entry.c[name]).compile(dialect=connection.dialect)
        connection.execute(text(f"ALTER TABLE dpsql_ledger ADD COLUMN {column}"))
    if version == "1":
        _make_lasts(connection, lasts)
    else:
        connection.execute(DropIndex(declarations_index))  # more kinds now declare nothing
    if version in ("1", "2"):
        connection.execute(CreateIndex(reservations_index))
    if version in ("1", "2", "3"):
        connection.execute(CreateIndex(blocks_index))
    for index in (declarations_index, grants_index, principals_index):
        connection.execute(CreateIndex(index))
    for statement in (*_unnoted[connection.dialect.name], *note_triggers[connection.dialect.name]):
        connection.exec_driver_sql(statement)
    connection.execute(set_version)


def _make_lasts(connection: Connection, lasts: dict[str, Last]) -> None:
    """Make the second record of the chain's end."""
    connection.execute(CreateTable(last))
    if lasts:
        names = ("key", "sequence", "hash", "number")
        connection.execute(add_last, [dict(zip(names, (key, *last), strict=True)) for key, last in lasts.items()])

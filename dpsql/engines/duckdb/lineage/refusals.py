"""What is refused while a source is placed, such as functions and views that no plan shows, and in which words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from dpsql.contract.names import (
    source_parts,
)
from dpsql.contract.parameters import fold, show
from dpsql.contract.placement import Placement
from dpsql.engines.duckdb.lineage.declarations import Declarations
from dpsql.engines.duckdb.lineage.paths import digest, is_nameless
from dpsql.errors import BudgetError, SourceError
from dpsql.rendering import text as literal

# Functions whose value may come from rows that no plan shows, or that depend on where a row is, not on its contents.
STATEFUL = frozenset(
    (
        *("getvariable", "nextval", "currval", "setval", "enum_range", "enum_range_boundary"),
        *("stats", "vector_type", "write_log", "current_query"),
    )
)


def refuse_functions(source: str, names: set[str]) -> None:
    """Raise for a function that may see other rows: one with a state, or one that the user has registered."""
    for name in sorted(names):
        if name in STATEFUL or not (name in built_in_functions() or name.startswith("dpsql_")):
            raise cannot_see(source, f"{name}()")


@cache
def built_in_functions() -> frozenset[str]:
    """Return the names of DuckDB's own functions, including those of the extensions in its wheel."""
    import duckdb

    with duckdb.connect() as plain:
        rows = plain.execute("SELECT DISTINCT function_name FROM duckdb_functions()").fetchall()
    return frozenset((*(row[0] for row in rows), "", "__cast", "IS NOT DISTINCT FROM", "IS DISTINCT FROM"))


def undeclared(
    name: str, declarations: Declarations, *, engine: str | None = None, spelled: str | None = None
) -> BudgetError:
    """Return the refusal of an undeclared table, with the statements that would declare it.

    Parameters
    ----------
    name : str
    declarations : Declarations
    engine : str, optional
        The engine whose table it is.
    spelled : str, optional
        What a statement calls it, if not by `name`.
    """
    protected = declarations.protected
    spelled = name if spelled is None else spelled
    derive = declaring("dp_derive", spelled, protected[0] if protected else "...", more="...", engine=engine)
    return BudgetError(
        "B006",
        f"{show(name)} has no budget, and the ledger protects data. If it has rows of a protected dataset: {derive}. "
        f"If it tells of nobody: {declaring('dp_public', spelled, engine=engine)}.",
    )


def declaring(function: str, *names: str, more: str = "", engine: str | None = None) -> str:
    """Return the statement that declares something of a table, as a next step.

    Parameters
    ----------
    function : str
        Such as ``'dp_public'``.
    *names : str
        The table, and for `dp_derive` the base.
    more : str
        Other arguments, as SQL.
    engine : str, optional
        The engine whose table it is.
    """
    last = f"engine := {literal(engine)}" if engine is not None else ""
    return f"SELECT {function}({', '.join(part for part in (*map(literal, names), more, last) if part)})"


def other_dataset(source: str, dataset: str, charged: tuple[str, ...]) -> SourceError:
    """Return the refusal of a dataset other than the ones that a source is charged to."""
    reads = f"reads {', '.join(map(repr, charged))}" if charged else "is public"
    return SourceError(
        "S015", f"{show(source)} {reads}, which dataset := {show(dataset)} would not charge. Leave dataset out."
    )


def cannot_see(source: str, what: str, known: Declarations | None = None) -> SourceError:
    """Return the refusal of a source that reads something that no plan shows."""
    first = known.protected[0] if known is not None and known.protected else "..."
    return SourceError(
        "S014",
        f"what {show(source)} reads cannot be seen ({what}). Name the budget that its rows belong to: "
        f"dataset := {literal(first)}.",
    )


def refuse_hidden(
    placement: Placement,
    texts: Mapping[str, str],
    declarations: Declarations,
) -> str:
    """Raise if the text of a view reads what no plan shows; return a digest of the view texts behind a source.

    Parameters
    ----------
    placement : Placement
    texts : mapping of str to str
        Every view's CREATE VIEW text by its name, folded; of views of one name, all texts.
    declarations : Declarations

    Notes
    -----
    Texts are searched for words, so a view may be assumed to read more than it does, but never less.
    """
    source = placement.written
    if is_nameless(source):
        return ""
    open_ones, seen, words = [fold(source_parts(placement.source)[-1])], dict[str, str](), set[str]()
    while open_ones:
        name = open_ones.pop()
        if name in seen or name not in texts:
            continue
        seen[name] = texts[name]
        found = words_of(texts[name])
        words |= found
        open_ones += sorted(found)
    stateful = sorted(STATEFUL & words)
    if stateful and placement.governed:
        raise cannot_see(source, f"{stateful[0]}()")
    if not placement.seen and placement.governed:
        charged = {fold(name) for name in placement.charged}
        for one in declarations.listed:
            name = fold(one.dataset) if one.table is None else one.table.name
            roots = {fold(root) for root in declarations.roots([one])}
            if name in words and roots and not roots <= charged:
                raise SourceError(
                    "S014",
                    f"what {show(source)} reads cannot be seen, and the text of a view that it stands on names "
                    f"{show(one.dataset)}. Read that table in a view of its own.",
                )
    return digest("\n".join(f"{name}\n{text}" for name, text in sorted(seen.items())))


def words_of(text: str) -> set[str]:
    """Return the identifiers of a SQL text, folded."""
    return {
        fold(quoted.replace('""', '"') if quoted else plain)
        for quoted, plain in re.findall(r'"((?:[^"]|"")+)"|([A-Za-z_\u0080-\uffff][\w$]*)', text)
    }

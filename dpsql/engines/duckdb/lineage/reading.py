"""Judge the texts behind a source when a call runs, and recognize declared views over files.

`placing` judges the plan of a source when DuckDB binds a statement. Only a running call knows the texts of views and
macros: it must know all names in them, and no source without a plan may be next to a table with a budget.
"""

from __future__ import annotations

from collections.abc import Mapping

from dpsql.contract.names import is_file, parts_of
from dpsql.contract.parameters import fold, show
from dpsql.contract.placement import Placement
from dpsql.engines.duckdb.lineage import paths, refusals
from dpsql.engines.duckdb.lineage.closure import Closure
from dpsql.engines.duckdb.lineage.declarations import BY_TEXT, Declaration, Declarations
from dpsql.engines.duckdb.lineage.texts import Catalogued, relations
from dpsql.errors import BudgetError, InternalError


def read_texts(
    placement: Placement,
    texts: Catalogued,
    declarations: Declarations,
    catalog: paths.Catalog,
    *,
    is_judged: bool,
) -> tuple[str, bool, tuple[paths.Path, ...]]:
    """Judge the texts behind a source; return their digest, whether they call functions, and tables without a budget.

    These are the tables that the texts name if there is no plan. `is_judged` texts were judged in this state of the
    catalog; they are not read again if a plan shows the rest.

    Raises
    ------
    SourceError
        S041, S042, S044: a source may not contain a function, a type or a text. S043: a table with a budget is next
        to a file or a frame.
    BudgetError
        B006, B007: a table is not declared, or a declared view has changed.
    InternalError
        I006: the texts now call a function, and macros were not listed.
    """
    if paths.is_nameless(placement.written):
        return "", False, ()
    database, schema, name = parts_of(placement.source)
    own = database, schema, name
    if not placement.governed or (placement.seen and is_judged):
        return _digest(view_texts(own[2], texts)), True, ()
    closure = Closure(placement.written, texts, enums=placement.enums)
    closure.source_of_rows(own[2])
    if not placement.seen:
        _refuse_replaced(own, closure, declarations, catalog)
    if texts.macros is None and closure.calls:
        raise InternalError("I006", "what the source calls was not listed. Run the statement again.")
    if not placement.seen and closure.ordered:
        raise refusals.order_decides(placement.written, closure.ordered[0], in_files=True)
    _refuse_unwritten(placement, own, texts)
    free: tuple[paths.Path, ...] = ()
    if not placement.seen:
        charged = () if placement.claimed else placement.charged
        refuse_unseen(placement.written, closure, declarations, catalog, charged=charged, claimed=placement.claimed)
        free = _without_budget(closure, declarations, catalog)
    return _digest(view_texts(own[2], texts)), closure.calls, free


def refuse_lost_keys(placement: Placement, texts: Catalogued) -> None:
    """Raise if a key that makes an order total is not a key of its table in the transaction that reads it."""
    for database, schema, name, *columns in placement.keyed:
        if not any(key <= set(columns) for key in texts.unique((database, schema, name))):
            raise BudgetError(
                "B008",
                f"the constraints of {show(name)} are others than when the statement was prepared. Prepare it again.",
            )


def view_texts(name: str, texts: Catalogued) -> dict[str, str]:
    """Return the texts of the views of a name, and of the views that they name; all texts of views of one name.

    Named releases store a digest of these texts, so the form stays.
    """
    definitions: dict[str, str] = {}
    names, seen = [fold(name)], set[str]()
    while names:
        name = names.pop()
        if name in seen:
            continue
        seen.add(name)
        for view in texts.views:
            if fold(view.path[2]) == name and view.sql:
                definitions[name] = "\n".join(sorted((*filter(None, [definitions.get(name)]), view.sql)))
                names += map(fold, relations(view.sql))
    return definitions


def _digest(texts: Mapping[str, str]) -> str:
    return paths.digest("\n".join(f"{name}\n{text}" for name, text in sorted(texts.items())))


def _folded(path: paths.Path) -> tuple[str, ...]:
    return tuple(map(fold, path))


def _refuse_unwritten(placement: Placement, own: paths.Path, texts: Catalogued) -> None:
    """Raise if DuckDB shows a plan of the source and no text: it is a Python relation."""
    definitions = [view.sql for view in texts.views if _folded(view.path) == _folded(own)]
    if placement.seen and not any(definitions) and _folded(own) not in map(_folded, texts.tables):
        raise refusals.unreadable_text(placement.written)


def refuse_unseen(
    source: str,
    closure: Closure,
    declarations: Declarations,
    catalog: paths.Catalog,
    *,
    charged: tuple[str, ...],
    claimed: bool,
) -> None:
    """Raise if a source without a plan is next to a table that has a budget or is undeclared.

    `charged` are the budgets of the source's own declaration, never a claimed budget. The source is `claimed` if the
    caller names its budget.
    """
    files = [*closure.files, *(name for name in closure.relations.values() if is_file(name))]
    mine = {fold(name) for name in charged}
    names: set[str] = set()
    for declaration in declarations.listed:
        name = fold(declaration.dataset) if declaration.table is None else declaration.table.name
        names.add(name)
        roots = {fold(root) for root in declarations.roots([declaration])}
        if name in closure.relations and roots and not roots <= mine:
            raise refusals.beside_unseen(source, declaration.dataset, files)
    for path in closure.catalogued.tables:
        if claimed and fold(path[2]) in closure.relations and fold(path[2]) not in names:
            raise refusals.undeclared(catalog.display(path), declarations)


def _without_budget(closure: Closure, declarations: Declarations, catalog: paths.Catalog) -> tuple[paths.Path, ...]:
    """Return the tables in the texts without rows of people, as far as names tell."""
    tables = (path for path in closure.catalogued.tables if fold(path[2]) in closure.relations)
    return tuple(path for path in tables if not declarations.roots(declarations.about(catalog.table(path), path[0])))


def text_digest(own: paths.Path, texts: Catalogued) -> str:
    """Return the digest that identifies a view that DuckDB cannot serialize: of the texts behind the view."""
    closure = Closure(own[2], texts)
    for view in texts.views:
        if _folded(view.path) == _folded(own):
            closure.view(view)
    return BY_TEXT + _digest(closure.texts)


def _refuse_replaced(own: paths.Path, closure: Closure, declarations: Declarations, catalog: paths.Catalog) -> None:
    """Raise if the source reads a declared view whose text has changed."""
    for view in declarations.views():
        path = None if view.table is None else catalog.path(view.table)
        if path is None or view.view is None or not view.view.startswith(BY_TEXT):
            continue
        read = _folded(path) == _folded(own) or fold(path[2]) in closure.relations
        if read and text_digest(path, closure.catalogued) != view.view:
            raise replaced(catalog.display(path))


def replaced(view: str) -> BudgetError:
    """Return the refusal of a declared view that has changed."""
    return BudgetError(
        "B007",
        f"the view {show(view)} is another one than was declared. Declare it again with the same dp_protect, dp_derive "
        "or dp_public.",
    )


def stands_still(declaration: Declaration) -> bool:
    """Whether a view was declared by its plan, so that a view without a plan is another view."""
    return bool(declaration.view) and not str(declaration.view).startswith(BY_TEXT)

"""What is judged of a source when its statement runs: the texts behind it, and the functions that it may call.

Nothing is kept under a plan, or under anything else that rows may decide. What was judged is remembered under a source,
its plan and the state of the catalog, in which the texts are the same (`CatalogState`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace

import duckdb

from dpsql.contract.placement import Placement
from dpsql.engines.duckdb.lineage import paths
from dpsql.engines.duckdb.lineage.own_functions import EXTENSIONS, refuse_foreign
from dpsql.engines.duckdb.lineage.queries import read_query_texts
from dpsql.engines.duckdb.lineage.reading import read_texts, refuse_lost_keys
from dpsql.engines.duckdb.lineage.standing import Standing
from dpsql.engines.duckdb.lineage.texts import Catalogued
from dpsql.errors import InternalError


class Judgements(Standing):
    """The declarations that stand, and what was judged in the present state of the catalog."""

    def known(self, placement: Placement, catalog: paths.Catalog) -> Placement:
        """Return a placement with whether the texts behind it were judged in the present state of the catalog."""
        state = catalog.state
        return replace(placement, state=state, read=self.state.is_judged(placement.key, state))

    def read_texts(self, placement: Placement, texts: Catalogued, catalog: paths.Catalog) -> str:
        """Raise if the texts behind a source name what no plan shows; return their digest.

        Where DuckDB shows no plan, what is declared decides, too, so the texts are read at each call. Macros need not
        be listed for that if the texts call nothing.
        """
        refuse_lost_keys(placement, texts)
        known = self._is_known(placement, texts, catalog)
        found, calls, unseen = read_texts(placement, texts, self.declarations(), catalog, known=known)
        self.refuse_other_tables(unseen, texts.numbers)
        if not known and (placement.seen or not calls):
            self._note(placement, texts, catalog)
        return found

    def read_query_texts(
        self, placement: Placement, texts: Sequence[str], catalogued: Catalogued, catalog: paths.Catalog
    ) -> None:
        """Raise if what the FROM items of a query name calls what no source may call."""
        if self._is_known(placement, catalogued, catalog):
            return
        read_query_texts([f"FROM {text}" for text in texts], catalogued, enums=placement.enums)
        self._note(placement, catalogued, catalog)

    def read_functions(self, placement: Placement, texts: Catalogued, catalog: paths.Catalog) -> None:
        """Raise if a function that a statement may call is another than DuckDB's own; of a table all that is judged."""
        if texts.functions is not None:
            refuse_foreign(texts.functions, self.extensions)
        if placement.is_plain and not self._is_known(placement, texts, catalog):
            self._note(placement, texts, catalog)

    def extensions(self) -> Collection[str]:
        """Return the files of the loaded extensions; none where the caller has forbidden DuckDB to look for them."""
        cursor = self._cursor()
        if cursor is None:
            return ()
        with cursor, suppress(duckdb.Error):
            [(found,)] = cursor.execute(EXTENSIONS).fetchall()
            return tuple(found or ())
        return ()

    def _is_known(self, placement: Placement, texts: Catalogued, catalog: paths.Catalog) -> bool:
        """Whether the catalog was not listed because the source was judged in the state that the catalog has.

        Raises
        ------
        InternalError
            I006: it was not listed, and has another state by now.
        """
        if not placement.governed or texts.functions is not None:
            return False
        if not self.state.is_judged(placement.key, catalog.state):
            raise InternalError("I006", "the catalog has changed. Run the statement again, or prepare it again.")
        return True

    def _note(self, placement: Placement, texts: Catalogued, catalog: paths.Catalog) -> None:
        """Note that a source was judged, if the catalog had one state from before it was listed until now."""
        same = placement.state == catalog.state
        self.state.judged(placement.key, catalog.state if same else None, texts.transaction)

"""Lost entries that an owner accepts: what they spent is charged again (see `dpsql.ledger.spending`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dpsql.ledger.chain import canonical
from dpsql.ledger.charge import DECLARED, entry_row
from dpsql.ledger.granting import GrantingLedger
from dpsql.ledger.spending import Lost, Totals, append_lost, lost_charges

if TYPE_CHECKING:
    from dpsql.ledger.transaction import Transaction


class AcceptingLedger(GrantingLedger):
    """A ledger that can be charged for entries that it has lost."""

    def lost(self, remembered: Sequence[Totals], ledger_id: str) -> list[Lost]:
        """Return what this ledger has lost of the totals that a database remembers of a ledger; charges nothing."""
        same = self.id == ledger_id
        found = self._read(lambda transaction: lost_charges(transaction, remembered, same=same))
        return [one for charges in found for one in charges]

    def charge_lost(
        self, remembered: Sequence[Totals], ledger_id: str, kind: str, facts: Mapping[str, object]
    ) -> list[Lost]:
        """Charge what this ledger has lost, and declare that it was accepted, in one transaction.

        Parameters
        ----------
        remembered : sequence of Totals
            What a database remembers.
        ledger_id : str
            The ledger that it remembers.
        kind : str
            ``'accept'``, or ``'adopt'`` where the database gets another ledger.
        facts : mapping
            The `database`, with what it remembers. Where they are declared already, nothing is charged again: the
            database was not told, because the command was ended.
        """
        same, dataset, function = self.id == ledger_id, f"database {facts['database']}", f"dpsql ledger {kind}"
        declared = entry_row(kind, dataset, function, canonical(facts), guarantee="", status=DECLARED)
        charged = entry_row("release", "", function, "{}", guarantee="spent by lost entries")

        def work(transaction: Transaction) -> list[Lost]:
            latest = transaction.declarations(None).latest.get(dataset, {}).values()
            newest = max(latest, key=lambda declaration: declaration.sequence, default=None)
            if newest is not None and dict(newest.facts) == dict(facts):
                return []
            charges = lost_charges(transaction, remembered, same=same)
            append_lost(transaction, charges, charged)
            transaction.append(declared, transaction.state(dataset))
            return [one for each in charges for one in each]

        return self._write(work)

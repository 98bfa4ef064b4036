"""A door behind which an owner has one dataset, and everything has a nasty name."""

from __future__ import annotations

from typing import Any

from support.fake_door import FakeDoor

SCRIPT = "<script>alert(2)</script>"
NEW = "dpsql_" + "b" * 43


class OwnersDoor(FakeDoor):
    """A door behind which one owner has one dataset, of a nasty name."""

    def reset(self) -> None:
        """Forget what was wanted."""
        super().reset()
        self.wanted: list[tuple[str, dict[str, Any]]] = []
        self.standing = {"owner": [SCRIPT], "auditor": []}
        self.refusal: Exception | None = None

    def own(self, token: str, want: str, **asked: Any) -> Any:
        """Return what an owner is told."""
        self.principal(token)
        self.wanted.append((want, asked))
        if self.refusal is not None and want in ("grant", "revoke", "token"):
            raise self.refusal
        row = {"block": None, "budget": "epsilon 10", "spent": "epsilon 1", "remaining": "epsilon 9", "releases": 1}
        dated = {**row, "block": SCRIPT, "epsilon_spent": 1.0, "epsilon_remaining": 9.0}
        budgets = {"dataset": SCRIPT, "budgets": [row, dated], "stated": {SCRIPT: SCRIPT}, "spent": {"2026-11-28": 1.0}}
        grant: dict[str, Any] = {
            "principal": SCRIPT,
            "dataset": SCRIPT,
            "role": "analyst",
            "spent": "epsilon 1",
            "functions": SCRIPT,
        }
        grant["said"] = {"dataset": SCRIPT, "role": "analyst", "functions": SCRIPT, "sources": SCRIPT, "days": "9"}
        token_row = {"principal": SCRIPT, "id": "abcdefgh", "expires": "2027-01-01T00:00:00.000Z", "stands": True}
        grants = {"grants": [grant], "tokens": [token_row], "owned": [SCRIPT], "within": [SCRIPT]}
        table = {"dataset": SCRIPT, "table": SCRIPT, "place": SCRIPT, "is_view": True, "columns": 3, "unit": None}
        table |= {"path": SCRIPT, "rows_per_unit": 3, "made_of": None}
        unplaced = [{"table_name": SCRIPT, "if_public": f"SELECT dp_public('{SCRIPT}');"}]
        if not self.standing["owner"]:
            grants |= {"owned": [], "within": []}
        return {
            "standing": self.standing,
            "overview": {"datasets": [budgets]},
            "lineage": {"tables": [table], "public": [SCRIPT], "unplaced": unplaced},
            "reservations": [{**entry(8), "function": SCRIPT, "principal": SCRIPT}],
            "receipt": {**self._receipt(7, False), "dataset": SCRIPT, "source": SCRIPT, "charged": None},
            "grants": grants,
            "verify": {"ok": asked.get("head") != "cut", "entries": 7, "head": "c" * 64, "problem": SCRIPT},
            "refusals": [{"time": "2026-11-28T04:00:00", "principal": SCRIPT, "code": "G006", "asked": SCRIPT}],
            "token": {"text": NEW, "id": "bbbbbbbb", "expires": "2027-01-01T00:00:00.000Z"},
        }.get(want)

    def ledger(self, token: str, before: int | None = None) -> dict[str, Any]:
        """Return the 200 last entries of 300, or those before one."""
        self.principal(token)
        end = 301 if before is None else min(before, 301)
        return {"ledger": [entry(number) for number in range(max(1, end - 200), end)], "grants": []}


def entry(number: int) -> dict[str, Any]:
    """Return a row of the ledger."""
    of_all = {"recorded_at": "2026-11-28T04:00:00", "kind": "release", "dataset": SCRIPT, "hash": "c", "epsilon": 0.5}
    said = {"function": SCRIPT, "guarantee": SCRIPT, "release": "x", "status": "released"}
    return {"sequence": number, **of_all, **said}

"""What owners and auditors may see and change: judged by the broker, as if whoever asks were hostile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dpsql
from dpsql.contract.grant_fields import GRANT_FIELDS
from dpsql.gateway.audit import Audit
from dpsql.gateway.desk import Desk
from dpsql.gateway.limits import Buckets, Rates
from dpsql.ledger.grants import Grant
from support.gateway_broker import SECRET, Gateway, count, made

# olga owns patients, olaf patients and staff; eve audits patients; ana asks about patients, bob about staff, too.
GRANTS: dict[str, dict[str, Any]] = {
    "ana": {"epsilon": 5},
    "bob": {},
    "eve": {"role": "auditor"},
    "olaf": {"role": "owner"},
    "olga": {"role": "owner"},
}


class Asking:
    """A desk, asked with the tokens of principals."""

    def __init__(self, context: dpsql.Context, gateway: Gateway) -> None:
        self.ledger, self.gateway = context.ledger, gateway
        rates, at_once = Rates(factor=10_000.0), Buckets(sleep=lambda _: None)
        self.desk = Desk(context, Audit(gateway.log), rates, buckets=at_once)

    def ask(self, asker: str, want: str, **request: object) -> dict[str, Any]:
        """Return the reply."""
        return self.desk.answer({"token": self.gateway.tokens[asker], "want": want, **request})[0]

    def code(self, asker: str, want: str, **request: object) -> str:
        """Return the code of a refusal, or ''."""
        return str(self.ask(asker, want, **request).get("error", {}).get("code", ""))

    def standing(self) -> set[tuple[str, str, str]]:
        """Return every grant and token, without times."""
        grants = self.ledger.grants()
        return {(name, dataset, one.role) for (name, dataset), one in grants.grants.items()} | {
            (one.principal, "token", one.id) for one in grants.tokens.values()
        }


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    return made(tmp_path, **GRANTS)


@pytest.fixture
def context(gateway: Gateway) -> Iterator[dpsql.Context]:
    with dpsql.Context(gateway.database) as found:
        found.ledger.grant(Grant.of("bob", "staff"))
        found.ledger.grant(Grant.of("olaf", "staff", role="owner"))
        yield found


@pytest.fixture
def asking(context: dpsql.Context, gateway: Gateway) -> Asking:
    return Asking(context, gateway)


LOOKS = ("overview", "lineage", "reservations", "receipt", "grants", "verify", "refusals")
SAID = {"principal": "cleo", "dataset": "patients"}
CHANGES: dict[str, dict[str, object]] = {
    "grant": {"grant": SAID},
    "revoke": {"revoke": {"principal": "ana", "dataset": "patients"}},
    "token": {"principal": "ana"},
}


@pytest.mark.long
def test_who_may_look_and_who_may_change(asking: Asking) -> None:
    before = asking.standing()
    for want in LOOKS:
        assert asking.code("ana", want) == "G019"
        assert [asking.code(name, want) for name in ("eve", "olga")] == ["G018" if want == "receipt" else ""] * 2
    for want, request in CHANGES.items():
        assert [asking.code(name, want, **request) for name in ("ana", "eve")] != ["", ""]
        assert "" not in [asking.code(name, want, **request) for name in ("ana", "eve")]
    assert asking.standing() == before
    assert asking.ask("ana", "standing") == {"standing": {"auditor": [], "owner": []}}
    assert asking.ask("eve", "standing") == {"standing": {"auditor": ["patients"], "owner": []}}
    assert asking.ask("olaf", "standing")["standing"]["owner"] == ["patients", "staff"]


# What an owner of patients may not change, and what is said.
REFUSED: list[tuple[str, dict[str, object], str]] = [
    ("grant", {"grant": {"principal": "cleo", "dataset": "staff"}}, "G015"),
    ("grant", {"grant": {"principal": "cleo", "dataset": "nothing"}}, "G015"),
    ("grant", {"grant": {"principal": "olga", "dataset": "staff", "role": "owner"}}, "G015"),
    ("grant", {"grant": {**SAID, "role": "owner"}}, "G019"),
    ("grant", {"grant": {**SAID, "principal": "olaf"}}, "G019"),
    ("grant", {"grant": {**SAID, "principal": "olga", "role": "auditor"}}, "G019"),
    ("grant", {"grant": {**SAID, "role": "king"}}, "P005"),
    ("grant", {"grant": {**SAID, "epsilon": "-1"}}, "P024"),
    ("grant", {"grant": {**SAID, "epsilon": "1; DROP"}}, "G012"),
    ("grant", {"grant": {**SAID, "sources": "staff"}}, "G019"),
    ("grant", {"grant": {**SAID, "sources": "patients, staff"}}, "G019"),
    ("grant", {"grant": {**SAID, "principal": "bob", "subject": "me"}}, "G019"),
    ("grant", {"grant": {**SAID, "king": "me"}}, "G012"),
    ("grant", {"grant": {**SAID, "days": 4}}, "G012"),
    ("grant", {"grant": {**SAID, "principal": "Cleo!"}}, "P013"),
    ("grant", {"grant": ["principal"]}, "G012"),
    ("grant", {}, "G012"),
    ("grant", {"grant": {"dataset": "patients"}}, "G012"),
    ("grant", {"grant": {"principal": "cleo", "role": "king"}}, "G012"),
    ("revoke", {"revoke": {"principal": "bob", "dataset": "staff"}}, "G015"),
    ("revoke", {"revoke": {"principal": "olaf", "dataset": "patients"}}, "G019"),
    ("revoke", {"revoke": {"principal": "nobody", "dataset": "patients"}}, "G015"),
    ("revoke", {"revoke": {"principal": "ana"}}, "G015"),
    ("token", {"principal": "bob"}, "G019"),
    ("token", {"principal": "olaf"}, "G019"),
    ("token", {"principal": "olga"}, "G019"),
    ("token", {"principal": "nobody"}, "G019"),
    ("token", {}, "G012"),
]


@pytest.mark.long
def test_an_owner_reaches_no_further_than_what_is_owned(asking: Asking) -> None:
    before = asking.standing()
    found = [(want, request, asking.code("olga", want, **request)) for want, request, _ in REFUSED]
    assert found == REFUSED
    bobs = asking.ledger.grants().tokens_of("bob")[0].id
    assert asking.code("olga", "revoke", revoke={"principal": "bob", "token": bobs}) == "G019"
    assert asking.code("olga", "revoke", revoke={"principal": "ana", "token": bobs}) == "P013"
    assert asking.standing() == before


@pytest.mark.long
def test_an_owner_grants_and_takes_back(asking: Asking) -> None:
    said = {**SAID, "epsilon": "0.7", "default_epsilon": "0.1", "functions": "dp_count, dp_avg", "days": "9"}
    assert asking.ask("olga", "grant", grant={**said, "share": "true"}) == {"granted": True}
    grant = asking.ledger.grants().grants["cleo", "patients"]
    assert grant.cap is not None
    assert (str(grant.cap.epsilon), str(grant.default_epsilon), grant.functions) == (
        "7/10",
        "1/10",
        ("dp_count", "dp_avg"),
    )
    assert (grant.share, grant.total, grant.role) == (True, False, "analyst")
    made_now = asking.ask("olga", "token", principal="cleo")["token"]
    asking.gateway.tokens["cleo"] = made_now["text"]
    assert made_now["text"].startswith(f"dpsql_{made_now['id']}")
    assert asking.ask("cleo", "known") == {"principal": "cleo"}
    asking.ask("olga", "token", principal="cleo", now=True)
    assert asking.code("cleo", "known") == "G020"
    assert asking.code("olga", "revoke", revoke={"principal": "cleo", "dataset": "patients"}) == ""
    assert ("cleo", "patients") not in asking.ledger.grants().grants
    asking.ask("olga", "grant", grant={**SAID, "days": "never"})
    assert asking.ledger.grants().grants["cleo", "patients"].expires is None
    assert asking.ledger.verify().ok


@pytest.mark.long
def test_all_that_is_said_of_a_grant_is_shown_and_kept(asking: Asking) -> None:
    """Of a grant that the command line made: its form sends back what it was given, and nothing is lost."""
    made = Grant.of(
        "dora",
        "patients",
        epsilon=0.1,
        delta=1e-7,
        per="month",
        default_epsilon=0.07,
        default_delta=1e-9,
        functions=["dp_count"],
        sources=["patients_of_ward"],
        days=9,
        subject="auth0|dora",
        share=True,
        total=True,
    )
    asking.ledger.grant(made)
    [row] = [one for one in asking.ask("olga", "grants")["grants"]["grants"] if one["principal"] == "dora"]
    said = row["said"]
    assert set(said) == {field.name for field in GRANT_FIELDS} - {"rho"}
    asking.ask("olga", "grant", grant={**said, "principal": "dora"})
    again = asking.ledger.grants().grants["dora", "patients"]
    assert replace(again, expires=None) == replace(made, expires=None)
    assert said["days"] == "9"
    asking.ask("olga", "grant", grant={**said, "principal": "dora", "epsilon": "2", "sources": "", "subject": ""})
    again = asking.ledger.grants().grants["dora", "patients"]
    assert (again.sources, again.subject) == (None, None)
    assert asking.code("olga", "grant", grant={**said, "principal": "dora"}) == "G019"  # it is no longer hers


@pytest.mark.long
def test_who_somebody_is_stays_with_those_who_let_them_in(asking: Asking) -> None:
    """Bob may ask about another's dataset: an owner of one of his leaves what the provider calls him as it is."""
    asking.ledger.grant(Grant.of("bob", "patients", subject="auth0|bob"))
    said = {**SAID, "principal": "bob"}
    for subject in ({}, {"subject": "auth0|mallory"}):
        assert asking.code("olga", "grant", grant={**said, **subject}) == "G019"
    assert asking.code("olga", "grant", grant={**said, "subject": "auth0|bob", "epsilon": "2"}) == ""


@pytest.mark.long
def test_what_is_told_is_of_the_own_datasets(asking: Asking) -> None:
    assert asking.code("ana", "call", **count("0.5")) == ""
    asking.code("ana", "call", **count("0.5", source="staff"))
    told = asking.ask("eve", "overview")["overview"]
    [one] = told["datasets"]
    assert (one["dataset"], one["budgets"][0]["epsilon_spent"]) == ("patients", 0.5)
    assert list(one["spent"].values()) == [0.5]
    grants = asking.ask("olga", "grants")["grants"]
    assert {row["dataset"] for row in grants["grants"]} == {"patients"}
    assert grants["within"] == ["ana", "eve"]
    assert all("digest" not in token for token in grants["tokens"])
    [refusal] = asking.ask("olga", "refusals")["refusals"]
    assert (refusal["principal"], refusal["code"]) == ("ana", "DPSQL-G015")
    assert SECRET not in repr((told, grants, refusal))


@pytest.mark.long
def test_the_chain_is_walked(asking: Asking) -> None:
    report = asking.ask("eve", "verify")["verify"]
    assert report["ok"]
    assert asking.ask("eve", "verify", head=report["head"])["verify"]["ok"]
    assert not asking.ask("eve", "verify", head="0" * 64)["verify"]["ok"]


@pytest.mark.long
def test_a_role_that_has_ended_is_none(asking: Asking) -> None:
    asking.ledger.revoke("olga", "patients")
    assert [asking.code("olga", want) for want in LOOKS] == ["G019"] * len(LOOKS)
    assert {asking.code("olga", want, **request) for want, request in CHANGES.items()} == {"G015", "G019"}


def test_refusals_are_read_from_the_end_of_the_log(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "log")
    assert audit.refusals({"ana"}) == []
    (tmp_path / "log").write_text("half of a line\n" + '{"principal": "ana", "code": "", "kind": "call"}\n')
    with (tmp_path / "log").open("a") as file:
        file.writelines(
            f'{{"principal": "{name}", "code": "G00{one}"}}\n' for one in range(6) for name in ("ana", "ben")
        )
    assert [one["code"] for one in audit.refusals({"ana"}, 3)] == ["G005", "G004", "G003"]
    assert Audit(None).refusals({"ana"}) == []


@pytest.mark.long
def test_the_lineage_of_the_own_datasets(asking: Asking, context: dpsql.Context) -> None:
    context.sql("CREATE TABLE rooms AS SELECT 1 AS room")
    context.sql("CREATE TABLE loose AS SELECT 1 AS room")
    context.sql("CREATE TABLE cohort AS SELECT id, age FROM patients")
    context.sql("CREATE TABLE later AS SELECT id FROM cohort")
    context.dp_public("rooms")
    context.dp_derive("cohort", "patients", own_rows_only=True)
    context.dp_derive("later", "cohort", own_rows_only=True)
    told = asking.ask("eve", "lineage")["lineage"]
    found = [(one["dataset"], one["table"], one["place"], one["unit"], one["made_of"]) for one in told["tables"]]
    assert found == [
        ("patients", "patients", "main.patients", "id", None),
        ("patients", "cohort", "main.cohort", "id", "patients"),
        ("patients", "later", "main.later", "id", "cohort"),
    ]
    assert (told["public"], told["unplaced"]) == (["rooms"], None)
    whole = asking.ask("olaf", "lineage")["lineage"]  # who owns all there is
    assert {one["dataset"] for one in whole["tables"]} == {"patients", "staff"}
    assert [one["table_name"] for one in whole["unplaced"]] == ["loose"]


@pytest.mark.long
def test_receipts_and_reservations_are_of_the_own_datasets(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    [one] = asking.ask("ana", "call", **count("0.5"))["receipts"]
    [other] = asking.ask("bob", "call", **count("0.5", source="staff"))["receipts"]
    told = asking.ask("eve", "receipt", number=one["entry"])["receipt"]
    assert (told["guarantee"], told["charged"]) == (one["guarantee"], None)
    for number in (other["entry"], one["entry"] + 1, 0, -1, 2**70, True, "1", None, 1.0):
        assert asking.code("eve", "receipt", number=number) == "G018"
    assert asking.ask("olaf", "receipt", number=other["entry"])["receipt"]["dataset"] == "staff"
    assert asking.ask("eve", "reservations") == {"reservations": []}

    def lost(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:  # the process is lost after the charge
        patched.setattr("dpsql.engines.duckdb.session.may_be_long", lambda plan: True)
        patched.setattr("dpsql.ledger.ledger.Ledger.charge", lost)
        patched.setattr("dpsql.ledger.ledger.Ledger.charge_failure", lost)
        asking.ask("ana", "call", **count("0.25"))
        asking.ask("bob", "call", **count("0.125", source="staff"))
    assert [row["epsilon"] for row in asking.ask("eve", "reservations")["reservations"]] == [0.25]
    assert len(asking.ask("olaf", "reservations")["reservations"]) == 2
    asking.ledger.end_lost_reservations()
    assert asking.ask("olaf", "reservations") == {"reservations": []}

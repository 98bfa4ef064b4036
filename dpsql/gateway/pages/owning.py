"""Serve the pages for data owners and auditors: budgets, grants, the ledger with its verification, refusals.

The pages are a separate site, only on this machine. The broker (`dpsql.gateway.owned`) decides on access and changes;
an auditor's page has no buttons for changes, and the broker would refuse them. The owner's form of a grant has a field
for every property, filled with the current value or the typed one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
from starlette.responses import Response
from starlette.routing import BaseRoute

from dpsql.contract.grant_fields import GRANT_FIELDS, ROLES, GrantField
from dpsql.dataclass import dataclass
from dpsql.errors import DpsqlError, GatewayError
from dpsql.gateway.pages.elements import Element, h
from dpsql.gateway.pages.parts import (
    Site,
    alert,
    badge,
    choice_field,
    facts,
    link_to,
    meter,
    policy_text,
    receipt,
    secret_field,
    table_of,
    text_field,
    tick,
    turning,
    when,
)
from dpsql.gateway.pages.picture import number_text, pictures
from dpsql.gateway.pages.sessions import Logins, WebSession
from dpsql.gateway.pages.visits import Entrance, Visit, WebPage, is_entry, routes_of, see
from dpsql.gateway.problems import problem_of

# Only the command line sets the owner of a dataset.
ROLES_HERE = ROLES[:2]
# Grant fields that the form sends.
SAID = ("principal", *(grant_field.name for grant_field in GRANT_FIELDS))
_WHO = ("dataset", "role")


@dataclass(frozen=True)
class GrantDraft:
    """The initial content of a form.

    Attributes
    ----------
    texts : mapping of str to str
        Strings by the names of `SAID`.
    stands : bool
        Whether the fields show an existing grant of this principal on this dataset.
    """

    texts: Mapping[str, str] = field(default_factory=dict)
    stands: bool = False

    @property
    def mark(self) -> str:
        """ID of the shown grant, so that the form replaces no grant that it did not show."""
        return f"{self.texts['principal']} {self.texts['dataset']}" if self.stands else ""


def standing(grants: Iterable[Mapping[str, Any]], principal: str, dataset: str) -> GrantDraft:
    """Return the existing grant as a draft; an empty draft if no grant can be changed here."""
    for grant in grants:
        if (grant["principal"], grant["dataset"]) == (principal, dataset) and grant["role"] in ROLES_HERE:
            return GrantDraft({**grant["said"], "principal": principal}, True)
    return GrantDraft()


def grant_form(session: WebSession, datasets: list[str], draft: GrantDraft) -> Element:
    """Return the form of a grant."""
    texts = draft.texts
    who = [_field(grant_field, texts, datasets) for grant_field in GRANT_FIELDS if grant_field.name in _WHO]

    def fields(*kinds: str) -> list[Element]:
        return [
            _field(grant_field, texts, datasets)
            for grant_field in GRANT_FIELDS
            if grant_field.kind in kinds and grant_field.name not in _WHO
        ]

    principal = text_field("principal", "Principal", "", value=texts.get("principal"), needed=True)
    return h(
        "form",
        {"method": "post", "action": "/grants", "class": "card filled", "id": "grant"},
        secret_field(session),
        h("input", {"type": "hidden", "name": "was", "value": draft.mark}),
        h("h2", {}, "Grant as it stands" if draft.stands else "New grant"),
        h("div", {"class": "row"}, principal, who),
        h("div", {"class": "row"}, fields("number", "choice", "days")),
        fields("names", "text"),
        h("div", {"class": "boxes"}, fields("flag")),
        h("div", {"class": "buttons"}, h("button", {"class": "main"}, "Grant")),
        h("p", {"class": "hint"}, "It takes the place of an earlier grant of the same principal on the dataset."),
    )


def _field(grant_field: GrantField, texts: Mapping[str, str], datasets: list[str]) -> Element:
    value = texts.get(grant_field.name)
    if grant_field.kind == "flag":
        return tick(grant_field.name, grant_field.label, ticked=value == "true")
    if grant_field.name == "dataset":
        return choice_field(grant_field.name, grant_field.label, datasets, value or "")
    if grant_field.kind == "choice":
        choices = ROLES_HERE if grant_field.name == "role" else grant_field.choices
        return choice_field(grant_field.name, grant_field.label, choices, value or "", none=grant_field.usual)
    return text_field(grant_field.name, grant_field.label, grant_field.usual, value=value)


SITE = Site(
    "dpsql owner",
    "dpsql-owner",
    (
        *(("/datasets", "Budgets"), ("/lineage", "Lineage"), ("/grants", "Grants")),
        *(("/ledger", "Ledger"), ("/refused", "Refused")),
    ),
)
# Status prefix of entries with a result.
_RELEASED = "released"


def owning_routes(door: Entrance, sessions: Logins | None = None) -> list[BaseRoute]:
    """Return the routes of the site for owners and auditors."""
    return routes_of(door, SITE, _PAGES, admits=_admit, sessions=sessions)


def _admit(door: Any, token: str) -> None:
    """Admit owners and auditors of a dataset."""
    if not any(door.own(token, "standing").values()):
        raise GatewayError("G019", "this is for owners and auditors of a dataset. Ask for the role.")


def _budgets(door: Any, visit: Visit) -> Response:
    overview = door.own(visit.session.token, "overview")
    return visit.page("Budgets", [_dataset(dataset) for dataset in overview["datasets"]], here="/datasets")


def _lineage(door: Any, visit: Visit) -> Response:
    """Show the tables of the datasets, and undeclared tables."""
    lineage = door.own(visit.session.token, "lineage")
    rows = [
        (
            h("bdi", {}, str(table["dataset"])),
            h("bdi", {}, str(table["table"])),
            [h("bdi", {}, str(table["place"] or "—")), " (a view)" if table["is_view"] else ""],
            _protected(table),
            str(table["columns"] or "—"),
        )
        for table in lineage["tables"]
    ]
    names = ("Dataset", "Table", "Where its rows are", "Whom its rows speak of", "Columns")
    public = [[h("bdi", {}, name)] for name in lineage["public"]]
    content = [
        table_of("Tables whose rows are charged to a dataset", names, rows, numbers=(False, False, False, False, True)),
        table_of("Public tables: views may join them", ("Table",), public) if public else None,
    ]
    unplaced = lineage.get("unplaced")
    if unplaced is not None:
        names = tuple(unplaced[0]) if unplaced else ("table_name",)
        caption = "Unplaced tables: nothing is declared of them, and nobody may ask about them"
        words = [name.replace("_", " ") for name in names]
        content.append(table_of(caption, words, [[_statement(record[name]) for name in names] for record in unplaced]))
    return visit.page("Lineage", content, here="/lineage")


def _protected(table: Mapping[str, Any]) -> list[object]:
    """Return the path from a table's rows to the privacy unit."""
    if table["made_of"] is not None:
        return ["made of ", h("bdi", {}, str(table["made_of"]))]
    way = table["path"] or table.get("unit")
    most = "" if table["rows_per_unit"] is None else f", at most {table['rows_per_unit']} rows each"
    return [h("code", {}, str(way)) if way else "as each call says", most]


def _statement(value: object) -> Element:
    text = str(value)
    return h("code", {"class": "wraps"}, text) if text.startswith("SELECT ") else h("bdi", {}, text)


def _dataset(dataset: Mapping[str, Any]) -> Element:
    rows = dataset["budgets"]
    totals = [row for row in rows if row.get("block") is None]
    blocks = [
        (
            h("bdi", {}, str(row["block"])),
            str(row["budget"]),
            meter(*_shares(row), str(row["spent"])),
            str(row["remaining"]),
            str(row["releases"]),
        )
        for row in rows
        if row.get("block") is not None
    ]
    spent = dict(sorted(dataset["spent"].items()))
    figures = pictures(pa.table({"day": list(spent), "ε charged on a day": list(spent.values())})) if spent else []
    return h(
        "section",
        {"class": "card dataset"},
        h("h2", {}, h("bdi", {}, str(dataset["dataset"]))),
        [
            meter(
                *_shares(row),
                [h("strong", {}, str(row["spent"])), f" of {row['budget']} spent, {row['remaining']} left"],
            )
            for row in totals
        ],
        table_of(
            ["By period, of ", str(dataset["dataset"])],
            ("Period", "Budget", "Spent", "Left", "Releases"),
            blocks,
            numbers=_LAST,
        )
        if blocks
        else None,
        facts((name.replace("_", " "), policy_text(value)) for name, value in dataset["stated"].items()),
        h("div", {"class": "drawn"}, figures),
    )


_LAST = (False, False, False, False, True)


def _shares(row: Mapping[str, Any]) -> tuple[object, object]:
    """Return the spent part and the total of a budget, in the unit of its accountant."""
    for unit in ("rho", "epsilon"):
        spent, rest = row.get(f"{unit}_spent"), row.get(f"{unit}_remaining")
        if spent is not None and rest is not None:
            return spent, float(spent) + float(rest)
    return None, None


def _grants(door: Any, visit: Visit) -> Response:
    return _grants_page(door, visit)


def _grants_page(
    door: Any,
    visit: Visit,
    note: Element | None = None,
    status: int = 200,
    draft: GrantDraft | None = None,
) -> Response:
    """Return the page; its form begins with a draft, or with the grant in the URL."""
    listing = door.own(visit.session.token, "grants")
    owned, within = set(listing["owned"]), set(listing["within"])
    session = visit.session
    granted = table_of(
        "Who may ask about what",
        ("Principal", "Role", "Dataset", "Spent", "Cap", "Functions", "Until", "Notes", "Action"),
        [
            (
                h("bdi", {}, str(grant["principal"])),
                str(grant["role"]),
                h("bdi", {}, str(grant["dataset"])),
                str(grant["spent"]),
                str(grant.get("cap") or "the budget"),
                h("bdi", {}, str(grant.get("functions") or "all")),
                when(grant.get("expires")) or "does not end",
                ", ".join(name for name in ("share", "total") if grant.get(name)),
                _changes(session, grant) if grant["dataset"] in owned and grant["role"] in ROLES_HERE else None,
            )
            for grant in listing["grants"]
        ],
    )
    tokens = table_of(
        "Their tokens: only what each begins with is kept",
        ("Principal", "Token", "Until", "Action"),
        [
            (
                h("bdi", {}, str(token["principal"])),
                h("code", {}, f"dpsql_{token['id']}…"),
                [when(token["expires"]), "" if token["stands"] else " has ended"],
                _button(session, "/grants/revoke", "Revoke", principal=token["principal"], token=token["id"])
                if token["principal"] in within
                else None,
            )
            for token in listing["tokens"]
        ],
    )
    content = [note, granted, tokens]
    if owned:
        pair = visit.field("principal"), visit.field("dataset")
        content += [
            _token_form(session, sorted(within)) if within else None,
            grant_form(session, sorted(owned), draft or standing(listing["grants"], *pair)),
        ]
    return visit.page("Grants", content, here="/grants", status=status)


def _hidden(name: str, value: object) -> Element:
    return h("input", {"type": "hidden", "name": name, "value": str(value)})


def _button(session: WebSession, address: str, text: str, **fields: object) -> Element:
    hidden = [_hidden(name, value) for name, value in fields.items()]
    what = ", ".join(map(str, fields.values()))
    return h(
        "form",
        {"method": "post", "action": address},
        secret_field(session),
        hidden,
        h("button", {"class": "quiet", "aria-label": f"{text} {what}"}, text),
    )


def _token_form(session: WebSession, principals: list[str]) -> Element:
    return h(
        "form",
        {"method": "post", "action": "/grants/token", "class": "card filled"},
        secret_field(session),
        h("h2", {}, "New token"),
        choice_field("grantee", "Principal", principals),
        tick("now", "Earlier tokens end at once, not after 24 hours"),
        h("div", {"class": "buttons"}, h("button", {"class": "main"}, "Make a token")),
        h("p", {"class": "hint"}, "It is shown once. Where all that somebody may ask about is yours."),
    )


def _changes(session: WebSession, row: Mapping[str, Any]) -> list[Element]:
    """Return the controls of a grant: the filled form, and the button that revokes it."""
    fields = {"principal": str(row["principal"]), "dataset": str(row["dataset"])}
    label = f"Change {fields['principal']}, {fields['dataset']}"
    return [
        h("a", {"href": f"/grants?{urlencode(fields)}#grant", "aria-label": label}, "Change"),
        _button(session, "/grants/revoke", "Revoke", **fields),
    ]


def _grant(door: Any, visit: Visit) -> Response:
    """Grant the form's content; if the form did not show an existing grant, show that grant first."""
    texts = {name: visit.field(name).strip() for name in SAID if visit.field(name).strip()}
    pair = texts.get("principal", ""), texts.get("dataset", "")
    before = standing(door.own(visit.session.token, "grants")["grants"], *pair)
    if before.stands and visit.field("was") != before.mark:
        note = h(
            "div",
            {"class": "note", "role": "alert", "tabindex": "-1", "autofocus": True},
            "Nothing was changed: this principal has a grant on the dataset. The form shows it, with what you typed. ",
            "Look at each field, and grant once more.",
        )
        return _grants_page(door, visit, note, 409, GrantDraft({**before.texts, **texts}, True))
    return _changed(door, visit, "grant", GrantDraft(texts, before.stands), grant=texts)


def _revoke(door: Any, visit: Visit) -> Response:
    texts = {name: visit.field(name) for name in ("principal", "dataset", "token") if visit.field(name)}
    return _changed(door, visit, "revoke", revoke=texts)


def _changed(door: Any, visit: Visit, want: str, draft: GrantDraft | None = None, **fields: object) -> Response:
    """Change something, and show the new state; or show the refusal with the draft."""
    try:
        door.own(visit.session.token, want, **fields)
    except DpsqlError as error:
        if error.code == "DPSQL-G020":
            raise
        problem = problem_of(error)
        return _grants_page(door, visit, alert(problem), problem.status, draft)
    return see("/grants")


def _token(door: Any, visit: Visit) -> Response:
    principal = visit.field("grantee")
    try:
        token = door.own(visit.session.token, "token", principal=principal, now=bool(visit.field("now")))
    except DpsqlError as error:
        if error.code == "DPSQL-G020":
            raise
        problem = problem_of(error)
        return _grants_page(door, visit, alert(problem), problem.status)
    note = h(
        "div",
        {"class": "note done", "role": "status", "tabindex": "-1", "autofocus": True},
        h("p", {}, "Token of ", h("strong", {}, h("bdi", {}, principal)), ", until ", when(token["expires"]), ":"),
        h("p", {}, h("code", {"class": "wraps"}, str(token["text"]))),
        h("p", {}, "It is not shown again. Hand it over where nobody else reads it."),
    )
    return _grants_page(door, visit, note)


def _ledger(door: Any, visit: Visit) -> Response:
    return _ledger_page(door, visit, None)


def _ledger_page(door: Any, visit: Visit, note: Element | None) -> Response:
    before = visit.entry("before")
    ledger = door.ledger(visit.session.token, before)
    reserved = door.own(visit.session.token, "reservations")
    rows = [
        (
            _entry(entry),
            when(entry["recorded_at"]),
            str(entry["kind"]),
            h("bdi", {}, str(entry["dataset"])),
            h("bdi", {}, str(entry.get("block") or "")),
            h("code", {}, str(entry["function"])) if entry.get("function") else None,
            "" if entry.get("epsilon") is None else number_text(float(entry["epsilon"])),
            "" if not entry.get("delta") else f"{float(entry['delta']):.3g}",
            h("div", {"class": "long"}, str(entry.get("guarantee") or "")),
            h("div", {"class": "long"}, str(entry.get("status") or "")),
            h("code", {}, str(entry["hash"])[:12]),
        )
        for entry in reversed(ledger["ledger"])
    ]
    names = ("Entry", "When", "Kind", "Dataset", "Period", "Function", "ε", "δ", "Guarantee", "Status", "Hash")
    numbers = (True, False, False, False, False, False, True, True)
    check = h(
        "form",
        {"method": "post", "action": "/ledger", "class": "card filled"},
        secret_field(visit.session),
        h("h2", {}, "Verify"),
        note,
        text_field(
            "head",
            "A hash that you kept, if you have one",
            "",
            hint="Without it, a chain that was cut at its end looks whole.",
        ),
        h("button", {"class": "main"}, "Walk the chain"),
    )
    caption = "The last entries" if before is None else f"Entries before {before}"
    entries = table_of(caption, names, rows, numbers=numbers)
    return visit.page(
        "Ledger",
        [check, _reserved(reserved), entries, turning("/ledger", ledger["ledger"], "sequence", before)],
        here="/ledger",
    )


def _entry(entry: Mapping[str, Any]) -> object:
    """Return the number of an entry; for a release, with a link to its receipt."""
    number = str(entry["sequence"])
    return h("a", {"href": f"/ledger/{number}"}, number) if _has_receipt(entry) else number


def _has_receipt(entry: Mapping[str, Any]) -> bool:
    return (
        entry["kind"] == "release"
        and entry.get("release") is not None
        and str(entry.get("status")).startswith(_RELEASED)
    )


def _reserved(rows: list[Mapping[str, Any]]) -> Element:
    """Return charges that have no answer yet."""
    cells = [
        (
            str(row["sequence"]),
            when(row["recorded_at"]),
            h("bdi", {}, str(row["principal"])),
            h("bdi", {}, str(row["dataset"])),
            h("code", {}, str(row["function"])),
            "" if row.get("epsilon") is None else number_text(float(row["epsilon"])),
        )
        for row in rows
    ]
    names = ("Entry", "When", "Principal", "Dataset", "Function", "ε")
    caption = "Reservations: charged, and not answered yet. One whose process was lost ends when the broker begins."
    return table_of(caption, names, cells, numbers=(True, False, False, False, False, True))


def _receipt(door: Any, visit: Visit) -> Response:
    number = visit.path["number"]
    if not is_entry(number):
        raise GatewayError("G018", "there is no such release of your datasets. Look at the ledger.")
    card = receipt(door.own(visit.session.token, "receipt", number=int(number)), opened=True)
    back = h(
        "p", {}, h("a", {"class": "button", "href": link_to("/ledger", before=str(int(number) + 1))}, "In the ledger")
    )
    return visit.page(f"Entry {number}", card, back, here="/ledger")


def _verified(door: Any, visit: Visit) -> Response:
    report = door.own(visit.session.token, "verify", head=visit.field("head").strip())
    ok = bool(report["ok"])
    pairs = [
        ("result", badge("whole", "ok") if ok else badge("broken", "bad")),
        ("entries intact", report["entries"]),
        ("head", h("code", {"class": "wraps"}, str(report["head"]))),
        ("first bad entry", report.get("first_bad")),
        ("problem", report.get("problem")),
    ]
    attributes = {
        "class": "note done" if ok else "alert",
        "role": "status" if ok else "alert",
        "tabindex": "-1",
        "autofocus": True,
    }
    return _ledger_page(door, visit, h("div", attributes, facts(pairs)))


def _refused(door: Any, visit: Visit) -> Response:
    rows = [
        (
            when(refusal.get("time")),
            h("bdi", {}, str(refusal.get("principal"))),
            str(refusal.get("kind")),
            h("code", {}, str(refusal.get("code"))),
            h("code", {"class": "wraps"}, str(refusal["asked"]))
            if refusal.get("asked")
            else h("code", {}, str(refusal.get("digest"))[:12]),
        )
        for refusal in door.own(visit.session.token, "refusals")
    ]
    caption = "The last refusals. What was asked is shown where the gateway keeps it; else the digest of it."
    table = table_of(caption, ("When", "Principal", "What", "Code", "Asked"), rows)
    return visit.page("Refused", table, here="/refused")


_PAGES = (
    WebPage("GET", "/", lambda _door, _visit: see("/datasets")),
    WebPage("GET", "/datasets", _budgets),
    WebPage("GET", "/lineage", _lineage),
    WebPage("GET", "/grants", _grants),
    WebPage("POST", "/grants", _grant),
    WebPage("POST", "/grants/revoke", _revoke),
    WebPage("POST", "/grants/token", _token),
    WebPage("GET", "/ledger", _ledger),
    WebPage("POST", "/ledger", _verified),
    WebPage("GET", "/ledger/{number}", _receipt),
    WebPage("GET", "/refused", _refused),
)

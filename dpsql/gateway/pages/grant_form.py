"""The owner's form of a grant: a field for everything that is said of one, as it stands or as it was typed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dpsql.contract.grant_fields import GRANT_FIELDS, ROLES, GrantField
from dpsql.gateway.pages.elements import Element, h
from dpsql.gateway.pages.parts import choice_field, secret_field, text_field, tick
from dpsql.gateway.pages.sessions import WebSession

# Who owns a dataset is said on the command line.
ROLES_HERE = ROLES[:2]
# What the form sends of a grant.
SAID = ("principal", *(one.name for one in GRANT_FIELDS))
_WHO = ("dataset", "role")


@dataclass(frozen=True)
class GrantDraft:
    """What a form begins with.

    Attributes
    ----------
    said : mapping of str to str
        Texts by the names of `SAID`.
    stands : bool
        Whether a grant of this principal on this dataset stands, whose fields these are.
    """

    said: Mapping[str, str] = field(default_factory=dict)
    stands: bool = False

    @property
    def mark(self) -> str:
        """What the form sends along, so that no grant is replaced whose fields were not shown."""
        return f"{self.said['principal']} {self.said['dataset']}" if self.stands else ""


def standing(grants: Iterable[Mapping[str, Any]], principal: str, dataset: str) -> GrantDraft:
    """Return the grant that stands as a draft; an empty one where there is none that is changed here."""
    for one in grants:
        if (one["principal"], one["dataset"]) == (principal, dataset) and one["role"] in ROLES_HERE:
            return GrantDraft({**one["said"], "principal": principal}, True)
    return GrantDraft()


def grant_form(session: WebSession, datasets: list[str], draft: GrantDraft) -> Element:
    """Return the form of a grant."""
    said = draft.said
    who = [_field(one, said, datasets) for one in GRANT_FIELDS if one.name in _WHO]

    def fields(*kinds: str) -> list[Element]:
        return [_field(one, said, datasets) for one in GRANT_FIELDS if one.kind in kinds and one.name not in _WHO]

    principal = text_field("principal", "Principal", "", value=said.get("principal"), needed=True)
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


def _field(one: GrantField, said: Mapping[str, str], datasets: list[str]) -> Element:
    value = said.get(one.name)
    if one.kind == "flag":
        return tick(one.name, one.label, ticked=value == "true")
    if one.name == "dataset":
        return choice_field(one.name, one.label, datasets, value or "")
    if one.kind == "choice":
        choices = ROLES_HERE if one.name == "role" else one.choices
        return choice_field(one.name, one.label, choices, value or "", none=one.usual)
    return text_field(one.name, one.label, one.usual, value=value)

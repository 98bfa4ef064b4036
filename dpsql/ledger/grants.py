"""Read from the ledger's rows who may ask through the gateway: principals, their grants and tokens.

A **principal** is a name for the holder of a token: an analyst, a dashboard, an agent. A **grant** lets a principal ask
about one dataset, up to a cap. A **token** is ``dpsql_`` and 43 characters, 256 random bits: the ledger stores only its
SHA-256, without salt, because nobody can guess a random string. All three are rows of the chain, so `verify` covers
them, and all rows from first to last determine the current state.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime, timedelta
from fractions import Fraction
from hashlib import sha256
from typing import Any, TypedDict

from dpsql.contract import parameters
from dpsql.contract.grant_fields import NEVER, ROLES, USUAL_DAYS, Defaults
from dpsql.contract.periods import PERIODS, block_of
from dpsql.dataclass import dataclass
from dpsql.errors import GatewayError, ParameterError
from dpsql.ledger import clock
from dpsql.ledger.budget import Budget, default_amount
from dpsql.ledger.chain import GRANT, TOKEN, Row

PREFIX = "dpsql_"
# Time that an earlier token stays valid after a new one.
OVERLAP = timedelta(hours=24)
_ID_LENGTH = 8
_is_token = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{43}}").fullmatch
_is_principal = re.compile(r"[a-z0-9][a-z0-9._@+-]{0,62}").fullmatch
_most_days = 36500


class GrantRow(TypedDict):
    """The columns of a row about a grant, a revocation or a token."""

    sequence: int
    recorded_at: str
    kind: str
    dataset: str
    principal: str
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class Grant:
    """A principal's access to one dataset.

    Attributes
    ----------
    principal, dataset : str
    role : {'analyst', 'auditor', 'owner'}
        An analyst asks; an auditor reads the ledger and asks nothing new; an owner does both.
    cap : Budget or None
        Limit of all of the principal's releases together, in addition to the dataset's own budget; None for no cap.
    per : str or None
        One of `dpsql.contract.periods.PERIODS`: the cap covers the releases charged in one such calendar period, in
        UTC, and the next period begins at zero. None for a cap on all releases.
    subject : str or None
        The principal's name at the owner's identity provider.
    default_epsilon, default_delta : Fraction or None
        The default cost of a question; they go before those of the data's owner.
    functions : tuple of str or None
        The functions that the principal may call; None for all.
    sources : tuple of str or None
        Names of the tables or views that the principal may query; None for the tables of the dataset.
    expires : str or None
        The time, in UTC, when the grant ends.
    share : bool
        Equal questions of all sharing principals get one answer, drawn and charged once.
    total : bool
        Whether the principal sees the total spending on the dataset.
    """

    principal: str
    dataset: str
    role: str = ROLES[0]
    cap: Budget | None = None
    default_epsilon: Fraction | None = None
    functions: tuple[str, ...] | None = None
    sources: tuple[str, ...] | None = None
    expires: str | None = None
    share: bool = False
    total: bool = False
    per: str | None = None
    subject: str | None = None
    default_delta: Fraction | None = None

    @classmethod
    def of(
        cls,
        principal: object,
        dataset: object,
        *,
        role: object = ROLES[0],
        epsilon: object = None,
        delta: object = None,
        rho: object = None,
        per: object = None,
        default_epsilon: object = None,
        default_delta: object = None,
        functions: Iterable[str] | None = None,
        sources: Iterable[str] | None = None,
        days: object = USUAL_DAYS,
        share: bool = False,
        total: bool = False,
        subject: object = None,
    ) -> Grant:
        """Check an owner's grant, and return it.

        Raises
        ------
        ParameterError
            The message names the legal form of the wrong argument.
        """
        if epsilon is None and rho is None and delta is not None:
            raise ParameterError("P015", "a cap must have either epsilon or rho. Give epsilon beside delta.")
        cap = None if epsilon is None and rho is None else Budget.of(epsilon=epsilon, delta=delta, rho=rho)
        if cap is None and per is not None:
            raise ParameterError("P015", "per is of a cap. Give epsilon, and delta if need be, or rho beside it.")
        return cls(
            principal=principal_named(principal),
            dataset=parameters.fold(parameters.text("dataset", dataset, hint="Give the name of a budget.")),
            role=parameters.choice("role", role, ROLES),
            cap=cap,
            default_epsilon=default_amount("epsilon", default_epsilon),
            default_delta=default_amount("delta", default_delta),
            functions=_names("functions", functions),
            sources=_names("sources", sources),
            expires=after_days(days),
            share=bool(share),
            total=bool(total),
            per=None if per is None else parameters.choice("per", per, PERIODS),
            subject=None if subject is None else parameters.text("subject", subject, hint="Give it as tokens have it."),
        )

    @property
    def facts(self) -> dict[str, object]:
        """The ledger's record of the grant."""
        record: dict[str, object] = {
            "role": self.role,
            "cap": None if self.cap is None else self.cap.to_json(),
            **{name: None if amount is None else str(amount) for name, amount in self._defaults.items()},
            "functions": None if self.functions is None else list(self.functions),
            "sources": None if self.sources is None else list(self.sources),
            "expires": self.expires,
            "share": self.share or None,
            "total": self.total or None,
            "per": self.per,
            "subject": self.subject,
        }
        return {name: value for name, value in record.items() if value is not None}

    @property
    def defaults(self) -> Defaults:
        """The amounts that its questions spend if they state none, as `Asker.defaults`."""
        amounts = (("epsilon", self.default_epsilon), ("delta", self.default_delta))
        return tuple((self.dataset, name, amount) for name, amount in amounts if amount is not None)

    @property
    def _defaults(self) -> dict[str, Fraction | None]:
        return {"default_epsilon": self.default_epsilon, "default_delta": self.default_delta}

    def texts(self, now: datetime) -> dict[str, str]:
        """Return the grant's terms as strings, by the names of `GRANT_FIELDS`, without omitted terms.

        Days are the remaining days, rounded up.
        """
        cap = self.cap or Budget()
        amounts = {"epsilon": cap.epsilon, "delta": cap.delta, "rho": cap.rho, **self._defaults}
        texts = {name: parameters.show(value) for name, value in amounts.items() if value is not None}
        texts |= {"dataset": self.dataset, "role": self.role, "per": self.per or "", "subject": self.subject or ""}
        texts |= {name: "true" for name in ("share", "total") if getattr(self, name)}
        texts |= {name: ",".join(getattr(self, name) or ()) for name in ("functions", "sources")}
        remainder = None if self.expires is None else max(_time(self.expires) - now, timedelta())
        texts["days"] = NEVER if remainder is None else str(max(1, -(-remainder // timedelta(days=1))))
        return {name: text for name, text in texts.items() if text}

    @classmethod
    def read(cls, row: GrantRow) -> Grant:
        """Return the grant of a row."""
        facts = row["facts"]
        cap = facts.get("cap")
        spends, chance = (
            None if facts.get(name) is None else Fraction(facts[name]) for name in ("default_epsilon", "default_delta")
        )
        functions, sources = (
            None if facts.get(name) is None else tuple(facts[name]) for name in ("functions", "sources")
        )
        return cls(
            row["principal"], row["dataset"], facts["role"], None if cap is None else Budget.from_json(cap),
            spends, functions, sources, facts.get("expires"),
            bool(facts.get("share")), bool(facts.get("total")), facts.get("per"), facts.get("subject"), chance,
        )  # fmt: skip

    @property
    def asks(self) -> bool:
        """Whether the principal may ask for new releases."""
        return self.role != "auditor"

    def period_at(self, time: str) -> str | None:
        """Return the period whose cap counts a charge at a ledger time; None without periods."""
        return None if self.per is None else block_of(self.per, _time(time).date())

    def stands(self, now: datetime) -> bool:
        """Whether the grant is valid: not expired."""
        return self.expires is None or now < _time(self.expires)


@dataclass(frozen=True)
class Token:
    """The stored data of a token.

    Attributes
    ----------
    id : str
        Its first characters after the prefix; messages use them to name the token.
    digest : str
    principal : str
    expires : str
        The time, in UTC, when the token ends.
    """

    id: str
    digest: str
    principal: str
    expires: str

    def stands(self, now: datetime) -> bool:
        """Whether the token is valid: not expired."""
        return now < _time(self.expires)


@dataclass(frozen=True)
class Issued:
    """A new token, whose text is shown only once.

    Attributes
    ----------
    text : str
    token : Token
    """

    text: str = field(repr=False)
    token: Token


@dataclass(frozen=True)
class Grants:
    """The current grants and tokens, from all rows.

    Attributes
    ----------
    counter : int
        Number of the last row, 0 if there is none.
    hash : str
        Hash of that row.
    grants : mapping of (str, str) to Grant
        Grants by principal and dataset.
    tokens : mapping of str to Token
        Tokens by digest, including expired tokens.
    """

    counter: int = 0
    hash: str = ""
    grants: Mapping[tuple[str, str], Grant] = field(default_factory=dict)
    tokens: Mapping[str, Token] = field(default_factory=dict)

    def principal_of(self, text: object, now: datetime) -> str:
        """Return the principal of a token's text.

        Raises
        ------
        GatewayError
            G020, with the same message for every mistake.
        """
        token = None
        if isinstance(text, str) and _is_token(text):
            token = self.tokens.get(digest_of(text))
        if token is None or not token.stands(now):
            raise no_token()
        return token.principal

    def principal_of_subject(self, subject: str | None, now: datetime) -> str:
        """Return the principal with a name at an identity provider; a valid grant gives the name.

        Raises
        ------
        GatewayError
            G020, as for `principal_of`.
        """
        standing = (grant for grant in self.grants.values() if grant.subject == subject and grant.stands(now))
        holder = None if subject is None else next(standing, None)
        if holder is None:
            raise no_token()
        return holder.principal

    def of(self, principal: str, now: datetime) -> list[Grant]:
        """Return a principal's unexpired grants, by dataset."""
        return [grant for (name, _), grant in sorted(self.grants.items()) if name == principal and grant.stands(now)]

    def grant(self, principal: str, dataset: str, now: datetime) -> Grant | None:
        """Return a principal's grant on a dataset; None without a grant."""
        grant = self.grants.get((principal, dataset))
        return grant if grant is not None and grant.stands(now) else None

    def tokens_of(self, principal: str) -> list[Token]:
        """Return a principal's tokens, oldest first, including expired tokens."""
        return [token for token in self.tokens.values() if token.principal == principal]

    @property
    def principals(self) -> list[str]:
        """The principals with a grant or a token."""
        return sorted({name for name, _ in self.grants} | {token.principal for token in self.tokens.values()})


def no_token() -> GatewayError:
    """Return the refusal of an invalid token."""
    return GatewayError("G020", "the token is none that holds. Ask the data's owner for one.")


class StandingGrants:
    """The current grants after some rows, in the order of the chain.

    Attributes
    ----------
    grants : dict
        As for `Grants`.
    """

    def __init__(self) -> None:
        self.grants: dict[tuple[str, str], Grant] = {}
        self._tokens: dict[str, list[Token]] = {}

    def take(self, row: GrantRow) -> None:
        """Apply the next row."""
        principal, facts = row["principal"], row["facts"]
        tokens = self._tokens.get(principal, [])
        if row["kind"] == GRANT:
            self.grants[principal, row["dataset"]] = Grant.read(row)
        elif row["kind"] == TOKEN:
            rotated_tokens = [replace(token, expires=min(token.expires, facts["keeps"])) for token in tokens]
            tokens = [token for token in rotated_tokens if token.expires > row["recorded_at"]]
            self._tokens[principal] = [*tokens, Token(facts["id"], facts["digest"], principal, facts["expires"])]
        elif "token" in facts:
            self._tokens[principal] = [token for token in tokens if token.id != facts["token"]]
        elif "dataset" in facts:
            self.grants.pop((principal, facts["dataset"]), None)
        else:
            self._tokens.pop(principal, None)
            self.grants = {key: grant for key, grant in self.grants.items() if key[0] != principal}

    def grants_at(self, end: tuple[int, str]) -> Grants:
        """Return the current grants; `end` is the number and hash of the last row."""
        tokens = {token.digest: token for group in self._tokens.values() for token in group}
        return Grants(*end, dict(self.grants), tokens)


def grant_row(row: Row) -> GrantRow:
    """Return the fields of one of the `GRANTS` rows."""
    return {
        "sequence": row["sequence"],
        "recorded_at": row["recorded_at"],
        "kind": row["kind"],
        "dataset": row["dataset"],
        "principal": row["principal"] or "",
        "facts": json.loads(row["arguments"]),
    }


def new_token(principal: str, days: object = USUAL_DAYS) -> Issued:
    """Return a new random token."""
    text = PREFIX + secrets.token_urlsafe(32)
    expires = after_days(days)
    if expires is None:
        raise ParameterError("P021", "a token must expire. Give the days that it holds, such as 90.")
    return Issued(text, Token(id_of(text), digest_of(text), principal, expires))


def id_of(text: str) -> str:
    """Return the characters that name a token in messages."""
    return text[len(PREFIX) : len(PREFIX) + _ID_LENGTH]


def digest_of(text: str) -> str:
    """Return the ledger's digest of a token."""
    return sha256(b"dpsql token 1 " + text.encode()).hexdigest()


def principal_named(name: object) -> str:
    """Return the name of a principal; raise if it is invalid."""
    if not isinstance(name, str) or _is_principal(name) is None:
        raise ParameterError(
            "P013",
            f"a principal must have 1 to 63 characters a-z, 0-9 and ._@+-, the first a letter or digit; got "
            f"{parameters.show(name)}. Give another name.",
        )
    return name


def principal_dataset(principal: str) -> str:
    """Return the value of the dataset column in rows about a principal alone."""
    return f"principal {principal}"


def after_days(days: object) -> str | None:
    """Return the time after a number of days, in UTC; None for never."""
    if days is None:
        return None
    number = parameters.positive_integer("days", days, hint="Give the days until it expires, such as 90.")
    return clock.time_text(clock.now() + timedelta(days=min(number, _most_days)))


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _names(argument: str, names: Iterable[str] | None) -> tuple[str, ...] | None:
    if names is None:
        return None
    texts: Sequence[str] = [parameters.text(argument, name, hint=f"Give {argument} by their names.") for name in names]
    return tuple(dict.fromkeys(texts))

"""Use a gateway from Python: `connect_remote` offers the calls of `dpsql.Context` with a token.

Answers come over HTTP as Arrow; the client uses only the standard library. It sends the token to the given address
only: it follows no redirection, and without TLS it sends the token to another machine only if you allow that.
"""

from __future__ import annotations

import ipaddress
import json
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from dpsql.contract.boundary import public, public_methods
from dpsql.contract.names import in_python, refuse_unknown
from dpsql.contract.parameters import show
from dpsql.errors import DpsqlError, GatewayError, InternalError, ParameterError, original
from dpsql.functions.estimate import ESTIMATE
from dpsql.functions.registry import FUNCTIONS, QUERY, function_of
from dpsql.gateway.encoding import ARROW, JSON, read_arrow
from dpsql.methods import ContextMethods
from dpsql.released.release import Release
from dpsql.rendering import identifier, literal_of, text

if TYPE_CHECKING:
    import pyarrow as pa

TOKEN_VARIABLE = "DPSQL_TOKEN"  # noqa: S105 - a name
_SECONDS = 600.0


class NoRedirection(HTTPRedirectHandler):
    """Follow no redirection: the token is for one address."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        """Follow nothing."""


def is_gateway(address: object) -> bool:
    """Whether a location is the address of a gateway."""
    return isinstance(address, str) and address.startswith(("https://", "http://"))


def tokens_file() -> Path:
    """Return the token file: each line has the address of a gateway, and a token."""
    base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return base / "dpsql" / "tokens"


def saved_token(url: str) -> str:
    """Return the token for a gateway: ``DPSQL_TOKEN``, or the token file's entry for its address.

    Raises
    ------
    GatewayError
        G040: there is no token, or others may read the file.
    """
    setting = os.environ.get(TOKEN_VARIABLE)
    if setting:
        return setting.strip()
    path = tokens_file()
    if path.is_file():
        if os.name != "nt" and stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise GatewayError("G040", f"others may read {path}. Run chmod 600 {path}.")
        for line in path.read_text(encoding="utf-8").splitlines():
            address, _, token = line.strip().partition(" ")
            if address.rstrip("/") == url.rstrip("/") and token:
                return token.strip()
    raise GatewayError("G040", f"there is no token for {url}. Set {TOKEN_VARIABLE}, or write a line to {path}.")


@public_methods()
class Remote(ContextMethods):
    """A gateway, queried with a token.

    It has the methods of `dpsql.Context` that are private SQL functions, with the same arguments. The gateway answers
    them, and an equal question is free.

    Parameters
    ----------
    url : str
        Such as ``'https://dpsql.example.org'``.
    token : str, optional
        The owner's token. By default the environment variable ``DPSQL_TOKEN``, or the entry of
        ``~/.config/dpsql/tokens`` for the address.
    insecure_plaintext : bool
        Send the token without TLS to another machine; others may read it.

    Raises
    ------
    GatewayError
        G040: the address is invalid, would expose the token, or there is no token.
    """

    def __init__(self, url: str, token: str | None = None, *, insecure_plaintext: bool = False) -> None:
        parts = urlsplit(url)
        if not is_gateway(url) or not parts.hostname or parts.query or parts.fragment or parts.username:
            raise GatewayError(
                "G040", f"url must be the address of a gateway, such as https://dpsql.example.org; got {show(url)}."
            )
        local = _is_local(parts.hostname)
        if parts.scheme == "http" and not local and not insecure_plaintext:
            raise GatewayError("G040", f"without TLS others may read the token. Use https://{parts.netloc}.")
        self.url = url.rstrip("/")
        self._token = saved_token(self.url) if token is None else token
        handlers = [NoRedirection(), *([ProxyHandler({})] if local else [])]
        self._opener = build_opener(*handlers)

    def __repr__(self) -> str:
        return f"Remote({self.url!r})"

    def sql(self, statement: str, **settings: object) -> pa.Table:
        """Answer one SELECT, and return its rows.

        Parameters
        ----------
        statement : str
            A SELECT over released rows: calls of the private functions, or tables of plain SQL.
        **settings
            ``epsilon``, ``delta``, ``fresh``, ``dataset`` and ``max_age`` for this statement.
        """
        return self.answer(statement, settings)[0]

    def answer(self, statement: str, settings: Mapping[str, object]) -> tuple[pa.Table, list[dict[str, Any]]]:
        """Answer one statement; return its rows, and the receipts of its releases."""
        return read_arrow(self._send("/v1/query", _question(statement, settings), ARROW))

    def datasets(self) -> list[dict[str, Any]]:
        """Return the datasets of the token."""
        return list(self._looked("/v1/datasets")["datasets"])

    def dataset(self, name: str) -> dict[str, Any]:
        """Return the public facts about a dataset."""
        return self._looked(f"/v1/datasets/{quote(name, safe='')}")

    def estimate(self, statement: str, **settings: object) -> dict[str, Any]:
        """Return the cost of a statement; read and charge nothing."""
        return _object(self._send("/v1/estimate", _question(statement, settings), JSON))

    def budget(self) -> list[dict[str, Any]]:
        """Return each dataset's spent and remaining budget."""
        return list(self._looked("/v1/budget")["budget"])

    def releases(self, before: int | None = None) -> list[dict[str, Any]]:
        """Return the receipts of your last 200 releases, oldest first; or of the releases before an entry."""
        return list(self._looked("/v1/releases" + _page(before))["releases"])

    def ledger(self, before: int | None = None) -> dict[str, Any]:
        """Return the auditor's view: 200 entries of the datasets as ``ledger``, and all ``grants`` on them.

        The entries are the last 200, oldest first; or the last 200 before an entry.
        """
        return self._looked("/v1/ledger" + _page(before))

    def release(self, number: int) -> Release:
        """Return one of your releases again, at no cost."""
        table, receipts = self._stored(number)
        return self._release_from(table, receipts[0], is_stored=True)

    def dp_synthetic_rows(self, release: int | Release, n: int | None = None, seed: object = None) -> pa.Table:
        """Return n rows of one of your synthetic tables, the same for the same public seed; costs nothing."""
        number = release.ledger_id if isinstance(release, Release) else release
        return self.answer(_call("dp_synthetic_rows", None, {"release": number, "n": n, "seed": seed}), {})[0]

    def health(self) -> dict[str, Any]:
        """Return whether the gateway works."""
        return self._looked("/health")

    def stored(self, number: int) -> tuple[pa.Table, list[dict[str, Any]]]:
        """Return the rows and the receipt of one of your releases, at no cost."""
        return self._stored(number)

    def _stored(self, number: int) -> tuple[pa.Table, list[dict[str, Any]]]:
        return read_arrow(self._send(f"/v1/releases/{int(number)}", None, ARROW))

    # The context's methods that the methods of the SQL functions use.

    def _release_of(self, function: str, source: object, arguments: dict[str, object]) -> Release:
        if not isinstance(source, str):
            raise ParameterError(
                "P013", f"{function} takes the name of a dataset here; got {show(type(source).__name__)}."
            )
        refuse_unknown(arguments, FUNCTIONS[function].plan.arguments, function)
        table, receipts = self.answer(_call(function, source, arguments), {})
        return self._release_from(table, _of(receipts, function))

    def _query(self, sql: object, arguments: dict[str, object]) -> Release | pa.Table:
        refuse_unknown(arguments, function_of(QUERY).plan.arguments, QUERY)
        if not isinstance(sql, str):
            raise ParameterError("P013", f"query takes a text; got {show(type(sql).__name__)}.")
        table, receipts = self.answer(_call(QUERY, sql, arguments), {})
        return self._release_from(table, receipts[0]) if receipts else table

    def _estimate(self, function: str, arguments: dict[str, object]) -> pa.Table:
        refuse_unknown(arguments, ESTIMATE, "dp_estimate")
        return self.answer(_call("dp_estimate", function, arguments), {})[0]

    def _curve(self, view: str, release: object, dataset: object, *, by_name: bool = False) -> pa.Table:
        key = release.ledger_id if isinstance(release, Release) else release
        return self.answer(_call(view, None, {"release": key, "dataset": dataset}), {})[0]

    def _declare(self, function: str, *_: object) -> str:
        raise GatewayError("G040", f"{function} is the owner's, who calls it in the database itself.")

    def _unplaced(self, _: object) -> pa.Table:
        raise GatewayError("G040", "dp_unplaced is the owner's, who calls it in the database itself.")

    def _release_from(self, table: pa.Table, receipt: dict[str, Any], *, is_stored: bool = False) -> Release:
        """Return a release from its rows and its receipt; request data missing from the receipt when needed."""
        number = int(receipt["entry"])

        def reading(name: str) -> Callable[[], Any]:
            def read() -> Any:
                record = receipt if name in receipt else self._stored(number)[1][0]
                return record[name]

            return read

        at, replayed = str(receipt.get("recorded_at", "")), is_stored or not receipt.get("charged", True)
        return Release(
            value=table,
            function=receipt["function"],
            dataset=receipt["dataset"],
            guarantee=receipt["guarantee"],
            event=receipt.get("event", {}),
            ledger_id=number,
            engine=receipt.get("engine"),
            replayed=replayed,
            replay=f"replay of entry {number} of {at}" if replayed else "",
            stored=reading("result"),
            said=reading("noise"),
            bound=reading("policy"),
            as_of=at,
        )

    def _looked(self, path: str) -> dict[str, Any]:
        return _object(self._send(path, None, JSON))

    def _send(self, path: str, body: bytes | None, accept: str) -> bytes:
        """Send a request, and return the body of the answer; raise the gateway's error."""
        headers = {"Authorization": f"Bearer {self._token}", "Accept": accept, "Content-Type": JSON}
        request = Request(self.url + path, body, headers)  # noqa: S310 - the scheme was judged
        try:
            with self._opener.open(request, timeout=_SECONDS) as answer:
                content: bytes = answer.read()
                return content
        except HTTPError as error:
            with error:
                raise _refusal(error.code, error.read(1 << 20)) from None
        except (URLError, HTTPException, OSError) as error:
            reason = error.reason if isinstance(error, URLError) else error
            raise GatewayError("G041", f"the gateway {self.url} cannot be reached: {reason}. Try again.") from None


@public
def connect_remote(url: str, token: str | None = None, *, insecure_plaintext: bool = False) -> Remote:
    """Return a gateway to query; see `Remote`."""
    return Remote(url, token, insecure_plaintext=insecure_plaintext)


def _page(before: int | None) -> str:
    return "" if before is None else f"?before={int(before)}"


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _question(statement: str, settings: Mapping[str, object]) -> bytes:
    """Return the JSON of a query, with numbers in Python's spelling."""
    spelled = {name: value for name, value in settings.items() if value is not None}
    return json.dumps({"sql": statement, **spelled}, default=_spelled).encode()


def _spelled(value: object) -> str | float:
    """Return a number without a JSON form: a Decimal by its digits, and the nearest float for any other."""
    return f"{value:f}" if isinstance(value, Decimal) and value.is_finite() else float(value)  # type: ignore[arg-type]


def _object(data: bytes) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(data)
    return record


def _of(receipts: list[dict[str, Any]], function: str) -> dict[str, Any]:
    """Return the receipt of a call, the only receipt of its statement."""
    if len(receipts) != 1:
        raise InternalError("I000", f"the gateway sent {len(receipts)} receipts for one {function}. Ask again.")
    return receipts[0]


def _call(function: str, source: str | None, arguments: Mapping[str, object]) -> str:
    """Return a statement that calls a function with values."""
    parts = [text(source)] if source is not None else []
    for name, value in arguments.items():
        value = {"release": value.ledger_id} if isinstance(value, Release) else value
        if value is None:
            continue
        plain: object = list(value) if isinstance(value, Iterable) and not isinstance(value, str | Mapping) else value
        literal = literal_of(plain)
        if literal is None:
            raise ParameterError("P090", f"{name} cannot be a value of SQL; got {show(value)}. Give numbers and texts.")
        parts.append(f"{identifier(name)} := {literal}")
    return f"FROM {function}({', '.join(parts)})"


def _refusal(status: int, body: bytes) -> DpsqlError:
    """Return the error in an answer."""
    try:
        problem = json.loads(body)
        code, title = str(problem["code"]), str(problem["title"])
    except (ValueError, KeyError, TypeError):
        return GatewayError("G041", f"what answered is no gateway, or not whole: status {status}. Check the address.")
    error = original(ValueError(f"[DPSQL-{code}] {in_python(title)}"))
    if error is None:
        return GatewayError("G041", f"what answered is no gateway: status {status}. Check the address.")
    error.position, error.hint = problem.get("position"), problem.get("hint")
    if isinstance(error.hint, str):
        error.saying(f"{error.message} {error.hint if error.hint.endswith('?') else f'Such as: {error.hint}'}")
    return error

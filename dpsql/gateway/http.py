"""The gateway over HTTP: one application over a door.

``openapi.json`` here describes the operations; `OPERATIONS` answers them.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Protocol

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dpsql.dataclass import dataclass
from dpsql.errors import GatewayError
from dpsql.gateway.addresses import HELD
from dpsql.gateway.asked import read_question, read_token
from dpsql.gateway.encoding import ARROW, JSON, arrow_bytes, json_bytes, table_document
from dpsql.gateway.problems import MEDIA_TYPE, problem_of

if TYPE_CHECKING:
    import pyarrow as pa
    from starlette.routing import BaseRoute
    from starlette.types import Lifespan


class RowsAndReceipts(Protocol):
    """A door's answer: rows, and a receipt for each release."""

    @property
    def table(self) -> pa.Table:
        """The rows."""

    @property
    def receipts(self) -> list[dict[str, Any]]:
        """Their receipts."""

    @property
    def settings(self) -> Mapping[str, object]:
        """Session settings of a SET."""


class Answering(Protocol):
    """Door for every transport; `dpsql.gateway.door.Door` and `dpsql.gateway.afar.DoorAfar` implement it."""

    def answer(self, token: str, sql: str, settings: Mapping[str, str]) -> RowsAndReceipts:
        """Answer a statement."""

    def datasets(self, token: str) -> list[dict[str, Any]]:
        """Return the datasets."""

    def describe(self, token: str, name: str) -> dict[str, Any]:
        """Return a dataset's public facts."""

    def estimate(self, token: str, sql: str, settings: Mapping[str, str]) -> dict[str, Any]:
        """Return the cost of a statement."""

    def budget(self, token: str) -> list[dict[str, Any]]:
        """Return the budgets."""

    def releases(self, token: str, before: int | None = None) -> list[dict[str, Any]]:
        """Return at most 200 own releases, before an entry if given."""

    def ledger(self, token: str, before: int | None = None) -> dict[str, Any]:
        """Return ledger entries and grants to an auditor; at most 200 entries, as in `releases`."""

    def release(self, token: str, number: int) -> RowsAndReceipts:
        """Return one own release."""

    def health(self) -> dict[str, Any]:
        """Return the gateway's health."""


@dataclass(frozen=True)
class Operation:
    """One operation of the interface.

    Attributes
    ----------
    method, path : str
    answer : callable
        Takes the door and the request, with its body, and returns the response; it runs on a thread.
    pages : bool
        Whether the path may end in ``?before=NUMBER``.
    """

    method: str
    path: str
    answer: Callable[[Answering, Request, bytes], Response]
    pages: bool = False


def answered(door: Answering, token: str, sql: str, settings: Mapping[str, str]) -> RowsAndReceipts:
    """Return the answer to a statement without a session.

    Raises
    ------
    GatewayError
        G021: the statement is a SET.
    """
    answer = door.answer(token, sql, settings)
    if answer.settings:
        raise GatewayError("G021", "there is no session to SET something in. Send it beside the statement: epsilon.")
    return answer


def _as_json(value: object) -> Response:
    return Response(json_bytes(value), media_type=JSON)


def _as_asked(answer: RowsAndReceipts, request: Request) -> Response:
    """Return an answer as Arrow if the request accepts Arrow, otherwise as JSON."""
    if ARROW in request.headers.get("accept", ""):
        return Response(arrow_bytes(answer.table, answer.receipts), media_type=ARROW)
    return _as_json(table_document(answer.table, answer.receipts))


def _token(request: Request) -> str:
    return read_token(request.scope["headers"])


def _query(door: Answering, request: Request, body: bytes) -> Response:
    token = _token(request)
    sql, settings = read_question(body)
    key = request.headers.get("idempotency-key")
    if key is not None:
        settings["idempotency_key"] = key
    return _as_asked(answered(door, token, sql, settings), request)


def _estimate(door: Answering, request: Request, body: bytes) -> Response:
    token = _token(request)
    sql, settings = read_question(body)
    return _as_json(door.estimate(token, sql, settings))


def _release(door: Answering, request: Request, _: bytes) -> Response:
    token, number = _token(request), request.path_params["number"]
    if not (number.isascii() and number.isdigit() and len(number) < 16):
        raise GatewayError("G021", "a release is asked for by its number. GET /v1/releases lists them.")
    return _as_asked(door.release(token, int(number)), request)


def _releases(door: Answering, request: Request, _: bytes) -> Response:
    return _as_json({"releases": door.releases(_token(request), _before(request))})


def _ledger(door: Answering, request: Request, _: bytes) -> Response:
    return _as_json(door.ledger(_token(request), _before(request)))


def _before(request: Request) -> int | None:
    match = _is_page(request.scope.get("query_string", b""))
    return None if match is None else int(match[1])


def _health(door: Answering, _request: Request, _body: bytes) -> Response:
    states = door.health()
    return Response(json_bytes(states), 200 if set(states.values()) == {"ok"} else 503, media_type=JSON)


def _openapi(_door: Answering, _request: Request, _body: bytes) -> Response:
    return Response((files("dpsql.gateway") / "openapi.json").read_bytes(), media_type=JSON)


OPERATIONS = (
    Operation("POST", "/v1/query", _query),
    Operation("POST", "/v1/estimate", _estimate),
    Operation("GET", "/v1/datasets", lambda door, request, _: _as_json({"datasets": door.datasets(_token(request))})),
    Operation(
        "GET",
        "/v1/datasets/{name}",
        lambda door, request, _: _as_json(door.describe(_token(request), request.path_params["name"])),
    ),
    Operation("GET", "/v1/budget", lambda door, request, _: _as_json({"budget": door.budget(_token(request))})),
    Operation("GET", "/v1/releases", _releases, pages=True),
    Operation("GET", "/v1/releases/{number}", _release),
    Operation("GET", "/v1/ledger", _ledger, pages=True),
    Operation("GET", "/v1/openapi.json", _openapi),
    Operation("GET", "/health", _health),
)
_OPEN = ("/v1/openapi.json", "/health")
_is_page = re.compile(rb"before=([0-9]{1,15})").fullmatch
# Questions at once; others wait. Free operations have their own threads, so they do not wait for releases.
_ASKING, _LOOKING = 32, 16
_SPENDING = ("/v1/query",)


def application(
    door: Answering, *, more: Sequence[BaseRoute] = (), lifespan: Lifespan[Starlette] | None = None
) -> Starlette:
    """Return the application over a door.

    Parameters
    ----------
    door : Answering
    more : sequence of routes
        Other transports over HTTP, such as MCP.
    lifespan : callable, optional
        Lifespan of these transports.
    """
    limits = {True: CapacityLimiter(_ASKING), False: CapacityLimiter(_LOOKING)}

    def endpoint(operation: Operation) -> Callable[[Request], Awaitable[Response]]:
        limit = limits[operation.path in _SPENDING]

        async def respond(request: Request) -> Response:
            try:
                _check(operation, request)
                body = await request.body()
                response = await to_thread.run_sync(operation.answer, door, request, body, limiter=limit)
            except Exception as error:
                return _refused(error)
            request.scope[HELD] = operation.path not in _OPEN
            return response

        return respond

    # A name may hold a slash.
    paths = {operation: operation.path.replace("{name}", "{name:path}") for operation in OPERATIONS}
    routes = [Route(path, endpoint(operation), methods=[operation.method]) for operation, path in paths.items()]
    return Starlette(routes=[*routes, *more], lifespan=lifespan, exception_handlers={HTTPException: _no_operation})


def _check(operation: Operation, request: Request) -> None:
    """Refuse query strings, which might hold a token, and bodies of other types."""
    query = request.scope.get("query_string")
    if query and not (operation.pages and _is_page(query)):
        page = "but ?before= and the number of an entry" if operation.pages else "here"
        raise GatewayError("G021", f"nothing may stand behind a question mark {page}. Send tokens in the header alone.")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if operation.method == "POST" and kind != JSON:
        raise GatewayError("G021", f"the body is of another kind. Send Content-Type: {JSON}.")


def _refused(error: Exception, status: int | None = None) -> Response:
    problem = problem_of(error, status=status)
    headers = dict(problem.headers)
    return Response(json_bytes(problem.document), problem.status, headers, MEDIA_TYPE)


async def _no_operation(_: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    refusal = GatewayError("G031", "there is no such operation. GET /v1/openapi.json says what there is.")
    response = _refused(refusal, status)
    allowed = getattr(error, "headers", None) or {}
    response.headers.update(allowed)
    return response

"""Handle one visit of a page: identify the session, check the request, and answer failures.

Pages need a session. A change is a POST from a page of this site: the browser says so in ``Sec-Fetch-Site`` or
``Origin``, and the form holds the session's secret. An invalid token ends the session.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from dpsql.dataclass import dataclass
from dpsql.errors import DpsqlError, GatewayError
from dpsql.gateway.http import Answering
from dpsql.gateway.listening import is_local
from dpsql.gateway.pages.elements import Element, document, h
from dpsql.gateway.pages.parts import Site, alert, framed, heading
from dpsql.gateway.pages.sessions import SECONDS, Logins, WebSession
from dpsql.gateway.problems import problem_of

_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    # With no-referrer a browser sends a form's Origin as null.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_FILES = {"gateway.css": "text/css", "gateway.js": "text/javascript", "gateway.svg": "image/svg+xml"}
_FORM = "application/x-www-form-urlencoded"
_MOST_FIELDS, _MOST_TOKEN = 2000, 8192
# Concurrent visits: spending, other.
_ASKING, _LOOKING = 32, 16


class Entrance(Answering, Protocol):
    """A door with principals."""

    def principal(self, token: str) -> str:
        """Return a token's principal."""


@dataclass(frozen=True)
class Visit:
    """A request of a logged-in user.

    Attributes
    ----------
    site : Site
    session : WebSession
    fields : mapping of str to list of str
        From the form or the address.
    path : mapping of str to str
        Parameters of the address.
    sessions : Logins
    """

    site: Site
    session: WebSession
    fields: Mapping[str, list[str]]
    path: Mapping[str, str]
    sessions: Logins

    def field(self, name: str) -> str:
        """Return a field's value; empty if missing."""
        return self.fields.get(name, [""])[0]

    def entry(self, name: str) -> int | None:
        """Return the entry number in a field; None if the field has none."""
        text = self.field(name)
        return int(text) if is_entry(text) else None

    def page(
        self, title: str, *content: object, here: str = "", top: Element | None = None, status: int = 200
    ) -> Response:
        """Return a page of this site, with its title as the heading, or with `top`.

        `here` is the page's navigation entry.
        """
        header = heading(title) if top is None else top
        return page_response(framed(self.site, title, self.session, here, header, *content), status)


@dataclass(frozen=True)
class WebPage:
    """One address of a site.

    Attributes
    ----------
    method, path : str
    answer : callable
        Takes the door and the visit, and returns the response; it runs on a thread.
    spends : bool
        Whether it may wait for a release.
    """

    method: str
    path: str
    answer: Callable[[Any, Visit], Response]
    spends: bool = False


def is_entry(text: str) -> bool:
    """Return whether a text is an entry's number."""
    return text.isascii() and text.isdigit() and len(text) < 16


def page_response(root: Element, status: int = 200) -> Response:
    """Return a page as a response."""
    return Response(document(root), status, media_type="text/html; charset=utf-8")


def see(address: str) -> Response:
    """Return a redirect to another page."""
    return RedirectResponse(address, 303)


def routes_of(
    door: Entrance,
    site: Site,
    pages: Sequence[WebPage],
    *,
    admits: Callable[[Any, str], None] | None = None,
    sessions: Logins | None = None,
) -> list[BaseRoute]:
    """Return the routes of a site.

    Parameters
    ----------
    door : Entrance
    site : Site
    pages : sequence of WebPage
    admits : callable, optional
        Takes the door and a token; raises if the holder may not enter this site.
    sessions : Logins, optional
    """
    logins = Logins() if sessions is None else sessions
    limits = {True: CapacityLimiter(_ASKING), False: CapacityLimiter(_LOOKING)}

    def endpoint(work: Callable[[Request, bytes], Response], spends: bool) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            try:
                body = await request.body()
                response = await to_thread.run_sync(work, request, body, limiter=limits[spends])
            except Exception as error:
                response = refused(site, None, error)
            response.headers.update(_HEADERS)
            return response

        return respond

    def visited(page: WebPage) -> Callable[[Request, bytes], Response]:
        def work(request: Request, body: bytes) -> Response:
            cookie = request.cookies.get(_cookie_name(request, site))
            session = logins.find(cookie)
            if session is None:
                return see("/login")
            try:
                fields = _form(request, body) if page.method == "POST" else parse_qs(request.url.query, True)
                if page.method == "POST":
                    session.check(next(iter(fields.get("csrf", ())), None))
                door.principal(session.token)
                return page.answer(door, Visit(site, session, fields, request.path_params, logins))
            except GatewayError as error:
                if error.code != "DPSQL-G020":
                    return refused(site, session, error)
                logins.end(cookie)
                return _without_cookie(see("/login?ended"), request, site)
            except Exception as error:
                return refused(site, session, error)

        return work

    def login_page(request: Request, _: bytes) -> Response:
        if logins.find(request.cookies.get(_cookie_name(request, site))) is not None:
            return see("/")
        ended = request.url.query == "ended"
        note = h("p", {"class": "note", "role": "status"}, "Your token does not hold any more.") if ended else None
        return page_response(_login(site, note))

    def login(request: Request, body: bytes) -> Response:
        address = request.client.host if request.client is not None else ""
        try:
            fields = _form(request, body)
            logins.check_address(address)
            token = fields.get("token", [""])[0].strip()
            good = 0 < len(token) <= _MOST_TOKEN and all("!" <= character <= "~" for character in token)
            if not good:
                raise GatewayError("G020", "the token is none that holds. Ask the data's owner for one.")
            principal = door.principal(token)
            if admits is not None:
                admits(door, token)
        except DpsqlError as error:
            if error.code == "DPSQL-G020":
                logins.count_failure(address)
            problem = problem_of(error)
            return page_response(_login(site, alert(problem)), problem.status)
        logins.end(request.cookies.get(_cookie_name(request, site)))
        response = see("/")
        name = _cookie_name(request, site)
        response.set_cookie(
            name, logins.begin(token, principal), max_age=int(SECONDS), path="/", secure=name.startswith("__Host-"),
            httponly=True, samesite="strict",
        )  # fmt: skip
        return response

    def logout(request: Request, body: bytes) -> Response:
        cookie = request.cookies.get(_cookie_name(request, site))
        session = logins.find(cookie)
        if session is not None:
            session.check(_form(request, body).get("csrf", [""])[0])
            logins.end(cookie)
        return _without_cookie(see("/login"), request, site)

    def static(request: Request, _: bytes) -> Response:
        name = request.url.path.removeprefix("/")
        return Response((files("dpsql.gateway.pages") / name).read_bytes(), media_type=_FILES[name])

    return [
        *(Route(f"/{name}", endpoint(static, False), methods=["GET"]) for name in _FILES),
        Route("/login", endpoint(login_page, False), methods=["GET"]),
        Route("/login", endpoint(login, False), methods=["POST"]),
        Route("/logout", endpoint(logout, False), methods=["POST"]),
        *(Route(page.path, endpoint(visited(page), page.spends), methods=[page.method]) for page in pages),
    ]


def refused(site: Site, session: WebSession | None, error: Exception) -> Response:
    """Return an error's page: code and text, or the number of the error in the owner's log."""
    problem = problem_of(error)
    page = framed(site, "Refused", session, "", heading("This was refused"), alert(problem))
    return page_response(page, problem.status)


def _login(site: Site, note: Element | None) -> Element:
    form = h(
        "form",
        {"method": "post", "action": "/login", "class": "card login"},
        h("label", {"for": "token"}, "Token"),
        h(
            "input",
            {
                "id": "token", "name": "token", "type": "password", "autocomplete": "current-password",
                "required": True, "autofocus": note is None, "spellcheck": "false", "aria-describedby": "token-hint",
            },
        ),
        h("p", {"class": "hint", "id": "token-hint"}, "It begins with dpsql_. Whoever owns the data gives it out."),
        h("button", {"class": "main"}, "Log in"),
    )  # fmt: skip
    words = "Every answer here is a private release: nobody sees a row."
    return framed(site, "Log in", None, "/login", heading("Log in"), h("p", {"class": "lead"}, words), note, form)


def _form(request: Request, body: bytes) -> dict[str, list[str]]:
    """Return the fields of a form that a page of this site sent.

    Raises
    ------
    GatewayError
        G022: the origin is another site or unknown. G021: the body is no form.
    """
    headers = request.headers
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None:
        own = site == "same-origin"
    else:
        own = origin is not None and urlsplit(origin).netloc.lower() == headers.get("host", "").lower() != ""
    if not own:
        raise GatewayError("G022", "the form was sent from another site. Open the page, and send it from there.")
    if headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise GatewayError("G021", "the body is no form. Send it from the page.")
    try:
        return parse_qs(
            body.decode("ascii"), True, strict_parsing=bool(body), errors="strict", max_num_fields=_MOST_FIELDS
        )
    except ValueError:
        raise GatewayError("G021", "the body is no form. Send it from the page.") from None


def _cookie_name(request: Request, site: Site) -> str:
    """Return the name of a site's cookie.

    The prefix makes a browser refuse the cookie without TLS, and from any other host. Only localhost has no TLS.
    """
    if request.url.scheme == "http" and is_local(request.url.hostname or ""):
        return site.key
    return f"__Host-{site.key}"


def _without_cookie(response: Response, request: Request, site: Site) -> Response:
    name = _cookie_name(request, site)
    response.delete_cookie(name, path="/", secure=name.startswith("__Host-"), httponly=True, samesite="strict")
    return response

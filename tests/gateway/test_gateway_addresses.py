"""Failed tokens by address, proxies that say who asks, and requests that another site's page makes a browser send."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from dpsql.errors import GatewayError
from dpsql.gateway.addresses import Addresses, refuse_other_sites
from dpsql.gateway.listening import Listening
from support.cases import cases
from support.fake_door import TOKEN, FakeDoor, listening


def bearer(token: str) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", f"Bearer {token}".encode())]


def ask(url: str, token: str = TOKEN, body: object = None, **headers: str) -> tuple[int, str]:
    sent = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, sent), timeout=20) as answer:
            return answer.status, ""
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())["code"]


def test_tokens_that_fail_are_limited_by_address_and_known_ones_are_not() -> None:
    now = 0.0
    addresses = Addresses(clock=lambda: now)
    addresses.remember(bearer("good"))
    for number in range(20):
        addresses.refuse("10.0.0.1", bearer(str(number)))
        addresses.count_failure("10.0.0.1", bearer(str(number)))
    with pytest.raises(GatewayError, match="G030"):
        addresses.refuse("10.0.0.1", bearer("another"))
    addresses.refuse("10.0.0.1", bearer("good"))  # it held
    addresses.refuse("10.0.0.1", [])  # no token, nothing to try
    addresses.refuse("10.0.0.2", bearer("another"))
    now = 3.1  # 20 in a minute are one in three seconds
    addresses.refuse("10.0.0.1", bearer("another"))
    addresses.count_failure("10.0.0.1", bearer("good"))  # revoked
    with pytest.raises(GatewayError, match="G030"):
        addresses.refuse("10.0.0.1", bearer("good"))
    now = 4000.0
    addresses.refuse("10.0.0.1", bearer("good"))


def test_a_flood_of_addresses_and_tokens_does_not_grow() -> None:
    now = 0.0
    addresses = Addresses(clock=lambda: now)
    for number in range(30_000):
        now += 1.0
        addresses.count_failure(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", bearer("x"))
        addresses.remember(bearer(str(number)))
    assert len(addresses._rates._balances) <= 10_000
    assert len(addresses._tokens) <= 4096


@cases(
    ("peer", "told", "found"),
    [
        ("10.0.0.7", "192.0.2.1", "192.0.2.1"),
        ("::ffff:10.0.0.7", "192.0.2.1", "192.0.2.1"),
        ("10.0.0.7", "203.0.113.9, 192.0.2.1", "192.0.2.1"),  # what the asker wrote himself stands first
        ("10.0.0.7", "192.0.2.1, 10.0.0.8", "192.0.2.1"),  # two proxies
        ("10.0.0.7", "192.0.2.1, unknown", "10.0.0.7"),
        ("10.0.0.7", "", "10.0.0.7"),
        ("10.0.0.9", "192.0.2.1", "10.0.0.9"),  # no proxy of ours
        ("127.0.0.1", "192.0.2.1", "127.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "", "2001:db8:1:2::/64"),
        ("10.0.0.7", "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("", "192.0.2.1", ""),
    ],
)
def test_whose_a_request_is(peer: str, told: str, found: str) -> None:
    addresses = Addresses(["10.0.0.7", "10.0.0.8"])
    assert addresses.of(peer, [(b"X-Forwarded-For", told.encode())]) == found


def test_a_header_of_a_proxy_may_come_in_parts() -> None:
    parts = [(b"x-forwarded-for", b"192.0.2.1"), (b"x-forwarded-for", b"192.0.2.2")]
    assert Addresses(["10.0.0.7"]).of("10.0.0.7", parts) == "192.0.2.2"


@cases(
    ("headers", "good"),
    [
        ({}, True),
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "none"}, True),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": "cross-site", "origin": "https://dpsql.example"}, False),
        ({"origin": "https://dpsql.example"}, True),
        ({"origin": "https://DPSQL.example"}, True),
        ({"origin": "https://public.example"}, True),
        ({"origin": "https://dpsql.example:444"}, False),
        ({"origin": "https://dpsql.example.evil"}, False),
        ({"origin": "https://evil@dpsql.example"}, False),
        ({"origin": "null"}, False),
        ({"origin": ""}, False),
    ],
)
def test_pages_of_other_sites_change_nothing(headers: dict[str, str], good: bool) -> None:
    sent = [(b"host", b"dpsql.example"), *((name.encode(), value.encode()) for name, value in headers.items())]
    refuse_other_sites("GET", sent)
    if good:
        refuse_other_sites("POST", sent, ["public.example"])
    else:
        with pytest.raises(GatewayError, match="G022"):
            refuse_other_sites("POST", sent, ["public.example"])


def test_both_hold_over_http() -> None:
    door, question = FakeDoor(), {"sql": "SELECT a"}
    with listening(door, factor=1, trusted_proxies=["127.0.0.1"]) as url:
        assert ask(f"{url}/v1/query", body=question, Sec_Fetch_Site="cross-site") == (403, "G022")
        assert ask(f"{url}/v1/query", body=question, Origin="https://evil.example") == (403, "G022")
        assert door.asked == []
        assert ask(f"{url}/v1/query", body=question, Origin=url) == (200, "")  # the token holds
        found: list[Any] = [ask(f"{url}/v1/budget", "wrong", X_Forwarded_For="192.0.2.1")[1] for _ in range(25)]
        assert found[:20] == ["G020"] * 20
        assert "G030" in found[20:]
        assert ask(f"{url}/v1/budget", X_Forwarded_For="192.0.2.1") == (200, "")
        assert ask(f"{url}/v1/budget", "wrong", X_Forwarded_For="192.0.2.2") == (401, "G020")
        for path in ("/health", "/v1/openapi.json"):  # they need no token, so that they answer says nothing of one
            ask(f"{url}{path}", "guess", X_Forwarded_For="192.0.2.3")
        assert [ask(f"{url}/v1/budget", "guess", X_Forwarded_For="192.0.2.1")[1] for _ in range(2)] == ["G030"] * 2


def test_a_proxy_has_an_address() -> None:
    with pytest.raises(GatewayError, match="G023"):
        Listening(trusted_proxies=["proxy.example"]).check()

"""Tokens of an identity provider: what is taken, and every forged one that we know of."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.server
import json
import os
import threading
import time
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jwt
import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

import dpsql
from dpsql.cli.commands import main
from dpsql.errors import DpsqlError, GatewayError, ParameterError
from dpsql.gateway import keys
from dpsql.gateway.audit import Audit
from dpsql.gateway.desk import Desk
from dpsql.gateway.keys import MOST_BYTES, Login, Provider, fetch, keys_of
from dpsql.gateway.limits import Rates
from dpsql.gateway.listening import FrontSettings, Listening
from dpsql.gateway.sandbox import available
from dpsql.gateway.serving import ServeSettings
from dpsql.gateway.serving import Serving as Gateway
from dpsql.ledger.grants import Grant
from dpsql.ledger.ledger import Ledger
from support.gateway_broker import made

ISSUER, AUDIENCE = "https://login.example.org/", "dpsql"
KEYS: dict[str, Any] = {
    "r": rsa.generate_private_key(65537, 2048),
    "e": ec.generate_private_key(ec.SECP256R1()),
    "o": ed25519.Ed25519PrivateKey.generate(),
    "weak": rsa.generate_private_key(65537, 1024),
    "wide": ec.generate_private_key(ec.SECP384R1()),
    "stranger": rsa.generate_private_key(65537, 2048),
}
ALGORITHM = {"r": "RS256", "e": "ES256", "o": "EdDSA", "weak": "RS256", "wide": "ES384", "stranger": "RS256"}
WRITERS: dict[str, Any] = {
    "RS256": jwt.algorithms.RSAAlgorithm, "ES256": jwt.algorithms.ECAlgorithm, "ES384": jwt.algorithms.ECAlgorithm,
    "EdDSA": jwt.algorithms.OKPAlgorithm,
}  # fmt: skip


def public(name: str, **more: object) -> dict[str, Any]:
    written = WRITERS[ALGORITHM[name]].to_jwk(KEYS[name].public_key(), as_dict=True)
    return {**written, "kid": name, **more}


def jwks(*listed: dict[str, Any]) -> bytes:
    return json.dumps({"keys": listed}).encode()


def claims(**more: object) -> dict[str, Any]:
    found = {"iss": ISSUER, "aud": AUDIENCE, "sub": "idp|ana", "exp": time.time() + 600, **more}
    return {name: value for name, value in found.items() if value is not None}


def signed(name: str = "r", *, header: dict[str, Any] | None = None, **more: object) -> str:
    with warnings.catch_warnings():  # that a key is weak
        warnings.simplefilter("ignore")
        return jwt.encode(claims(**more), KEYS[name], ALGORITHM[name], {"kid": name, **(header or {})})


def part(value: object) -> str:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def pem(name: str) -> bytes:
    found: bytes = KEYS[name].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return found


def by_hand(header: dict[str, Any], secret: bytes | None = None, **more: object) -> str:
    start = f"{part(header)}.{part(claims(**more))}"
    end = b"" if secret is None else hmac.new(secret, start.encode(), hashlib.sha256).digest()
    return f"{start}.{part(end)}"


@pytest.fixture(scope="module")
def login(tmp_path_factory: pytest.TempPathFactory) -> Login:
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    secret = {"kty": "oct", "k": part(b"x" * 32), "kid": "secret", "alg": "HS256"}
    path.write_bytes(jwks(public("r"), public("e"), public("o"), public("weak"), public("wide"), secret))
    return Login(Provider(ISSUER, AUDIENCE, str(path)))


@pytest.mark.parametrize("name", ["r", "e", "o"])
def test_a_token_of_the_provider_has_a_subject(login: Login, name: str) -> None:
    assert login.subject(signed(name)) == "idp|ana"
    assert login.subject(signed(name, aud=["other", AUDIENCE], header={"typ": "at+jwt"})) == "idp|ana"
    assert login.subject(signed(name, exp=time.time() - 10)) == "idp|ana"  # clocks differ a little


OWN = public("stranger")


def forged() -> dict[str, object]:
    """Every forged token that we know of, by what is wrong with it."""
    good = signed()
    head, body, sign = good.split(".")
    return {
        "none": by_hand({"alg": "none", "kid": "r"}),
        "None": by_hand({"alg": "None", "kid": "r"}),
        "none without signature": f"{part({'alg': 'none', 'kid': 'r'})}.{body}.",
        "HS256 with the public key": by_hand({"alg": "HS256", "kid": "r"}, pem("r")),
        "HS256 with the public key of a curve": by_hand({"alg": "HS256", "kid": "e"}, pem("e")),
        "HS256 with an empty secret": by_hand({"alg": "HS256", "kid": "r"}, b""),
        "HS256 with a secret of the file": by_hand({"alg": "HS256", "kid": "secret"}, b"x" * 32),
        "no algorithm": by_hand({"kid": "r"}, b""),
        "algorithm of another key": jwt.encode(claims(), KEYS["e"], "ES256", {"kid": "r"}),
        "RS512": jwt.encode(claims(), KEYS["r"], "RS512", {"kid": "r"}),
        "PS256": jwt.encode(claims(), KEYS["r"], "PS256", {"kid": "r"}),
        "ES384": signed("wide"),
        "weak key": signed("weak"),
        "stranger's key": jwt.encode(claims(), KEYS["stranger"], "RS256", {"kid": "r"}),
        "unknown kid": signed("stranger"),
        "no kid": jwt.encode(claims(), KEYS["r"], "RS256"),
        "kid of a path": signed(header={"kid": "../../../../dev/null"}),
        "kid of an address": signed(header={"kid": "https://evil.example/keys"}),
        "kid of SQL": signed(header={"kid": "r' OR '1'='1"}),
        "jku": signed(header={"jku": "https://evil.example/keys"}),
        "jku of a stranger": jwt.encode(
            claims(), KEYS["stranger"], "RS256", {"kid": "r", "jku": "https://evil.example"}
        ),
        "x5u": signed(header={"x5u": "https://evil.example/cert"}),
        "own jwk": jwt.encode(claims(), KEYS["stranger"], "RS256", {"kid": "r", "jwk": OWN}),
        "jwk beside a good key": signed(header={"jwk": OWN}),
        "crit": signed(header={"crit": ["exp"]}),
        "b64": signed(header={"b64": False}),
        "another type": signed(header={"typ": "logout+jwt"}),
        "another issuer": signed(iss="https://login.example.org.evil/"),
        "issuer without its end": signed(iss=ISSUER.rstrip("/")),
        "no issuer": signed(iss=None),
        "another audience": signed(aud="grafana"),
        "audiences of others": signed(aud=["grafana", "dpsql2"]),
        "no audience": signed(aud=None),
        "future nbf": signed(nbf=time.time() + 300),
        "future iat": signed(iat=time.time() + 300),
        "expired": signed(exp=time.time() - 60),
        "no end": signed(exp=None),
        "end of text": by_hand({"alg": "RS256", "kid": "r"}, exp="never"),
        "no subject": signed(sub=None),
        "empty subject": signed(sub=""),
        "long subject": signed(sub="a" * 256),
        "60 kB": signed(junk="a" * 60_000),
        "two signatures": f"{good}.{sign}",
        "two signatures as JSON": json.dumps(
            {"payload": body, "signatures": [{"protected": head, "signature": sign}] * 2}
        ),
        "five parts": f"{head}.{body}.{sign}.{body}.{sign}",
        "another body": f"{head}.{part(claims(sub='idp|root'))}.{sign}",
        "body cut": f"{head}.{body[:-4]}.{sign}",
        "signature cut": f"{head}.{body}.{sign[:-4]}",
        "padding": f"{head}=.{body}.{sign}",
        "newline": good + "\n",
        "empty": "",
        "dots": "..",
        "deep header": f"{part(b'[' * 3000)}.{body}.{sign}",
        "header of a list": f"{part([])}.{body}.{sign}",
        "kid of a list": by_hand({"alg": "RS256", "kid": ["r"]}),
        "bytes": good.encode(),
        "nothing": None,
    }


@pytest.fixture(scope="module")
def tokens() -> dict[str, object]:
    """The forged ones, made when the tests run: a token of the import would have ended by then."""
    return forged()


def test_a_forged_token_has_none(login: Login, tokens: dict[str, object]) -> None:
    assert login.subject(signed()) == "idp|ana"
    assert [name for name, token in tokens.items() if login.subject(token) is not None] == []


def test_a_token_may_be_so_long_and_no_longer(login: Login) -> None:
    lengths = {len(token): login.subject(token) for token in (signed(junk="a" * n) for n in range(5200, 5800, 3))}
    assert {length <= MOST_BYTES for length in lengths} == {True, False}
    assert all((found is not None) == (length <= MOST_BYTES) for length, found in lengths.items())


def test_keys_are_read_again_when_their_file_changes(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    login = Login(Provider(ISSUER, AUDIENCE, str(path)))
    good = signed()
    assert login.subject(good) is None
    path.write_bytes(jwks(public("e")))
    assert (login.subject(good), login.subject(signed("e"))) == (None, "idp|ana")
    path.write_bytes(jwks(public("r")))
    os.utime(path, ns=(1, 1))
    assert (login.subject(good), login.subject(signed("e"))) == ("idp|ana", None)
    for broken in (b"", b"<html>", b"[]", b'{"keys": 1}', jwks(public("e"), public("e")), b"\xff" * 10):
        path.write_bytes(broken)
        assert login.subject(good) == "idp|ana"  # what was read last
    path.unlink()
    assert login.subject(good) == "idp|ana"


def test_of_a_set_the_usable_keys_are_taken() -> None:
    private = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEYS["r"]))
    others = [
        public("r", use="enc"), public("r", alg="RS512"), {**public("r"), "kid": 7}, {**public("r"), "n": "?"},
        {**private, "kid": "private"}, public("weak"), public("wide"), "no key", {},
    ]  # fmt: skip
    assert list(keys_of(jwks(*others, public("r", use="sig", alg="RS256"), public("o")))) == ["r", "o"]


class Serving(http.server.BaseHTTPRequestHandler):
    """Answers with a redirection."""

    def do_GET(self) -> None:
        self.send_response(302)
        self.send_header("Location", "https://evil.example/keys")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


def test_keys_are_fetched_over_https_alone_and_no_redirection_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), Serving) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = f"http://127.0.0.1:{server.server_port}/keys"
        for url in (place, "file:///etc/passwd", "ftp://127.0.0.1/keys", "https://127.0.0.1:1/keys"):
            with pytest.raises(GatewayError, match="G025"):
                fetch(url, tmp_path / "keys")
        monkeypatch.setattr("dpsql.gateway.keys.SCHEMES", ("http",))
        with pytest.raises(GatewayError, match="G025"):
            fetch(place, tmp_path / "keys")
        server.shutdown()
    assert list(tmp_path.iterdir()) == []


class Giving(http.server.BaseHTTPRequestHandler):
    """Gives what it was told to."""

    given = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.given)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


def test_what_is_fetched_is_kept_until_there_is_something_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, waits = tmp_path / "keys", list[float]()
    answers = iter([jwks(public("r")), b"<html>", jwks(), b" " * (2 << 20), jwks(public("e"))])

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        Giving.given = next(answers, b"")
        if not Giving.given:
            raise KeyboardInterrupt

    with http.server.HTTPServer(("127.0.0.1", 0), Giving) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr("dpsql.gateway.keys.SCHEMES", ("http",))
        monkeypatch.setattr("time.sleep", sleep)
        monkeypatch.setattr("sys.argv", ["keys", f"http://127.0.0.1:{server.server_port}/keys", str(path)])
        with pytest.raises(KeyboardInterrupt):
            keys.main()
        server.shutdown()
    assert waits == [600, 600, 60, 60, 60, 600]
    assert list(keys_of(path.read_bytes())) == ["e"]
    assert path.stat().st_mode & 0o777 == 0o600
    assert capsys.readouterr().err.count("gives no keys") == 3


@pytest.mark.long
def test_a_gateway_takes_tokens_of_a_provider(tmp_path: Path, tokens: dict[str, object]) -> None:
    gateway = made(tmp_path, ana={"epsilon": 1, "subject": "idp|ana"})
    (tmp_path / "keys.json").write_bytes(jwks(public("r")))
    provider = {"oidc_issuer": ISSUER, "oidc_audience": AUDIENCE, "oidc_keys": str(tmp_path / "keys.json")}

    def front(broker: str, boxes: str) -> str:
        return FrontSettings(broker, boxes, Listening(port=0)).to_json()

    unlocked = not available().is_complete
    with Gateway(ServeSettings(gateway.database, front, without_os_sandbox=unlocked, **provider)) as running:
        by_login, by_token = (dpsql.connect_remote(running.url, token) for token in (signed(), gateway.tokens["ana"]))
        release = by_login.query("SELECT count(*) AS n FROM patients", epsilon=0.1)
        assert by_token.query("SELECT count(*) AS n FROM patients", epsilon=0.1).value.equals(release.value)
        assert [row["entry"] for row in by_token.releases()] == [release.ledger_id]
        for name in ("none", "HS256 with the public key", "expired", "two signatures"):
            with pytest.raises(GatewayError, match="G020"):
                dpsql.connect_remote(running.url, str(tokens[name])).datasets()


@pytest.fixture(scope="module")
def desk(login: Login, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    gateway = made(tmp_path_factory.mktemp("login"), ana={"epsilon": 1, "subject": "idp|ana"}, ben={})
    with dpsql.Context(gateway.database) as context:
        yield Desk(context, Audit(gateway.log), Rates(factor=1000), login=login.subject)


def code(desk: Desk, token: object) -> str:
    return str(desk.answer({"token": token, "want": "datasets"})[0].get("error", {}).get("code", ""))


@pytest.mark.long
def test_a_subject_is_the_principal_that_the_owner_says(desk: Desk, tokens: dict[str, object]) -> None:
    call = {"want": "call", "function": "dp_count", "source": "patients", "arguments": {"epsilon": {"number": "0.1"}}}
    [receipt] = desk.answer({"token": signed(), **call})[0]["receipts"]
    again = desk.answer({"token": signed("o"), **call})[0]["receipts"]
    assert (again[0]["entry"], again[0]["charged"]) == (receipt["entry"], False)
    assert code(desk, signed(sub="idp|ben")) == "G020"
    assert code(desk, signed(sub="ana")) == "G020"  # the principal's own name is no subject
    assert {code(desk, token) for token in tokens.values()} == {"G020"}


def test_without_a_provider_its_tokens_are_none(tmp_path: Path) -> None:
    gateway = made(tmp_path, ana={"subject": "idp|ana"})
    with dpsql.Context(gateway.database) as context:
        assert code(Desk(context, Audit(None)), signed()) == "G020"


def test_a_subject_is_one_principals_and_ends_with_the_grant() -> None:
    ledger = Ledger.open()
    ledger.grant(Grant.of("ana", "patients", subject="x"))
    ledger.grant(Grant.of("ana", "visits", subject="x"))
    with pytest.raises(ParameterError, match="P013"):
        ledger.grant(Grant.of("ben", "patients", subject="x"))
    now = datetime.now(UTC)
    assert ledger.grants().principal_of_subject("x", now) == "ana"
    ledger.revoke("ana", "patients")
    assert ledger.grants().principal_of_subject("x", now) == "ana"
    ledger.revoke("ana")
    for subject in ("x", None, ""):
        with pytest.raises(DpsqlError, match="G020"):
            ledger.grants().principal_of_subject(subject, now)
    ledger.grant(Grant.of("ben", "patients", subject="x"))
    assert ledger.grants().principal_of_subject("x", now) == "ben"


@pytest.mark.parametrize("options", [["--oidc-issuer", ISSUER], ["--oidc-keys", "nowhere.json"],
    ["--oidc-issuer", ISSUER, "--oidc-audience", "dpsql", "--oidc-keys", "nowhere.json"]])  # fmt: skip
def test_half_a_provider_is_refused(options: list[str]) -> None:
    found = CliRunner().invoke(main, ["serve", "--demo", *options])
    assert found.exit_code != 0
    assert "G025" in found.output

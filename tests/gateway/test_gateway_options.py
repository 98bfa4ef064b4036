"""The options of ``dpsql serve``: what cannot be is refused before anything starts, and what is said holds."""

from __future__ import annotations

import datetime
import ipaddress
import json
import re
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from click.testing import CliRunner, Result
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from dpsql.cli.commands import main
from dpsql.errors import GatewayError
from dpsql.gateway.addresses import refuse_other_sites
from dpsql.gateway.listening import Listening
from support.cases import cases
from support.gateway_command import serving

QUESTION = "SELECT count(*) AS n FROM patients"


def made_key(path: Path, password: bytes | None = None) -> ec.EllipticCurvePrivateKey:
    """Make a key, and write it in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    locked = serialization.NoEncryption() if password is None else serialization.BestAvailableEncryption(password)
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked))
    return key


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a certificate for this machine, and files that only look like one."""
    key = made_key(tmp_path / "key.pem")
    made_key(tmp_path / "other.pem")
    made_key(tmp_path / "secret.pem", b"password")
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    (tmp_path / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (tmp_path / "there.duckdb").touch()
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def taken() -> Iterator[str]:
    """Return a port on which another program listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield str(listener.getsockname()[1])


def refused(*options: str) -> str:
    """Return what the command says when it refuses options, in words for people."""
    done: Result = CliRunner().invoke(main, ["serve", *options])
    assert done.exit_code in (1, 2)
    assert isinstance(done.exception, SystemExit | GatewayError), done.exception
    return done.output + str(done.exception)


REFUSED = [
    (["nowhere.duckdb"], "there is no database 'nowhere.duckdb'"),
    (["there.duckdb", "--no-flight", "--flight-port", "9"], "no effect beside --no-flight"),
    (["there.duckdb", "--port", "9998", "--owner-port", "9998"], "must be different"),
    (["there.duckdb", "--port", "9998", "--flight-port", "9998"], "must be different"),
    (["there.duckdb", "--tls-cert", "cert.pem"], "G023.*--tls-key"),
    (["there.duckdb", "--tls-cert", "none.pem", "--tls-key", "key.pem"], "G023.*No such file"),
    (["there.duckdb", "--tls-cert", "cert.pem", "--tls-key", "other.pem"], "G023.*no certificate and its key"),
    (["there.duckdb", "--tls-cert", "key.pem", "--tls-key", "key.pem"], "G023.*no certificate and its key"),
    (["there.duckdb", "--tls-cert", "cert.pem", "--tls-key", "secret.pem"], "G023.*without a password"),
    (["there.duckdb", "--public-name", "https://dpsql.example.org"], "G023.*such as dpsql.example.org"),
    (["there.duckdb", "--public-name", ""], "G023.*such as dpsql.example.org"),
    (["there.duckdb", "--trusted-proxy", "10.0.0.0/8"], "G023.*by its address"),
    (["there.duckdb", "--host", "192.0.2.1", "--insecure-plaintext"], "G043.*'192.0.2.1'.*cannot be listened on"),
    (["there.duckdb", "--agent-epsilon", "inf"], "number from 0 on; got 'inf'"),
    (["there.duckdb", "--agent-epsilon", "-1"], "number from 0 on; got '-1'"),
    (["there.duckdb", "--least-epsilon", "nan"], "--least-epsilon must be a number from 0 on; got 'nan'"),
    (["there.duckdb", "--seconds", "nan"], "must be finite"),
    (["there.duckdb", "--fixed-time", "inf"], "must be finite"),
    (["there.duckdb", "--log", "folder"], "cannot be written to 'folder'"),
    (["there.duckdb", "--log", "no/where"], "cannot be written to 'no/where'"),
    (["there.duckdb", "--log", "folder/../there.duckdb"], "would write into the database"),
    (["there.duckdb", "--log", "there.duckdb.dpsql-ledger"], "would write into the database or the ledger"),
    (["there.duckdb", "--oidc-issuer", "https://x/"], "G025"),
]


@cases(("options", "said"), REFUSED, ids=[" ".join(options[1:] or options) for options, _ in REFUSED])
def test_what_cannot_be_is_refused_before_anything_starts(options: list[str], said: str, folder: Path) -> None:
    before = sorted(folder.iterdir())
    words = refused(*options)
    assert re.search(said, words), words
    assert sorted(folder.iterdir()) == before
    assert (folder / "there.duckdb").stat().st_size == 0


@pytest.mark.parametrize("option", ["--port", "--owner-port", "--flight-port"])
def test_a_port_that_another_program_has_is_named(option: str, taken: str, folder: Path) -> None:
    other = [] if option == "--port" else ["--port", "0"]
    assert f"'127.0.0.1', port {taken}, cannot be listened on" in refused("there.duckdb", *other, option, taken)


@pytest.mark.parametrize("origin", ["https://dpsql.example.org", "https://dpsql.example.org:8443", "https://Own:9"])
def test_public_names_are_of_any_spelling_and_port(origin: str) -> None:
    own = ("DPSQL.example.org", "own:9")
    sent = [(b"host", b"10.0.0.7"), (b"origin", origin.encode())]
    refuse_other_sites("POST", sent, own)
    with pytest.raises(GatewayError, match="G022"):
        refuse_other_sites("POST", [(b"host", b"10.0.0.7"), (b"origin", b"https://own:8")], own)
    Listening(public_names=own).check()


def asked(url: str, token: str, trusted: ssl.SSLContext, body: dict[str, Any]) -> tuple[int, Any]:
    """Return status and answer."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/query", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=120, context=trusted) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


async def by_model(url: str, token: str, trusted: ssl.SSLContext, epsilons: list[float]) -> list[str]:
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=120, verify=trusted) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http), mode="legacy") as client,
    ):
        told = [await client.call_tool("query", {"sql": QUESTION, "epsilon": one}) for one in epsilons]
        return [one.content[0].text for one in told]


@pytest.mark.odds("0: a number is compared with its own replay")
@pytest.mark.long
def test_what_the_options_say_holds(folder: Path) -> None:
    """TLS, a fixed time, one release at a time, the model's cap and the log: all of one gateway."""
    (folder / "there.duckdb").unlink()
    for name in ("click", "uvicorn", "socket"):  # planted: nobody's module in the folder of the data is loaded
        (folder / f"{name}.py").write_text("raise SystemExit('planted')\n")
    options = ["--tls-cert", "cert.pem", "--tls-key", "key.pem", "--public-name", "DPSQL.example.org", "--serial"]
    options += ["--fixed-time", "8", "--agent-epsilon", "0.3", "--log", "my.log", "--log-refused", "--no-flight"]
    trusted = ssl.create_default_context(cafile=str(folder / "cert.pem"))
    with serving(folder, "--demo", *options, safe=True) as (_, url, token):
        assert url.startswith("https://127.0.0.1:")
        began = time.monotonic()
        status, first = asked(url, token, trusted, {"sql": QUESTION, "epsilon": 0.1})
        assert status == 200, first
        assert time.monotonic() - began >= 8  # never sooner; how much later says how busy the machine is
        _, again = asked(url, token, trusted, {"sql": QUESTION, "epsilon": 0.1})
        assert again["rows"] == first["rows"]
        assert asked(url, token, trusted, {"sql": "SELECT * FROM patients -- Zaphod"})[0] == 400
        told = anyio.run(by_model, url, token, trusted, [0.1, 0.2, 0.25])
        assert ["G042" in one for one in told] == [False, False, True]
        with pytest.raises((ssl.SSLError, urllib.error.URLError)):
            asked(url, token, ssl.create_default_context(), {"sql": QUESTION})
        with pytest.raises((ConnectionError, urllib.error.URLError)):
            asked(url.replace("https", "http"), token, trusted, {"sql": QUESTION})
    log = (folder / "my.log").read_text()
    assert "Zaphod" in log
    assert token not in log
    assert (folder / "my.log").stat().st_mode & 0o777 == 0o600
    assert not [path for path in folder.iterdir() if path.name.endswith("audit")]
    assert "planted" not in (folder / "said").read_text()

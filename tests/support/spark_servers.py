"""Spark Connect servers for tests: Sail, and Apache Spark on a JVM where there is one. Each is a process of its own.

A folder of tests takes the fixtures by importing them into its `conftest.py`.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Seconds until a server must listen: a JVM on a busy machine takes most of a minute.
_PATIENCE = 240


class SparkServer:
    """A server in a process of its own.

    Parameters
    ----------
    command : list of str
        Starts it; ``{port}`` stands for the port.
    folder : Path
        Where it runs and writes its log.
    environment : str
        Variables of its environment, beside those of this process.

    Attributes
    ----------
    pid, port : int
    """

    def __init__(self, command: list[str], folder: Path, **environment: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._log = folder / "server.log"
        here = {**os.environ, "PYSPARK_PYTHON": sys.executable, **environment}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [part.format(port=self.port) for part in command],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=here,
                start_new_session=True,
            )
        self.pid = self._process.pid
        self._await()

    def _await(self) -> None:
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end and self._process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.1)
        self.stop()
        raise RuntimeError(f"the server does not listen: {self.log[-2000:]}")

    @property
    def log(self) -> str:
        """What the server and its workers have written."""
        return self._log.read_text(errors="replace")

    @property
    def address(self) -> str:
        """Where clients find the server."""
        return f"sc://127.0.0.1:{self.port}"

    def session(self, port: int | None = None) -> SparkSession:
        """Return a new session, whose client gives up soon if the server does not answer.

        Parameters
        ----------
        port : int, optional
            Of a proxy before the server.
        """
        from pyspark.sql.connect.session import SparkSession as ConnectSession

        session: Any = ConnectSession.builder.remote(f"sc://127.0.0.1:{port or self.port}").create()
        session.conf.set("dpsql.exactParquet", "true")  # which the environment of Sail here makes true
        be_patient(session)
        return cast("SparkSession", session)

    def stop(self) -> None:
        """End the server and all of its workers."""
        if self._process.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()


def be_patient(session: Any, *, max_retries: int = 3, max_backoff: int = 200) -> None:
    """Let a client try so often to reach its server, with so many milliseconds in between at most."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    session.client.set_retry_policies([DefaultPolicy(max_retries=max_retries, max_backoff=max_backoff)])


# Without these Sail believes the minimum and maximum in a Parquet file, which leave NaN out.
EXACT_SAIL = dict.fromkeys(
    ("SAIL_EXECUTION__COLLECT_STATISTICS", "SAIL_PARQUET__PRUNING", "SAIL_PARQUET__ENABLE_PAGE_INDEX"), "false"
)


def sail(folder: Path, **environment: str) -> SparkServer:
    """Start Sail, or skip the test where it is absent."""
    if find_spec("pysail") is None or find_spec("pyspark") is None:
        pytest.skip("no Sail: pip install 'dpsql[sail]'")
    command = [sys.executable, "-m", "pysail", "spark", "server", "--port", "{port}"]
    return SparkServer(command, folder, **EXACT_SAIL, **environment)


def spark_home() -> Path:
    """Return where Apache Spark is, or skip the test where it or Java is absent."""
    found = find_spec("pyspark")
    home = Path(str(found.origin)).parent if found else Path()
    if not (home / "jars").exists():
        pytest.skip("no Apache Spark: pip install 'pyspark[connect]'")
    if shutil.which("java") is None:
        pytest.skip("no Java")
    return home


def jvm(folder: Path, master: str = "local[2,3]", host: str = "127.0.0.1", **settings: str) -> SparkServer:
    """Start Apache Spark, or skip the test where it is absent.

    Parameters
    ----------
    folder : Path
    master : str
        Where tasks run: by default two workers here, and three attempts for each task.
    host : str
        The address under which other hosts find the driver.
    settings : str
        More settings, with ``_`` for points.
    """
    home = spark_home()
    settings = {
        "spark_driver_host": host,
        "spark_driver_bindAddress": host,
        "spark_connect_grpc_binding_address": "127.0.0.1",
        "spark_connect_grpc_binding_port": "{port}",
        "spark_ui_enabled": "false",
        "spark_sql_shuffle_partitions": "3",
        "spark_sql_adaptive_enabled": "false",
        "spark_sql_warehouse_dir": str(folder / "warehouse"),
        **settings,
    }
    command = [str(home / "bin" / "spark-submit"), "--master", master]
    command += [part for name, value in settings.items() for part in ("--conf", f"{name.replace('_', '.')}={value}")]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    return SparkServer(command, folder, SPARK_HOME=str(home))


@pytest.fixture(scope="session")
def sail_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkServer]:
    server = sail(tmp_path_factory.mktemp("sail"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def sail_session(sail_server: SparkServer) -> Iterator[SparkSession]:
    session = sail_server.session()
    yield session
    # The server forgets a session that rests for long, and PySpark then warns in a way that Python deprecates.
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        session.stop()


@pytest.fixture(scope="session")
def jvm_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkServer]:
    server = jvm(tmp_path_factory.mktemp("jvm"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def jvm_session(jvm_server: SparkServer) -> Iterator[SparkSession]:
    session = jvm_server.session()  # one for all tests: Spark starts workers anew for every session
    yield session
    session.stop()


@pytest.fixture(params=["sail", pytest.param("jvm", marks=pytest.mark.jvm)])
def spark_session(request: pytest.FixtureRequest) -> SparkSession:
    """A session of Sail, and one of Apache Spark where that is installed."""
    session: SparkSession = request.getfixturevalue(f"{request.param}_session")
    return session

"""A cluster of Apache Spark on this machine: a driver, and two hosts that are network namespaces of Linux.

Spark tells hosts by their addresses: a second copy of a task never runs on the host of the first.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.planted_work import wait_until
from support.spark_servers import jvm, spark_home

_DEPLOY = "org.apache.spark.deploy"
_EXECUTOR = b"CoarseGrainedExecutorBackend"
# Each of six processes lives for a minute: they start sooner without the second compiler.
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Host:
    """A network namespace, which is connected to this one by a bridge.

    Attributes
    ----------
    address : str
    """

    def __init__(self, name: str, bridge: str, address: str) -> None:
        self._name, self.address = name, address
        _ip("netns", "add", name)
        _ip("link", "add", f"{name}o", "type", "veth", "peer", "name", f"{name}i", "netns", name)
        _ip("link", "set", f"{name}o", "master", bridge, "up")
        _ip("-n", name, "addr", "add", f"{address}/24", "dev", f"{name}i")
        for device in ("lo", f"{name}i"):
            _ip("-n", name, "link", "set", device, "up")
        self.namespace = f"net:[{Path('/run/netns', name).stat().st_ino}]"

    def run(self, *command: str) -> list[str]:
        """Return the words of a command that runs on the host."""
        return ["ip", "netns", "exec", self._name, *command]

    def processes(self, kind: bytes = b"") -> list[int]:
        """Return the processes of the host whose command has a word in it."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.readlink(process / "ns" / "net") == self.namespace and kind in (process / "cmdline").read_bytes():
                    found.append(int(process.name))
        return found

    def kill(self, kind: bytes = b"") -> int:
        """Kill processes of the host, and return how many."""
        found = self.processes(kind)
        for process in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        return len(found)


class SparkCluster:
    """A master, a driver that is a server of Spark Connect, and two hosts with a worker each.

    Attributes
    ----------
    hosts : list of Host
    server : SparkServer
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._home = spark_home()
        self._stack = contextlib.ExitStack()
        self.hosts: list[Host] = []
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        number = _free_bridge()
        bridge, network = f"dpsql{number}", f"10.213.{number}"
        self._stack.callback(_ip, "link", "del", bridge)
        _ip("addr", "add", f"{network}.1/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for letter, last in (("a", 2), ("b", 3)):
            self._stack.callback(subprocess.run, ["ip", "netns", "del", f"{bridge}{letter}"], capture_output=True)
            self.hosts.append(Host(f"{bridge}{letter}", bridge, f"{network}.{last}"))
        with socket.socket() as probe:
            probe.bind((f"{network}.1", 0))
            port = probe.getsockname()[1]
        self._master = f"spark://{network}.1:{port}"
        words = ["--host", f"{network}.1", "--port", str(port), "--webui-port", "0"]
        self._spawn("master", [*self._spark("master.Master"), *words], network + ".1")
        wait_until(lambda: _listens(f"{network}.1", port))
        for host in self.hosts:
            self._work(host)
        (self._folder / "events").mkdir()
        self.server = jvm(
            self._folder,
            self._master,
            f"{network}.1",
            **{
                "spark_executor_memory": "512m",
                "spark_executor_extraJavaOptions": _JAVA,
                "spark_driver_extraJavaOptions": _JAVA,
                "spark_executorEnv_PYTHONPATH": os.environ.get("PYTHONPATH", ""),
                "spark_sql_files_minPartitionNum": "3",
                "spark_sql_files_openCostInBytes": "1",
                "spark_speculation": "true",
                "spark_speculation_interval": "100ms",
                "spark_speculation_multiplier": "1.1",
                "spark_speculation_quantile": "0.5",
                "spark_speculation_minTaskRuntime": "0",
                "spark_speculation_efficiency_enabled": "false",
                "spark_eventLog_enabled": "true",
                "spark_eventLog_compress": "false",
                "spark_eventLog_rolling_enabled": "false",
                "spark_eventLog_dir": str(self._folder / "events"),
            },
        )
        self._stack.callback(self.server.stop)

    @property
    def events(self) -> list[str]:
        """What the driver tells of its jobs, one JSON text each."""
        return [line for file in (self._folder / "events").iterdir() for line in file.read_text().splitlines()]

    def host_of(self, attempt: Path) -> Host:
        """Return where an attempt ran, from the file that it left."""
        wait_until(attempt.read_text)  # it is there before its text
        return next(host for host in self.hosts if host.namespace == attempt.read_text())

    def restore(self) -> None:
        """Start the workers that are gone, and wait for an executor on every host."""
        for host in self.hosts:
            if not host.processes(b"deploy.worker.Worker"):
                self._work(host)
        wait_until(lambda: all(host.processes(_EXECUTOR) for host in self.hosts))

    def kill_executor(self, host: Host) -> None:
        """Kill the process that runs tasks on a host; the worker starts another one."""
        assert host.kill(_EXECUTOR)

    def kill_worker(self, host: Host) -> None:
        """Kill all that runs on a host."""
        assert host.kill() > 1

    def stop(self) -> None:
        """End all processes, and take the hosts away."""
        for host in self.hosts:
            host.kill()
        self._stack.close()

    def _work(self, host: Host) -> None:
        words = ["--host", host.address, "--cores", "1", "--memory", "512m", "--webui-port", "0"]
        words += ["--work-dir", str(self._folder / host.address), self._master]
        self._spawn(host.address, host.run(*self._spark("worker.Worker"), *words), host.address)

    def _spark(self, name: str) -> list[str]:
        return [str(self._home / "bin" / "spark-class"), f"{_DEPLOY}.{name}"]

    def _spawn(self, name: str, command: list[str], address: str) -> None:
        here = {
            **os.environ,
            "SPARK_HOME": str(self._home),
            "SPARK_LOCAL_IP": address,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _JAVA,
            "PYSPARK_PYTHON": sys.executable,
        }
        with (self._folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, cwd=self._folder, env=here, start_new_session=True
            )
        self._stack.callback(process.wait)
        self._stack.callback(_kill, process)


def _kill(process: subprocess.Popen[Any]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


def _listens(address: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) == 0


def _free_bridge() -> int:
    """Add the bridge of a network that no other run has, and return its number."""
    for number in range(1, 250):
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("link", "add", f"dpsql{number}", "type", "bridge")
            return number
    raise RuntimeError("250 networks of earlier runs are in the way")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """The cluster; a test is skipped where Apache Spark is absent, or where network namespaces cannot be made."""
    spark_home()
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("two hosts are network namespaces, which need root and ip (Debian: iproute2)")
    name = f"dpsql{os.getpid()}"
    for words in (["netns", "add", name], ["link", "add", name, "type", "bridge"]):
        if subprocess.run(["ip", *words], capture_output=True).returncode:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
            pytest.skip(f"no two hosts: this kernel or container refuses ip {' '.join(words)}")
    _ip("netns", "del", name)
    _ip("link", "del", name)
    cluster = SparkCluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.stop()

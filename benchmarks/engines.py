"""Time, processor time and memory of one statistic on every engine, over the same Parquet files.

    python benchmarks/engines.py [--rows 10000000] [--links 1 10] [--features 8] [--partitions 2 200]
                                 [--engines duckdb,reader,polars,datafusion,sail,spark] [--form rows|units|gram]

`duckdb` is dpsql's own statement, `reader` the task that a worker runs over DuckDB's Arrow reader: the same kernel
without a statement around it. A file is written once and linked as often as asked, so that many rows need little disk.
Each measurement has a process of its own. For Sail the server is another process, whose peak is shown apart from the
driver's. `--partitions` cuts the rows of DataFusion; `generated` is Sail and `spark` Apache Spark in the driver's own
JVM, both over rows that they compute, in so many partitions. Processor time and memory of a JVM are not shown.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

ENGINES = ("duckdb", "reader", "polars", "datafusion", "sail")
_MEGABYTE = 1 << 20
_SERVER = """
import os, sys
for name in ("EXECUTION__COLLECT_STATISTICS", "PARQUET__PRUNING", "PARQUET__ENABLE_PAGE_INDEX"):
    os.environ[f"SAIL_{name}"] = "false"
from pysail.spark import SparkConnectServer
server = SparkConnectServer("127.0.0.1", 0)
server.start(background=True)
print(server.listening_address[1], flush=True)
sys.stdin.read()
"""


def write(folder: Path, rows: int, features: int) -> None:
    """Write one file of uniform doubles."""
    import duckdb

    folder.mkdir(parents=True, exist_ok=True)
    first = folder / "part-0.parquet"
    if not first.exists():
        columns = ", ".join(f"random() * 2 - 1 AS x{number}" for number in range(features))
        with duckdb.connect() as connection:
            connection.execute(
                f"COPY (SELECT range AS id, range % {max(1, rows // 5)} AS pid, {columns}, random() * 2 - 1 AS y "
                f"FROM range({rows})) TO '{first}' (FORMAT parquet, ROW_GROUP_SIZE 122880)"
            )


def call(form: str, features: int) -> tuple[str, dict[str, object]]:
    """Return the function and the arguments of a form."""
    names = [f"x{number}" for number in range(features)]
    given: dict[str, object] = {"target": "y", "features": names, "lower": -1, "upper": 1, "dataset": "t"}
    given |= {"target_lower": -1, "target_upper": 1, "epsilon": 1}
    if form == "gram":
        return "dp_linear_regression", {**given, "delta": 1e-6, "method": "ada_ssp", "standardize": False}
    unit = {"privacy_unit": "pid", "max_rows_per_unit": 3} if form == "units" else {}
    return "dp_sis", {**given, **unit, "k": 1}


def prepared(engine: str, folder: Path, form: str, features: int, partitions: int) -> Callable[[], object]:
    """Return the work to be timed."""
    import dpsql

    function, given = call(form, features)
    files = f"{folder}/*.parquet"
    if engine in ("duckdb", "reader"):
        context = dpsql.Context()
        context.connection.execute(f"CREATE VIEW t AS FROM '{files}'")
        if engine == "reader":
            return lambda: _read(context, function, given)
        return lambda: getattr(context, function)("t", **given)
    if engine == "polars":
        import polars

        frame = polars.scan_parquet(files)
        return lambda: getattr(dpsql.polars.context({"t": frame}), function)("t", **given)
    if engine == "datafusion":
        from datafusion import SessionConfig, SessionContext

        settings = {"datafusion.execution.collect_statistics": "false"}
        session = SessionContext(SessionConfig(settings).with_target_partitions(partitions))
        session.register_parquet("t", str(folder))
        return lambda: getattr(dpsql.datafusion.context(session), function)("t", **given)
    from pyspark.sql import SparkSession

    if engine == "spark":
        os.environ["PYSPARK_PYTHON"] = sys.executable
        local = SparkSession.builder.master("local[2]").config("spark.driver.host", "127.0.0.1")
        spark = local.config("spark.ui.enabled", "false").getOrCreate()
    else:
        spark = SparkSession.builder.remote(f"sc://localhost:{os.environ['DPSQL_SAIL']}").getOrCreate()
        spark.conf.set("dpsql.exactParquet", "true")
    if engine == "sail":
        frame = spark.read.parquet(files)
    else:
        frame = spark.range(0, int(folder.name), 1, partitions).selectExpr(
            "id",
            "id % 1000003 AS pid",
            *(f"((id * {7919 + 2 * number}) % 20011) / 10005.5D - 1 AS x{number}" for number in range(features)),
            "((id * 104729) % 20011) / 10005.5D - 1 AS y",
        )
    return lambda: getattr(dpsql.spark.context(spark), function)(frame, **given)


def _read(context: object, function: str, given: dict[str, object]) -> object:
    """Run the task of a call over DuckDB's Arrow reader."""
    import polars

    from dpsql.engines.driver import Attached, call_of
    from dpsql.engines.polars import PolarsEngine
    from dpsql.engines.task import Task, read_columns
    from dpsql.functions.registry import FUNCTIONS

    connection = context.connection  # type: ignore[attr-defined]
    nothing = connection.sql("SELECT * FROM t LIMIT 0").to_arrow_table()
    plan = FUNCTIONS[function].plan.from_arguments("t", {**given, "engine": "reader"})
    attached = Attached("reader", PolarsEngine({"t": polars.DataFrame(nothing)}))
    resolved, types = call_of(attached, plan)
    task = Task(resolved, function, resolved.start(), 1, b"k" * 16, b"", 0)
    reader = connection.sql(f"SELECT {', '.join(read_columns(plan, types))} FROM t").to_arrow_reader(1 << 16)
    return list(task.run(reader))


def _seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def measure(engine: str, folder: Path, form: str, features: int, partitions: int) -> dict[str, float]:
    """Time one call in this process, after one over a small table that loads what it needs."""
    small = folder.parent / ("small" if engine in ENGINES else "10000")
    prepared(engine, small, form, features, partitions)()
    work = prepared(engine, folder, form, features, partitions)
    before, start = _seconds(), time.perf_counter()
    work()
    return {
        "wall": time.perf_counter() - start,
        "cpu": _seconds() - before,
        "driver_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / _MEGABYTE,
    }


class Sail:
    """A server in a process of its own, and what it has used."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        self.peak = 0.0
        self._stopped = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while not self._stopped.wait(0.05):
            pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
            self.peak = max(self.peak, pages * os.sysconf("SC_PAGE_SIZE") / _MEGABYTE)

    def seconds(self) -> float:
        """Return the processor seconds of the server."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """End the server."""
        self._stopped.set()
        self.process.kill()
        self.process.wait()


def apart(engine: str, folder: Path, form: str, features: int, partitions: int) -> dict[str, float]:
    """Measure in a process of its own."""
    server = Sail() if engine in ("sail", "generated") else None
    environment = {**os.environ, "DPSQL_SAIL": "" if server is None else str(server.port)}
    words = [sys.executable, __file__, "--one", engine, str(folder), form, str(features), str(partitions)]
    try:
        done = subprocess.run(words, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stderr[-2000:])
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        if server is not None:
            found |= {"cpu": found["cpu"] + server.seconds(), "server_mb": server.peak}
        return found
    finally:
        if server is not None:
            server.stop()


def main() -> None:
    """Measure what the arguments say, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10**7, help="rows of the file")
    parser.add_argument("--links", type=int, nargs="+", default=[1], help="how often the file is there")
    parser.add_argument("--features", type=int, default=8)
    parser.add_argument("--partitions", type=int, nargs="+", default=[2], help="of engines that can be told")
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--form", choices=("rows", "units", "gram"), default="rows")
    parser.add_argument("--folder", default=str(Path(tempfile.gettempdir()) / "dpsql-engines"))
    parser.add_argument("--one", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        engine, folder, form, features, partitions = given.one
        print(json.dumps(measure(engine, Path(folder), form, int(features), int(partitions))))
        return
    root = Path(given.folder) / f"{given.rows}x{given.features}"
    write(root / "small", 10_000, given.features)
    write(root / "first", given.rows, given.features)
    print(f"{'engine':12}{'rows':>14}{'wall s':>10}{'cpu s':>10}{'driver MB':>12}{'server MB':>12}")
    for links in given.links:
        folder = root / f"{links}-links"
        folder.mkdir(exist_ok=True)
        for number in range(links):
            part = folder / f"part-{number}.parquet"
            if not part.exists():
                os.link(root / "first" / "part-0.parquet", part)
        for engine in given.engines.split(","):
            is_cut = engine in ("datafusion", "generated", "spark")
            for partitions in given.partitions if is_cut else given.partitions[:1]:
                if engine == "reader" and given.form == "units":
                    continue
                source = root / str(given.rows * links) if engine in ("generated", "spark") else folder
                found = apart(engine, source, given.form, given.features, partitions)
                name = f"{engine}/{partitions}" if is_cut else engine
                print(
                    f"{name:12}{given.rows * links:14,}{found['wall']:10.2f}{found['cpu']:10.2f}"
                    f"{found['driver_mb']:12.0f}{found.get('server_mb', 0):12.0f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()

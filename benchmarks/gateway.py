"""What a gateway costs: replays, new questions beside the same call in process, many clients, many statements.

``python benchmarks/gateway.py [rows]`` serves a table of so many rows (10⁶ by default) on this machine, and prints

* replay: median wall time over HTTP, and CPU of all processes for each, in ms
* new: CPU of a new plain question, and of the same call in process on a copy, by turns, in ms; of the difference the
  median counts, and its wall time waits for its bucket
* clients: 32 with 30 questions each, of which every fourth is new: failures, questions per second, growth of memory
* statements: 10,000 replays by 4 clients: growth of memory and of open files of each process
* memory: RSS of each process, in MB

and for each bar of the gateway whether it is met. It takes about eight minutes on two quiet cores, and less than ten on
any machine: replays that do not fit are left out, and it says so. Quote CPU times and ratios: wall times on a busy
machine say little, and what an answer waits for its bucket is wall time and no work.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dpsql
from dpsql.gateway.door import Door
from dpsql.gateway.front import FrontSettings
from dpsql.gateway.listening import Listening
from dpsql.gateway.serving import ServeSettings, Serving
from dpsql.ledger.grants import Grant

COUNT = "SELECT count(*) AS n FROM visits WHERE age >= 18"
TICK = os.sysconf("SC_CLK_TCK")
CLIENTS, EACH, STATEMENTS, AT_ONCE = 32, 30, 10_000, 4
# No statement is sent later than this, in seconds since the beginning.
LATEST = 560.0
# CPU of all processes for a replay, and of a new question beyond the same call in process, in ms; growth of memory.
MOST_REPLAY, MOST_BEYOND, MOST_GROWTH = 45.0, 50.0, 1.1


def made(folder: Path, rows: int) -> tuple[str, list[str]]:
    """Make a database of so many rows with a budget; return it, and tokens."""
    database = str(folder / "visits.duckdb")
    with dpsql.Context(database) as context:
        context.sql(f"CREATE TABLE visits AS SELECT i AS id, (i * 7919 % 90)::DOUBLE AS age FROM range({rows}) r(i)")
        context.dp_protect("visits", epsilon=10**6, privacy_unit="id", max_rows_per_unit=1)
        names = [f"client-{number}" for number in range(CLIENTS)]
        for name in names:
            context.ledger.grant(Grant.of(name, "visits"))
        return database, [context.ledger.issue_token(name).text for name in names]


@contextmanager
def served(database: str) -> Iterator[Serving]:
    """Serve a database without limits of rates."""

    def front(broker: str, boxes: str) -> str:
        return FrontSettings(broker, boxes, Listening(port=0)).to_json()

    with Serving(ServeSettings(database, front, rates=10_000.0)) as serving:
        yield serving


def asked(url: str, token: str, epsilon: float) -> dict[str, Any]:
    """Ask the question over HTTP."""
    body = json.dumps({"sql": COUNT, "epsilon": epsilon}).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/query", body, headers), timeout=600) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def processes(serving: Serving) -> dict[str, int]:
    """Return the processes of a gateway."""
    parts = (serving.broker, serving.front, serving.boxes)
    return {part.name: part.process.pid for part in parts if part.process is not None}


def cpu(serving: Serving) -> dict[str, float]:
    """Return the CPU time of each process and of its ended children, in ms."""
    found = {}
    for name, process in processes(serving).items():
        fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
        found[name] = 1000 * sum(map(int, fields[11:15])) / TICK
    return found


def memory(serving: Serving) -> dict[str, float]:
    """Return the RSS of each process, in MB."""
    page = os.sysconf("SC_PAGE_SIZE") / 2**20
    return {
        name: int(Path(f"/proc/{process}/statm").read_text().split()[1]) * page
        for name, process in processes(serving).items()
    }


def handles(serving: Serving) -> dict[str, int]:
    """Return how many files each process has open."""
    return {name: len(os.listdir(f"/proc/{process}/fd")) for name, process in processes(serving).items()}


def cost(serving: Serving, work: Callable[[], object], times: int) -> tuple[float, dict[str, float]]:
    """Return the median wall time of some work, and the CPU of each process for it, in ms."""
    before, taken = cpu(serving), []
    for _ in range(times):
        began = time.perf_counter()
        work()
        taken.append(1000 * (time.perf_counter() - began))
    time.sleep(0.5)  # boxes end
    after = cpu(serving)
    return statistics.median(taken), {name: (after[name] - before[name]) / times for name in after}


def bar(said: str, met: bool) -> None:
    """Print whether a bar is met."""
    print(f"BAR {'met' if met else 'MISSED'}: {said}", flush=True)


def told(label: str, wall: float, used: dict[str, float]) -> None:
    """Print one line."""
    each = ", ".join(f"{name} {amount:.1f}" for name, amount in used.items())
    print(f"{label}: {wall:.1f} ms wall, {sum(used.values()):.1f} ms CPU ({each})", flush=True)


def in_process(context: dpsql.Context, epsilons: Sequence[float]) -> float:
    """Return the CPU of the same call in process, in ms."""
    began = time.process_time()
    for epsilon in epsilons:
        context.query(COUNT, epsilon=epsilon)
    return 1000 * (time.process_time() - began) / len(epsilons)


def main(rows: int = 1_000_000, times: int = 200, new: int = 8, rounds: int = 7) -> None:
    """Print the measurements."""
    latest = time.monotonic() + LATEST
    with tempfile.TemporaryDirectory() as folder:
        database, tokens = made(Path(folder), rows)
        copy = shutil.copytree(folder, Path(folder, "copy")) / Path(database).name
        with served(database) as serving, dpsql.Context(str(copy)) as context:
            url, token, number = serving.url, tokens[0], iter(range(10**9))
            asked(url, token, 0.5)
            for _ in range(20):
                asked(url, token, 0.5)
            wall, used = cost(serving, lambda: asked(url, token, 0.5), times)
            told("replay", wall, used)
            replay = sum(used.values())
            bar(f"a replay takes {replay:.1f} ms of CPU, at most {MOST_REPLAY:.0f}", replay <= MOST_REPLAY)
            began = memory(serving)
            context.query(COUNT, epsilon=0.001)
            over = []
            for _ in range(rounds):
                alone = in_process(context, [0.002 + next(number) / 10**6 for _ in range(new)])
                wall, used = cost(serving, lambda: asked(url, token, 0.01 + next(number) / 10**6), new)
                told("new", wall, used)
                over.append(sum(used.values()) - alone)
                print(f"the same in process: {alone:.1f} ms CPU; {over[-1]:+.1f} through the gateway", flush=True)
            beyond = statistics.median(over)
            said = f"a new question over {rows} rows takes {beyond:.1f} ms of CPU more than in process"
            bar(f"{said}, at most {MOST_BEYOND:.0f}", beyond <= MOST_BEYOND)

            def client(own: str) -> int:
                lost = 0
                for place in range(EACH):
                    epsilon = 0.5 if place % 4 else 0.02 + next(number) / 10**6
                    try:
                        asked(url, own, epsilon)
                    except urllib.error.HTTPError as error:
                        lost += 1
                        error.close()
                return lost

            started = time.perf_counter()
            with ThreadPoolExecutor(CLIENTS) as pool:
                lost = sum(pool.map(client, tokens))
            taken = time.perf_counter() - started
            after = memory(serving)
            grown = ", ".join(f"{name} {after[name] / began[name]:.2f}" for name in after)
            print(f"{CLIENTS} clients × {EACH}: {lost} failed, {CLIENTS * EACH / taken:.1f}/s; memory × {grown}")
            bar(f"{lost} of {CLIENTS * EACH} questions of {CLIENTS} clients at once failed, none may", lost == 0)
            before, opened = memory(serving), handles(serving)

            def replays(_: int) -> int:
                done = 0
                while done < STATEMENTS // AT_ONCE and time.monotonic() < latest:
                    asked(url, token, 0.5)
                    done += 1
                return done

            with ThreadPoolExecutor(AT_ONCE) as pool:
                done = sum(pool.map(replays, range(AT_ONCE)))
            after = memory(serving)
            ratios = {name: after[name] / before[name] for name in after}
            grown = ", ".join(
                f"{name} {ratio:.2f} ({handles(serving)[name] - opened[name]:+} handles)"
                for name, ratio in ratios.items()
            )
            print(f"{done} statements{' in the time that was left' * (done < STATEMENTS)}: memory × {grown}")
            most = max(ratios.values())
            said = f"memory grows to {most:.2f} over {done} statements, at most {MOST_GROWTH}"
            bar(said, most <= MOST_GROWTH and done == STATEMENTS)
            print("RSS, MB: " + ", ".join(f"{name} {amount:.0f}" for name, amount in memory(serving).items()))
            door = Door(serving.broker.words[3])
            assert door.health() == {"broker": "ok"}
            door.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

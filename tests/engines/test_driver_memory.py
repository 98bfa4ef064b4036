"""The driver holds states, never rows: its memory does not grow with the table that a server reads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.spark_servers import SparkServer

FEATURES = 20
_PROGRAM = """
import json, resource, sys
from pyspark.sql.connect.session import SparkSession
import dpsql.spark
address, folder, features = sys.argv[1], sys.argv[2], int(sys.argv[3])
session = SparkSession.builder.remote(address).create()
session.conf.set("dpsql.exactParquet", "true")
given = {"target": "x0", "features": [f"x{i}" for i in range(1, features)], "lower": -1, "upper": 1, "epsilon": 1}
peaks = []
for name in ("few", "many"):
    with dpsql.spark.context(session) as dp:
        frame = session.read.parquet(f"{folder}/{name}")
        dp.dp_sis(frame, **given, k=1, target_lower=-1, target_upper=1)
        dp.dp_count(frame, by="g", keys=["0", "1"], epsilon=1, privacy_unit="pid", max_rows_per_unit=2)
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
print(json.dumps(peaks))
"""


@pytest.mark.odds("0: looks at memory and at no noise")
@pytest.mark.long
def test_the_driver_s_memory_does_not_grow_with_the_rows(sail_server: SparkServer, tmp_path: Path) -> None:
    generator = np.random.default_rng(5)
    for name, rows in (("few", 20_000), ("many", 1_000_000)):
        table = {f"x{number}": generator.uniform(-1, 1, rows) for number in range(FEATURES)}
        table |= {"pid": np.arange(rows) // 3, "g": np.arange(rows) % 2}
        (tmp_path / name).mkdir()
        pq.write_table(pa.table(table), tmp_path / name / "rows.parquet", compression="NONE")
    size = (tmp_path / "many" / "rows.parquet").stat().st_size / 2**20
    words = [sys.executable, "-c", _PROGRAM, sail_server.address, str(tmp_path), str(FEATURES)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    few, many = json.loads(done.stdout.splitlines()[-1])
    assert size > 150
    assert many - few < size / 5

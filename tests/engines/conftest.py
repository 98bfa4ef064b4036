import gc
import sys
from collections.abc import Iterator

import pytest

from support.planted_work import rows_folder
from support.spark_servers import jvm_server, jvm_session, sail_server, sail_session, spark_session

__all__ = ["jvm_server", "jvm_session", "rows_folder", "sail_server", "sail_session", "spark_session", "tidied_up"]


@pytest.fixture(autouse=True)
def tidied_up() -> Iterator[None]:
    """Let sessions that a test leaves behind be closed before the next one begins.

    pyspark closes a session in `__del__`, with the threads of a pool. Where memory is tidied up while the same thread
    submits to the pool, it waits for itself for ever.
    """
    yield
    if "pyspark.sql.connect" in sys.modules:
        gc.collect()

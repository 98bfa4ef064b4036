"""The records of a job, numbered where they are made: the driver sees whether each came, and came once.

The tasks of a job have numbers from 0, and so have the records of a task. Behind its records a task makes a row that
holds nothing but its number, which says how many they are; one such row behind the last task says how many tasks there
are. So whatever is lost on its way leaves a gap, and what comes again repeats a number. What an engine loses before it
numbers its records, such as in a shuffle, is its own to notice.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import pyarrow as pa

# The place of a row in its job: the number of its task, shifted by `PLACES`, plus its number in the task. Spark's
# monotonically_increasing_id gives the same.
NUMBER, PLACES = "dpsql_place", 33
# Whether a row ends a task, or the job; NULL in a record.
END, OF_TASK, OF_JOB = "dpsql_end", 0, 1


class IncompleteError(Exception):
    """A record was lost, or came twice."""


def ending(kind: pa.Schema) -> pa.Schema:
    """Return the type of records of a type and of rows that end them."""
    return kind.append(pa.field(END, pa.int64()))


def delivered(kind: pa.Schema) -> pa.Schema:
    """Return the same with numbers."""
    return ending(kind).append(pa.field(NUMBER, pa.int64()))


def ended(records: Iterable[pa.RecordBatch], kind: pa.Schema, end: int = OF_TASK) -> Iterator[pa.RecordBatch]:
    """Yield records of a type and, behind them, the row that ends them."""
    whole = ending(kind)
    for record in records:
        yield pa.RecordBatch.from_arrays([*record.columns, pa.nulls(record.num_rows, pa.int64())], schema=whole)
    yield pa.RecordBatch.from_pylist([{field.name: end if field.name == END else None for field in whole}], whole)


def numbered(rows: Iterable[pa.RecordBatch], place: int, kind: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield rows of `ended` with their places, from the first one of their task on; `kind` is that of `delivered`."""
    for batch in rows:
        numbers = pa.array(range(place, place + batch.num_rows), type=pa.int64())
        yield pa.RecordBatch.from_arrays([*batch.columns, numbers], schema=kind)
        place += batch.num_rows


class JobNumbers:
    """Numbers the records of one job of an engine in this process, whichever of its threads run its tasks.

    Parameters
    ----------
    kind : pyarrow.Schema
        Type of the records.
    """

    def __init__(self, kind: pa.Schema) -> None:
        self._kind = kind
        self.kind = delivered(kind)
        self._tasks = itertools.count()

    def task(self, records: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what a task makes, with numbers."""
        return numbered(ended(records, self._kind), next(self._tasks) << PLACES, self.kind)

    def last(self) -> Iterator[pa.RecordBatch]:
        """Yield the row that ends the job, once all tasks have run."""
        return numbered(ended((), self._kind, OF_JOB), next(self._tasks) << PLACES, self.kind)


def numbered_task(records: Iterable[pa.RecordBatch], kind: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the records of a type of a job that has one task, with numbers, and the row that ends the job."""
    numbering = JobNumbers(kind)
    yield from numbering.task(records)
    yield from numbering.last()


def received(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the records of a job without their numbers.

    Raises
    ------
    IncompleteError
        A record came twice; or, at the end, one was lost. What was made of those before must not be used.
    """
    seen: set[int] = set()
    ends: dict[int, list[int]] = {OF_TASK: [], OF_JOB: []}
    for batch in batches:
        numbers = batch.column(NUMBER).to_pylist()
        if len({*numbers}) < len(numbers) or not seen.isdisjoint(numbers):
            raise IncompleteError("a record came twice")
        seen.update(numbers)
        marks = batch.column(END).to_pylist()
        for number, mark in zip(numbers, marks, strict=True):
            if mark is not None:
                ends[mark].append(number)
        records = batch.drop_columns([END, NUMBER])
        places = [place for place, mark in enumerate(marks) if mark is None]
        if places:
            yield records if len(places) == len(marks) else records.take(pa.array(places, type=pa.int64()))
    whole = {number for end in ends[OF_TASK] for number in range(end >> PLACES << PLACES, end + 1)}
    if ends[OF_JOB] != [len(ends[OF_TASK]) << PLACES] or {*whole, *ends[OF_JOB]} != seen:
        raise IncompleteError("a record was lost")
    if {end >> PLACES for end in ends[OF_TASK]} != {*range(len(ends[OF_TASK]))}:
        raise IncompleteError("a task was lost")

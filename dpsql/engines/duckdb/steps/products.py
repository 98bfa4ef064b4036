"""Sums of products of the features of long rows with a target: the centre of the target, and sums over the cells."""

from __future__ import annotations

from collections.abc import Iterator

from dpsql.engines.duckdb.steps.long_rows import document, documents, features, present
from dpsql.engines.duckdb.steps.step import Frame, Step, select
from dpsql.functions.sis import SisPlan
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.rendering import call, cast, coalesce, plus


def products(frame: Frame) -> Iterator[Step]:
    """Yield the steps that sum how each present cell differs from an absent one, and add the sum over absent cells."""
    yield from documents(frame)
    yield from _center(frame)
    yield features(frame)
    centred = call("dpsql_centred", f"(SELECT mean FROM {frame.name('center')})", "target")
    yield Step(
        "centred",
        "The target less its centre, clipped again to its bounds.",
        select([document(frame), f"{centred} AS target"], frame.name("documents")),
        kept=True,
    )
    yield present(frame)
    product = call("dpsql_product", frame.ticket, "j", "value", "target")
    cells = f"{frame.name('present')} JOIN {frame.name('centred')} USING ({document(frame)})"
    note = "For each feature, what the cells that are present add to the sum."
    yield Step("sums", note, select(["j", f"{call('sum', product)} AS s"], cells, "GROUP BY j"))
    everything = f"(SELECT {coalesce(call('sum', 'target'), '0')} FROM {frame.name('centred')})"
    total = plus(coalesce("s", "0"), call("*", "absent", everything))
    joined = f"{frame.name('features')} LEFT JOIN {frame.name('sums')} USING (j)"
    yield Step("statistic", "The exact sums, integers. They never leave.", select(["j", f"{total} AS s"], joined))


def _center(frame: Frame) -> Iterator[Step]:
    """Yield the step of the centre of the target: 0, or the private mean that is drawn here from the first scan."""
    if not isinstance(frame.plan, SisPlan):
        raise TypeError("the statistic is of another plan")
    if frame.plan.center == "public":
        note = "The centre of the target: 0, the middle of its public bounds."
        yield Step("center", note, "SELECT 0::BIGINT AS mean", kept=True)
        return
    one, target = str(FIXED_POINT_ONE), cast("target", "BIGINT")
    terms = [plus(one, target), call("-", one, target)]
    totals = call("list_value", *(coalesce(call("sum", term), "0::HUGEINT") for term in terms))
    drawn = call("dpsql_center", frame.ticket, f"(SELECT sums FROM {frame.name('target_sums')})")
    note = "Two exact integer sums, from which the private mean of the target is drawn."
    yield Step("target_sums", note, select([f"{totals} AS sums"], frame.name("documents")))
    note = "The centre of the target: a private mean, which the call pays for."
    yield Step("center", note, f"SELECT {drawn} AS mean", kept=True)

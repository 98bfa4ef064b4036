"""dp_crosstab: a private contingency table with margins that agree with its cells.

Total, rows, columns and cells get noise as one vector, and least squares makes them agree
(`dpsql.statistics.counts`, `dpsql.released.crosstab`). More than two columns use all marginals of up to two columns.
Alternatively the cells alone get noise, and margins are their sums. The numbers of keys, the limits per privacy unit
and the budget determine the choice and the law of the noise: the smallest mean variance over the released marginals.
The table shows standard errors of total, rows, columns and cells at epsilon = 1 (Gaussian: delta = 1e-6). Without
delta, `noise := 'auto'` chooses the first column, except for the largest table:

=======  =========================  ======================  ===========================
table    cells, Laplace             all, Laplace            all, Gaussian
=======  =========================  ======================  ===========================
3 x 3    4.2, 2.4, 2.4, 1.4         4.2 each                6.3 each
5 x 5    7.1, 3.2, 3.2, 1.4         4.7 each                7.0 each
10 x 5   10.0, 3.2, 4.5, 1.4        4.9 each                7.4 each
=======  =========================  ======================  ===========================

Keys are public and listed. A row with an unlisted key in any column is in no marginal: otherwise margins would count
rows that are in no cell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np

from dpsql.arrays import Longs
from dpsql.contract import parameters
from dpsql.contract.arguments import BUDGET, EPSILON, Argument, Signature, flag
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout
from dpsql.contract.measurement import Measurement, measurement_of
from dpsql.contract.parameters import show
from dpsql.contract.plan import Quantity
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.functions.grouped.counts import CountedCall, CountedPlan
from dpsql.functions.grouped.plan import BY, CONFIDENCE, COUNT_DELTA, KEYS, NOISE, UNIT, read_noise
from dpsql.mechanisms.aggregates import GroupedNoise, NoisyBlock, drawable_mu, grouped_noise
from dpsql.progress import Progress
from dpsql.released.crosstab import crosstab_record, entry_weights
from dpsql.statistics.aggregates import GAUSSIAN, LAPLACE, GroupedSums, Sums
from dpsql.statistics.counts import Axes, MarginalCounts, marginals_up_to

_MOST_COLUMNS = 8
_ORDER = 2


def _column(name: str, doc: str) -> Argument:
    return Argument(name, doc, names_column=True, table_only=True, kind="str")


@dataclass(frozen=True, kw_only=True)
class CrosstabPlan(CountedPlan):
    """The checked public arguments of one ``dp_crosstab`` call; `law` is the requested noise."""

    margins: bool
    delta: Fraction | None
    law: str  # the requested noise
    confidence: Fraction

    function: ClassVar[str] = "dp_crosstab"
    arguments: ClassVar[Signature] = Signature(
        _column("rows", "Name of the column whose keys are the rows of the table."),
        _column("columns", "Name of the column whose keys are the columns of the table."),
        replace(BY, doc="Names of two to eight columns, in place of rows and columns."),
        replace(
            KEYS,
            doc="The keys of each column, from public knowledge: a struct of lists by column. Rows with any other key "
            "are in no cell and in no margin.",
            default_text="stated by the owner",
        ),
        EPSILON,
        COUNT_DELTA,
        flag(
            "margins",
            "Whether totals over columns are in the result beside the cells; of more than two columns, in place of "
            "them: the total and all tables of one or two columns.",
            True,
        ),
        *UNIT,
        NOISE,
        CONFIDENCE,
        *BUDGET,
    )

    @classmethod
    def _fill(cls, arguments: dict[str, object], protection: dict[str, object], *, of_table: bool) -> None:
        """Fill in the columns and the values that the owner declared."""
        arguments["by"] = _columns_of(arguments)
        super()._fill(arguments, protection, of_table=of_table)

    @classmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        own = super()._own(arguments, layout)
        lists = parameters.narrow(tuple, own["keys"])
        for name, keys in zip(parameters.narrow(tuple, own["by"]), lists, strict=True):
            if keys is None:
                raise ParameterError(
                    "P065", f"keys of {show(name)} are missing. Give keys := {{{show(name)}: [...]}}, the public ones."
                )
        if own["key_rows"] is not None:
            raise ParameterError("P066", "keys of a table must be a struct of lists: it has all combinations.")
        return {**own, **cls._read(arguments, "margins"), **read_noise(arguments, cls.arguments["delta"])}

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of keys of each column."""
        return tuple(len(keys or ()) for keys in self.keys or ())

    @property
    def cells(self) -> Axes:
        """The marginal of all columns."""
        return tuple(range(len(self.by)))

    @property
    def shown(self) -> tuple[Axes, ...]:
        """The marginals of the result."""
        return marginals_up_to(_ORDER, len(self.by)) if self.margins else (self.cells,)

    @cached_property
    def choice(self) -> tuple[str, MarginalCounts]:
        """The law of the noise and the marginals that get noise: the pair with the smallest mean variance."""
        laws = [LAPLACE, GAUSSIAN] if self.law == "auto" and self.delta is not None else [self.law]
        laws = [LAPLACE if law == "auto" else law for law in laws]
        designs = [MarginalCounts(self.sizes, measured) for measured in dict.fromkeys((self.shown, (self.cells,)))]
        return min(((law, design) for law in laws for design in designs), key=lambda pair: self.variance(*pair))

    def variance(self, law: str, design: MarginalCounts) -> float:
        """Return the mean variance of the released marginals, up to rounding; infinite if no noise can be drawn."""
        unit = float(np.mean([entry_weights(design, axes).variance for axes in self.shown]))
        if law == LAPLACE:
            return unit * 2 * float(design.norm(self.contribution) / self.epsilon) ** 2
        mu = drawable_mu(self.epsilon, self.delta, design.moved(self.contribution))
        return math.inf if mu is None else unit * float(design.squared_norm(self.contribution) / mu**2)

    @property
    def design(self) -> MarginalCounts:
        """The marginals that get noise."""
        return self.choice[1]

    @cached_property
    def part(self) -> GroupedNoise:
        """The part that draws the noise."""
        law, design = self.choice
        return grouped_noise("counts", self.epsilon, self.delta, self.contribution, (design,), law)

    @cached_property
    def measurement(self) -> Measurement:
        """One mechanism for all marginals."""
        return measurement_of(self.part)

    def laplace_scales(self, count: int) -> Iterable[Fraction]:
        """Return the scale of Laplace noise."""
        return self.part.laplace_scales()

    def gaussian_parts(self, count: int) -> Iterable[Fraction]:
        """Return the mu of one row."""
        return self.part.gaussian_parts()

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return the expected noise of the call."""
        [lattice] = self.part.lattices
        deviation = lattice.deviation * 2.0**lattice.bits
        errors = [deviation * float(np.sqrt(entry_weights(self.design, axes).variance)) for axes in self.shown]
        out: list[Quantity] = [
            ("largest_std_error", max(errors), "standard deviation of the noise on the noisiest number, in rows"),
            ("smallest_std_error", min(errors), "that of the most precise one"),
        ]
        if n_rows is not None:
            out.append(("share_std_error", max(errors) / n_rows, "the largest one, as a share of the rows"))
        return out


def _columns_of(arguments: Mapping[str, object]) -> list[str]:
    """Return the names of the columns from `rows` and `columns`, or from `by`."""
    axes = [name for name in ("rows", "columns") if arguments.get(name) is not None]
    if arguments.get("by") is not None:
        if axes:
            raise ParameterError("P045", f"by excludes {axes[0]}. Give rows and columns, or by.")
        columns = parameters.text_list("by", arguments["by"], hint="Give a list of two to eight names.")
        parameters.within("the number of columns in by", len(columns), None, _MOST_COLUMNS, hint="Give fewer.")
    elif len(axes) < 2:
        raise ParameterError("P046", "rows and columns are missing. Give the names of two columns, or by.")
    else:
        columns = tuple(parameters.text(name, arguments[name], hint="Give the name of a column.") for name in axes)
    if len(columns) < 2:
        raise ParameterError("P046", "a table needs two columns. Count one with dp_count and by.")
    return list(columns)


class CrosstabCall(CountedCall):
    """A dp_crosstab call, with the column types of its source."""

    plan: CrosstabPlan

    def prepare(self, statistic: GroupedSums, progress: Progress) -> Callable[[], Json]:
        """Return the draw of the table."""
        plan, counts = self.plan, self.counts(statistic)[:, 0]
        lists = [keys or () for keys in self.keys.lists]
        return lambda: crosstab_record(plan, lists, self.types, draw_crosstab(plan, counts))


def draw_crosstab(plan: CrosstabPlan, cells: Longs) -> NoisyBlock:
    """Draw the noisy marginals of a table from its exact cell counts.

    Notes
    -----
    - **Guarantee**: pure DP at ``plan.epsilon``; with Gaussian noise (epsilon, delta)-DP and mu-GDP.
    - **Neighbouring relation**: the plan's.
    - **Sensitivity**: see `dpsql.statistics.counts`.
    """
    entries = plan.design.entries(cells)
    [noisy] = plan.part.draw([Sums(entries, np.zeros_like(entries))])
    return noisy

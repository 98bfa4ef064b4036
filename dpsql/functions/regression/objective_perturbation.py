"""Objective perturbation as passes over the rows: kept rows, or on an engine one pass for each step of the solver."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from dpsql.contract.fold import Collector, Ignoring
from dpsql.errors import InternalError
from dpsql.functions.regression.scaling import KeptFeatures
from dpsql.mechanisms.objective_perturbation import PerturbedFit
from dpsql.statistics.logistic_rows import Scaling, SignedFeatures, StepSums


class LabelledRows(KeptFeatures[SignedFeatures]):
    """Rows multiplied by their label, of the features that have bounds; the solver reads them in memory."""

    @property
    def scaling(self) -> Scaling:
        """The map of the rows."""
        return self.inner.scaling


class FitStep(KeptFeatures[StepSums]):
    """A step of the solver on an engine: one pass over the rows, at coefficients that follow from the passes before.

    Parameters
    ----------
    begin : callable
        Returns the fit, which asks for sums at coefficients step by step; called after the first pass.
    kept : sequence of int
        Positions of the features with bounds.
    scaling : Scaling
    at : list of int, optional
        The coefficients, by default zeros.
    run : PerturbedFit, optional
        The fit, once it has begun.
    """

    ending = ("_begin", "_run")

    def __init__(
        self,
        begin: Callable[[], PerturbedFit],
        kept: Sequence[int],
        scaling: Scaling,
        at: list[int] | None = None,
        run: PerturbedFit | None = None,
    ) -> None:
        super().__init__(kept, StepSums(scaling, at or [0] * (1 + len(kept))))
        self._begin, self._run = begin, run

    @property
    def scaling(self) -> Scaling:
        """The map of the rows."""
        return self.inner.scaling

    def turn(self, progress: Callable[[float], None]) -> Collector:
        """Take a step; at the solver's end, draw."""
        run = self._run
        if run is None:
            run = self._begin()
            next(run)  # the first coefficients are zeros
        try:
            return FitStep(self._begin, self.kept, self.scaling, run.send(self.inner.sums), run)
        except StopIteration as end:
            return Solved(self.kept, self.scaling, end.value)

    def drawn(self) -> NDArray[np.float64]:
        """Return the coefficients, drawn after the last pass.

        Raises
        ------
        InternalError
            I022: the solver would need another pass.
        """
        last = self.turn(lambda _: None)
        if not isinstance(last, Solved):
            raise InternalError("I022", "the fit did not converge. Raise regularization.")
        return last.drawn()


class Solved(Ignoring):
    """The passes after the solver's end: none of them reads rows."""

    def __init__(self, kept: Sequence[int], scaling: Scaling, coefficients: NDArray[np.float64]) -> None:
        self.kept, self.scaling, self._coefficients = kept, scaling, coefficients

    def turn(self, progress: Callable[[float], None]) -> Collector:
        """Return itself."""
        return self

    def drawn(self) -> NDArray[np.float64]:
        """Return the coefficients."""
        return self._coefficients

"""The additive stage of a call, after the draw of its linear fit: a first pass for weights, and one for each round.

DuckDB keeps its rows, as one byte per feature; an engine reads its rows in every pass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dpsql.contract.fold import Collector, Ignoring
from dpsql.contract.json import Json
from dpsql.contract.measurement import Draw
from dpsql.functions.regression.method import KeptFeatures
from dpsql.mechanisms.additive import AdditiveSteps, StepRounds
from dpsql.statistics.additive import CellMap, CellWeights, CodedRows, ResidualSums

Result = Callable[[], Json] | Draw
Progressing = Callable[[float], None]


class StepStage(ABC):
    """The additive stage of a call.

    Attributes
    ----------
    positions : sequence of int
        Positions of the fitted features.
    rows : CellMap
    """

    positions: Sequence[int]
    rows: CellMap

    @abstractmethod
    def weights(self) -> CellWeights:
        """Return the empty statistic of the first pass."""

    @abstractmethod
    def rounds(self, counted: CellWeights) -> StepRounds:
        """Draw from the first pass, and return the rounds."""

    @abstractmethod
    def result(self, steps: AdditiveSteps | None) -> Result:
        """Return the released model."""

    def draw(self, rows: CodedRows, progress: Progressing) -> Result:
        """Draw the first pass and every round over stored rows."""
        counted = self.weights()
        rows.into(counted)
        rounds = self.rounds(counted)
        total = rounds.rounds_left
        while rounds.rounds_left:
            sums = ResidualSums(self.rows, rounds.steps, rounds.features)
            rows.into(sums)
            rounds.take(sums.sums())
            progress(1 - rounds.rounds_left / total / 2)
        return self.result(rounds.result())

    def shapes(self, steps: AdditiveSteps, unit: float) -> list[Mapping[str, Json] | None]:
        """Return each feature's steps, divided by `unit`; None for a feature without steps."""
        shapes: list[Mapping[str, Json] | None] = []
        for edges, values, errors in zip(self.rows.edges, steps.values, steps.std_errors, strict=True):
            starts = np.flatnonzero(np.diff(values) != 0.0)
            first = [0, *(starts + 1).tolist()]
            shape: Mapping[str, Json] = {
                "edges": edges[starts].tolist(),
                "values": (values[first] / unit).tolist(),
                "std_errors": (errors[first] / unit).tolist(),
            }
            shapes.append(shape if values.any() else None)
        return shapes


class FirstWeights(KeptFeatures[CellWeights]):
    """The steps on an engine, before their first round."""

    ending = ("_stage",)

    def __init__(self, stage: StepStage) -> None:
        super().__init__(stage.positions, stage.weights())
        self._stage = stage

    def turn(self, progress: Progressing) -> Collector:
        """Draw from this pass."""
        return _round(self._stage, self._stage.rounds(self.inner))


class StepRound(KeptFeatures[ResidualSums]):
    """A round of steps on an engine: one pass over the rows, with the steps that earlier rounds released."""

    ending = ("_stage", "_rounds")

    def __init__(self, stage: StepStage, rounds: StepRounds) -> None:
        super().__init__(stage.positions, ResidualSums(stage.rows, rounds.steps, rounds.features))
        self._stage, self._rounds = stage, rounds

    def turn(self, progress: Progressing) -> Collector:
        """Draw this round, and begin the next."""
        self._rounds.take(self.inner.sums())
        return _round(self._stage, self._rounds)

    def draw(self, progress: Progressing) -> Result:
        """Draw the last round."""
        self._rounds.take(self.inner.sums())
        return self._stage.result(self._rounds.result())


def _round(stage: StepStage, rounds: StepRounds) -> Collector:
    """Return the next round, or the finished call after the last round."""
    return StepRound(stage, rounds) if rounds.rounds_left else Finished(stage.result(rounds.result()))


class Finished(Ignoring):
    """The unused passes after the draw of the model."""

    def __init__(self, result: Result) -> None:
        self._result = result

    def turn(self, progress: Progressing) -> Collector:
        """Return itself."""
        return self

    def draw(self, progress: Progressing) -> Result:
        """Return the model."""
        return self._result

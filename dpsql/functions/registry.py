"""The registry of functions that read a table: plan and call of each, by SQL name."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import lru_cache

from dpsql.contract.call import Call
from dpsql.contract.plan import Plan
from dpsql.functions.auc import AucCall, AucPlan
from dpsql.functions.best_subset import BestSubsetCall, BestSubsetPlan
from dpsql.functions.confusion import ConfusionCall, ConfusionPlan
from dpsql.functions.correlation import CorrelationCall, CorrelationPlan
from dpsql.functions.covariance import CovarianceCall, CovariancePlan
from dpsql.functions.crosstab import CrosstabCall, CrosstabPlan
from dpsql.functions.grouped.aggregate import AggregateCall
from dpsql.functions.grouped.aggregate_plan import FORMS
from dpsql.functions.grouped.bounds import BoundsCall, BoundsPlan
from dpsql.functions.grouped.histogram import HistogramCall, HistogramPlan
from dpsql.functions.grouped.quantile import QuantileCall, QuantilePlan
from dpsql.functions.kendall import KendallCall, KendallPlan
from dpsql.functions.naive_bayes import NaiveBayesCall, NaiveBayesPlan
from dpsql.functions.pipeline import PipelineCall, PipelinePlan
from dpsql.functions.regression.linear import RegressionPlan
from dpsql.functions.regression.logistic import LogisticCall, LogisticPlan
from dpsql.functions.regression.method import RegressionCall
from dpsql.functions.regression_metrics import MetricsCall, MetricsPlan
from dpsql.functions.roc import RocCall, RocPlan
from dpsql.functions.score_filter import ScoreFilterCall
from dpsql.functions.score_filter_plan import ScoreFilterPlan
from dpsql.functions.sis import SisCall, SisPlan
from dpsql.functions.two_stage import TwoStageCall, TwoStagePlan
from dpsql.released.shapes import (
    AGGREGATED,
    AREA,
    COEFFICIENTS,
    CONFUSION,
    CORRELATION,
    COVARIANCE,
    CROSSTAB,
    HISTOGRAM,
    INTERVAL,
    METRICS,
    QUANTILES,
    RANKED,
    ROC,
    Shape,
)


@dataclass(frozen=True)
class Function:
    """The parts of one SQL function.

    Attributes
    ----------
    plan : type
        The class of its checked public arguments.
    call : type
        The class that computes its statistic and draws its result.
    shape : Shape
        The rows that it returns.
    doc : str
        What it does, in one sentence.
    spends : bool
        Whether a call is charged. A function that is not charged returns exact numbers and is not private.
    of_release : bool
        Whether a call with `release` alone reads the result off another function's release, at no cost.
    """

    plan: type[Plan]
    call: type[Call]
    shape: Shape
    doc: str
    spends: bool = True
    of_release: bool = False


FUNCTIONS: dict[str, Function] = {
    **{plan.function: Function(plan, AggregateCall, AGGREGATED, doc) for plan, doc in FORMS},
    "dp_histogram": Function(
        HistogramPlan, HistogramCall, HISTOGRAM, "Count the values of a column privately between public edges."
    ),
    "dp_crosstab": Function(
        CrosstabPlan, CrosstabCall, CROSSTAB, "Count the combinations of columns privately, with margins."
    ),
    "dp_sis": Function(SisPlan, SisCall, RANKED, "Select k features privately by covariance or rank correlation."),
    "dp_kendall": Function(KendallPlan, KendallCall, RANKED, "Select k features privately by rank correlation."),
    "dp_two_stage": Function(
        TwoStagePlan, TwoStageCall, RANKED, "Select k features privately by votes of block-wise Lasso fits."
    ),
    "dp_best_subset": Function(
        BestSubsetPlan, BestSubsetCall, RANKED, "Select one k-subset privately by its least squares fit."
    ),
    "dp_score_filter": Function(
        ScoreFilterPlan, ScoreFilterCall, RANKED, "Find features privately whose counts by label score high."
    ),
    "dp_linear_regression": Function(RegressionPlan, RegressionCall, COEFFICIENTS, "Fit a linear model privately."),
    "dp_pipeline": Function(
        PipelinePlan, PipelineCall, COEFFICIENTS, "Select features and fit a linear model to them under one budget."
    ),
    "dp_naive_bayes": Function(
        NaiveBayesPlan, NaiveBayesCall, COEFFICIENTS, "Fit naive Bayes privately to binary features."
    ),
    "dp_logistic_regression": Function(
        LogisticPlan, LogisticCall, COEFFICIENTS, "Fit a logistic regression privately."
    ),
    "dp_quantile": Function(QuantilePlan, QuantileCall, QUANTILES, "Draw private quantiles of a column."),
    "dp_bounds": Function(BoundsPlan, BoundsCall, INTERVAL, "Draw private bounds that hold the bulk of a column."),
    "dp_covariance": Function(
        CovariancePlan, CovarianceCall, COVARIANCE, "Release the covariance matrix of columns privately."
    ),
    "dp_correlation": Function(
        CorrelationPlan, CorrelationCall, CORRELATION, "Release the correlation matrix of columns privately."
    ),
    "dp_regression_metrics": Function(MetricsPlan, MetricsCall, METRICS, "Measure predictions privately."),
    "dp_roc": Function(RocPlan, RocCall, ROC, "Release a ROC curve of scores privately."),
    "dp_auc": Function(AucPlan, AucCall, AREA, "Release the area under a ROC curve privately.", of_release=True),
    "dp_confusion": Function(
        ConfusionPlan, ConfusionCall, CONFUSION, "Release confusion matrices at public thresholds privately."
    ),
}
SELECTORS = tuple(name for name, function in FUNCTIONS.items() if function.shape.features is not None)
MODELS = tuple(name for name, function in FUNCTIONS.items() if function.shape is COEFFICIENTS)
HISTOGRAMS = tuple(name for name, function in FUNCTIONS.items() if function.shape is HISTOGRAM)
CURVES = tuple(name for name, function in FUNCTIONS.items() if function.shape is ROC)
# Functions that return the exact statistic of a private function; they are not private.
EXACT: dict[str, str] = {"exact_xty": "dp_sis", "exact_discordant": "dp_kendall"}
_every = FUNCTIONS | {name: replace(FUNCTIONS[private], spends=False) for name, private in EXACT.items()}


def function_of(name: str) -> Function:
    """Return the parts of a SQL function, exact or private."""
    return _every[name]


@lru_cache(maxsize=256)
def plan_from_json(text: str) -> Plan:
    """Return the plan that `Plan.to_json` wrote."""
    record = json.loads(text)
    plan: Plan = FUNCTIONS[record.pop("function")].plan.from_record(record)
    return plan

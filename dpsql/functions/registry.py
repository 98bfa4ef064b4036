"""The registry of functions that read a table: plan and call of each, by SQL name.

The registry also has the arguments of dp_protect and related functions of data owners, except the table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from dpsql.contract.arguments import (
    LOWER,
    MAX_ROWS_PER_UNIT,
    NEIGHBOUR_RELATION,
    PRIVACY_UNIT,
    TARGET_LEVELS,
    TARGET_LOWER,
    TARGET_UPPER,
    UPPER,
    Argument,
    Signature,
    owner_argument,
)
from dpsql.contract.call import Call
from dpsql.contract.names import did_you_mean
from dpsql.contract.parameters import show
from dpsql.contract.periods import NO_PERIOD, PERIODS, ZONES
from dpsql.contract.plan import Plan
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.functions.auc import AucCall, AucPlan, ConfusionCall, ConfusionPlan
from dpsql.functions.best_subset import BestSubsetCall, BestSubsetPlan
from dpsql.functions.compare import CompareCall, ComparePlan
from dpsql.functions.covariance import CorrelationCall, CorrelationPlan, CovarianceCall, CovariancePlan
from dpsql.functions.crosstab import CrosstabCall, CrosstabPlan
from dpsql.functions.grouped.aggregate import FORMS, AggregateCall
from dpsql.functions.grouped.bounds import BoundsCall, BoundsPlan
from dpsql.functions.grouped.histogram import HistogramCall, HistogramPlan
from dpsql.functions.grouped.quantile import QuantileCall, QuantilePlan
from dpsql.functions.kendall import KendallCall, KendallPlan
from dpsql.functions.naive_bayes import NaiveBayesCall, NaiveBayesPlan
from dpsql.functions.pipeline import PipelineCall, PipelinePlan
from dpsql.functions.query import PARTS, QueryCall, QueryPlan
from dpsql.functions.regression.linear import RegressionPlan
from dpsql.functions.regression.logistic import LogisticCall, LogisticPlan
from dpsql.functions.regression.method import RegressionCall
from dpsql.functions.regression_metrics import MetricsCall, MetricsPlan
from dpsql.functions.roc import RocCall, RocPlan
from dpsql.functions.score_filter import ScoreFilterCall, ScoreFilterPlan
from dpsql.functions.sis import SisCall, SisPlan
from dpsql.functions.synthetic import SyntheticCall, SyntheticPlan
from dpsql.functions.two_stage import TwoStageCall, TwoStagePlan
from dpsql.released.shapes import (
    AGGREGATED,
    AREA,
    COEFFICIENTS,
    COMPARISON,
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
    SYNTHETIC,
    Shape,
)

_WHOSE = "Name of the attached engine whose table it is; DuckDB's by default."
_ENGINE = Argument(
    "engine", f"{_WHOSE} On an engine the declaration holds for the session, and for no view or frame.", kind="str"
)

DECLARATIONS: dict[str, Signature] = {
    "dp_protect": Signature(
        Argument(
            "epsilon", "Total epsilon that all calls together may spend, above 0. Give either it or rho.", kind="Number"
        ),
        Argument("delta", "Total delta that all calls together may spend, at least 0 and below 1.", kind="Number"),
        Argument(
            "rho",
            "Budget under zero-concentrated differential privacy, above 0, in place of epsilon and delta.",
            kind="Number",
        ),
        *map(owner_argument, (NEIGHBOUR_RELATION, PRIVACY_UNIT)),
        replace(
            owner_argument(MAX_ROWS_PER_UNIT),
            doc=f"{owner_argument(MAX_ROWS_PER_UNIT).doc} Of several tables, a struct may say it of each: of what "
            "reads two of them, the larger number counts.",
            kind="int | Mapping[str, int]",
        ),
        *map(owner_argument, (LOWER, UPPER, TARGET_LOWER, TARGET_UPPER, TARGET_LEVELS)),
        Argument(
            "keys",
            "Public values that a column may have, by column name: {'ward': ['A', 'B']}.",
            kind="Mapping[str, Iterable[object]]",
        ),
        Argument(
            "accountant",
            "How charges add up: 'basic', or 'rdp' for many small calls.",
            default_text="'basic'",
            choices=("basic", "rdp"),
        ),
        Argument("public", "Names of tables without personal data, which the same call declares public.", kind="Names"),
        Argument(
            "tables",
            "Several tables of the same people, which share the budget: a struct of each table's column with the "
            "person's id, or the path to it: {patients: 'id', labs: 'visit -> visits.vid'}.",
            kind="Mapping[str, str]",
        ),
        Argument(
            "merge",
            "Names of budgets that this one takes the place of: it begins with the sum of what they spent.",
            kind="Names",
        ),
        Argument("mark", "Mark the table's database, so that it can only be used with this ledger.", True),
        Argument("source", "Whether the name is a table or view; false for rows outside every catalog.", True),
        Argument("replace", "Replace an existing budget. Arguments that are left out keep their values.", False),
        Argument("engine", _WHOSE, kind="str"),
        Argument(
            "claims",
            "Whether calls may claim that a file or a frame holds rows of this budget: 'none', or 'all'. By default "
            "they may, where an engine shows that each row of its view or frame comes from one row.",
            default_text="'rows'",
            choices=("rows", "none", "all"),
        ),
        Argument(
            "enum_labels",
            "Whether the labels that ENUM columns have now are public: known without the rows. 'private' reads such "
            "columns as text.",
            default_text="'private'",
            choices=("private", "public"),
        ),
        Argument(
            "extremes",
            "What min and max in plain SQL are answered with: 'quantiles' near 0 and 1, which are private; 'refused' "
            "answers neither.",
            default_text="'refused'",
            choices=("refused", "quantiles"),
        ),
        Argument(
            "period",
            "The periods by which rows are dated, each with the whole budget for itself. 'none' withdraws them.",
            choices=(*PERIODS, NO_PERIOD),
        ),
        Argument(
            "period_of",
            "Name of the column that holds the date: a DATE or a TIMESTAMP. Of several tables, a struct of the column "
            "of each that has one: {visits: 'day'}.",
            kind="str | Mapping[str, str | None]",
        ),
        Argument(
            "period_zone",
            "The time zone of a date that is a TIMESTAMP WITH TIME ZONE.",
            choices=ZONES,
            kind='Literal["UTC"]',
        ),
        Argument(
            "epsilon_total", "Epsilon that one person may lose over all periods together, above 0.", kind="Number"
        ),
        Argument("delta_total", "Delta that one person may lose over all periods together, below 1.", kind="Number"),
        Argument(
            "default_epsilon",
            "What a question spends that states no epsilon, at most the budget's. 'none' withdraws it.",
            kind='Number | Literal["none"]',
        ),
        Argument(
            "default_delta",
            "What a question may spend of delta that needs one and states none. 'none' withdraws it.",
            kind='Number | Literal["none"]',
        ),
        Argument(
            "default_daily_epsilon",
            "What the questions of one principal that state no epsilon may spend together on a day in UTC. 'none' "
            "withdraws it.",
            default_text="10 times default_epsilon",
            kind='Number | Literal["none"]',
        ),
        Argument(
            "dated_ahead",
            "Whether rows may be dated in the future, where periods are new: what was spent before counts in later "
            "periods, too.",
            True,
        ),
    ),
    "dp_public": Signature(
        Argument("force", "Declare the table public even if it has the columns of a protected one.", False), _ENGINE
    ),
    "dp_derive": Signature(
        Argument("privacy_unit", "Name of the column in the derived table that holds the person's id.", kind="str"),
        Argument(
            "own_rows_only",
            "Whether each row is derived only from rows of its own person and from public tables.",
            False,
        ),
        Argument("one_row_each", "Whether each base row yields at most one row, derived from it alone.", False),
        _ENGINE,
    ),
    "dp_unplaced": Signature(
        Argument("engine", "Name of the attached engine whose catalog is listed; DuckDB's by default.", kind="str")
    ),
}


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
        Its purpose, in one sentence.
    spends : bool
        Whether a call is charged. A function without a charge returns exact numbers and is not private.
    of_release : bool
        Whether a call with `release` alone reads the result from another function's release, at no cost.
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
    "dp_synthetic": Function(
        SyntheticPlan, SyntheticCall, SYNTHETIC, "Release a model of a whole table privately, of which rows are made."
    ),
    "dp_compare": Function(
        ComparePlan, CompareCall, COMPARISON, "Tell privately whether two groups or two scores differ."
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
SYNTHETICS = tuple(name for name, function in FUNCTIONS.items() if function.shape is SYNTHETIC)
CURVES = tuple(name for name, function in FUNCTIONS.items() if function.shape is ROC)
# Functions that return the exact statistic of a private function; they are not private.
EXACT: dict[str, str] = {"exact_xty": "dp_sis", "exact_discordant": "dp_kendall"}
# Queries of plain SQL, whose result has the columns of the query.
QUERY = "dp_query"
_query = Function(QueryPlan, QueryCall, AGGREGATED, "Answer a query of plain SQL privately.")
_every = {
    **FUNCTIONS,
    **{name: replace(FUNCTIONS[private], spends=False) for name, private in EXACT.items()},
    QUERY: _query,
    **{
        name: Function(plan, call, AGGREGATED, "A part of dp_query.")
        for name, (plan, call) in PARTS.items()
        if "." in name
    },
}


def function_of(name: str) -> Function:
    """Return the parts of a SQL function, exact or private."""
    return _every[name]


def check_askable(names: Iterable[str]) -> None:
    """Raise unless each name is a function that spends, or ``dp_query``.

    Raises
    ------
    ParameterError
        P005.
    """
    candidates = [*(name for name, function in FUNCTIONS.items() if function.spends), QUERY]
    for name in names:
        if name not in candidates:
            step = did_you_mean(name, candidates, f"There are {', '.join(candidates)}.")
            raise ParameterError("P005", f"functions must name private functions; got {show(name)}. {step}")


@lru_cache(maxsize=256)
def plan_from_json(text: str) -> Plan:
    """Return the plan that `Plan.to_json` wrote."""
    record = json.loads(text)
    plan: Plan = _every[record.pop("function")].plan.from_record(record)
    return plan

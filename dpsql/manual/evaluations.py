"""How good predictions are."""

from __future__ import annotations

from dpsql.manual.entry import ALWAYS_SHOWN, EVALUATIONS, FREE, NO_ROWS, UNITS, Example, ManualEntry, called

_LABELLED = (
    "A missing score counts as the middle of the bounds, and one outside as the bound. A row whose label is "
    "neither class counts as no row."
)
_COUNTED = (
    "Every row is in one cell of one of two histograms, so each histogram gets the whole epsilon that the counts "
    "have. With "
    "`curve := 'identity'` every count gets Laplace noise of scale m / epsilon for m rows per person, twice that "
    "under 'replace'; the other "
    "curves release sums of cells, multiplied by the L1 norm of a column of their strategy. With `delta` the noise "
    "is Gaussian. "
)
_HELD_OUT = " A model that was fitted to the same rows looks better than it is: use rows that it has not seen."
_CURVE = (
    "FROM dp_roc('scores', label := 'label', score := 'score', thresholds := 'fixed',\n"
    "  epsilon := 1.0, release := 'roc');",
)
_RELEASED = {
    "release": "The curve's release: its name, or its number in the ledger.",
    "dataset": "The budget of the release, where two of them have a release of that name.",
}

ENTRIES = (
    ManualEntry(
        name="dp_roc",
        topic=EVALUATIONS,
        guarantee="Pure epsilon-DP without `delta`; (epsilon, delta)-DP with it. The private choice of thresholds is "
        "included.",
        neighbours=UNITS,
        sensitivity=_COUNTED
        + "'recursive' thresholds are private quantiles of all scores at `threshold_share` of epsilon; 'fixed' ones "
        "cost nothing.",
        unprotected=ALWAYS_SHOWN + _HELD_OUT,
        missing=_LABELLED,
        columns={
            "threshold": "a row is predicted positive from this score on; descending from infinity",
            "fpr": "share of negative rows that are predicted positive",
            "tpr": "share of positive rows that are predicted positive",
            "fpr_std_error": "standard deviation of the noise in fpr, to first order; NULL where noise left the "
            "class without rows",
            "tpr_std_error": "the same of tpr",
            "verdict": "'clear' if the two rates differ at this threshold, else 'unclear'",
        },
        example=called("dp_roc", "scores", label="label", score="score", n_thresholds=7, epsilon=1.0),
        papers=(
            "B. Stoddard, Y. Chen, A. Machanavajjhala, Differentially private algorithms for empirical machine "
            "learning, arXiv:1411.5428, 2014. "
            "Its recursive medians by smooth sensitivity use noise that has no law for gamma = 1 and constants of "
            "another law; "
            "'smooth_medians' has exact ones. Medians split by rank are not private: one row moves all sub-ranges",
            "H. Kaplan, S. Schnapp, U. Stemmer, Differentially private approximate quantiles, ICML 2022",
        ),
    ),
    ManualEntry(
        name="dp_precision_recall",
        topic=EVALUATIONS,
        summary="Read precision and recall off a released ROC curve, at no cost.",
        signature=("FROM dp_precision_recall(release, dataset := NULL)",),
        arguments=_RELEASED,
        guarantee=FREE,
        neighbours=NO_ROWS,
        sensitivity="None: the noisy counts of the curve are public.",
        unprotected="What the curve itself does not protect.",
        missing="As of the curve.",
        columns={
            "threshold": "as of the curve",
            "precision": "share of rows predicted positive that are",
            "recall": "share of positive rows that are predicted positive",
        },
        example=Example("FROM dp_precision_recall('roc');", 'ctx.dp_precision_recall("roc")', before=_CURVE),
        papers=("None: post-processing of a released curve.",),
    ),
    ManualEntry(
        name="dp_calibration",
        topic=EVALUATIONS,
        summary="Read off a released ROC curve how many rows of each range of scores are positive, at no cost.",
        signature=("FROM dp_calibration(release, dataset := NULL)",),
        arguments=_RELEASED,
        guarantee=FREE,
        neighbours=NO_ROWS,
        sensitivity="None: the noisy counts of the curve are public.",
        unprotected="What the curve itself does not protect.",
        missing="As of the curve.",
        columns={
            "lower": "lower end of a range of scores",
            "upper": "its upper end",
            "mean_score": "the middle of the range",
            "positive_rate": "share of its rows that are positive",
            "rows": "its rows, with noise",
        },
        example=Example("FROM dp_calibration('roc');", 'ctx.dp_calibration("roc")', before=_CURVE),
        papers=("None: post-processing of a released curve.",),
    ),
    ManualEntry(
        name="dp_auc",
        topic=EVALUATIONS,
        guarantee="Pure epsilon-DP without `delta`; (epsilon, delta)-DP with it. `dp_auc(release := 'roc')` reads a "
        "released curve and costs nothing.",
        neighbours=UNITS,
        sensitivity=(
            "Released are T, concordant less discordant pairs over the number of rows less one, and the sizes of "
            "both classes. An added row "
            "moves T by at most 1 and one size by 1; a replaced one moves T by at most 2. The Laplace scales are m / "
            "(0.6 epsilon) for T and "
            "m / (0.4 epsilon) for each size; under 'replace' 2 m / epsilon and 4 m / epsilon, because no replaced "
            "row moves both by the most. The "
            "area itself has no such bound: one row may move it by 1/2 where a class is small."
        ),
        unprotected=ALWAYS_SHOWN + _HELD_OUT,
        missing=_LABELLED,
        columns={
            "auc": "the area under the ROC curve, in [0, 1]; NULL if it is undetermined",
            "std_error": "standard deviation of the noise, to first order",
            "lower": "lower end of an interval that holds the area of these rows, with a confidence of 95 %",
            "upper": "its upper end",
            "verdict": "'clear' if the interval excludes 1/2, else 'unclear'; 'undetermined' if it is all of [0, 1]; "
            "'not measured' for 'smooth'",
        },
        example=called("dp_auc", "scores", label="label", score="score", epsilon=0.5),
        papers=(
            "The statistic is Kendall's tau-a of score and label, whose sensitivity is proved in this package. "
            "'smooth': K. Nissim, S. Raskhodnikova, "
            "A. Smith, STOC 2007, with the exact constant for Cauchy noise, which is 6 to 8 times smaller than the "
            "printed one",
        ),
        signature=("FROM dp_auc(release := 'roc', dataset := NULL)",),
    ),
    ManualEntry(
        name="dp_confusion",
        topic=EVALUATIONS,
        guarantee="Pure epsilon-DP without `delta`; (epsilon, delta)-DP with it, for all thresholds together.",
        neighbours=UNITS,
        sensitivity=_COUNTED + "The thresholds are public, so all of epsilon goes to the counts.",
        unprotected=ALWAYS_SHOWN + _HELD_OUT,
        missing=_LABELLED,
        columns={
            "threshold": "a score of at least the threshold is predicted positive",
            "true_positives": "positive rows that are predicted so, with noise",
            "false_positives": "negative rows that are predicted positive",
            "false_negatives": "positive rows that are predicted negative",
            "true_negatives": "negative rows that are predicted so",
            "accuracy": "share of rows that are predicted right",
            "precision": "share of rows predicted positive that are",
            "recall": "share of positive rows that are predicted positive",
            "f1": "harmonic mean of precision and recall",
            "std_error": "standard deviation of the noise in the counts",
            "verdict": "'clear' if the rates of the two classes differ at this threshold, else 'unclear'",
        },
        example=called("dp_confusion", "scores", label="label", score="score", thresholds=[0.4, 0.6], epsilon=0.5),
        papers=("As `dp_roc`, with public thresholds.",),
    ),
    ManualEntry(
        name="dp_regression_metrics",
        topic=EVALUATIONS,
        guarantee="Pure epsilon-DP for all metrics together.",
        neighbours=UNITS,
        sensitivity=(
            "Five sums get Laplace noise. With values mapped by the bounds to [-1, 1] and errors clipped to B, a row "
            "moves the number of rows by 1, "
            "the sum of targets by 1 (2 under 'replace'), of their squares by 1, of squared errors by B² and of "
            "absolute errors by B. They get "
            "1/13, 2/13, 2/13, 5/13 and 3/13 of epsilon. Multiply by `max_rows_per_unit`."
        ),
        unprotected=ALWAYS_SHOWN + _HELD_OUT,
        missing="NULL and NaN count as the middle of the bounds; values outside are clipped.",
        columns={
            "metric": "'r2', 'rmse', 'mae' or 'rows'",
            "value": "the estimate; NULL where noise leaves it undetermined",
            "lower": "lower end of an interval; all of them hold at once with a confidence of 95 %",
            "upper": "its upper end",
            "verdict": "'clear' if the interval excludes 0, else 'unclear'; 'undetermined' without a value",
        },
        example=called(
            "dp_regression_metrics", "scores", target="days", prediction="predicted", epsilon=0.5, lower=0, upper=30
        ),
        papers=("None: sums with Laplace noise, by the table above.",),
    ),
)

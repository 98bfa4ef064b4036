"""Fits of models."""

from __future__ import annotations

from dpsql.manual.entry import ALWAYS_SHOWN, MODELS, UNITS, ManualEntry, called

_TERMS = {
    "term": "'intercept', then the features; 'not released' where the mechanism has no answer",
    "coefficient": "in the units of the columns; 0 for a feature whose private bounds the noise hides",
    "std_error": "standard deviation of the privacy noise in the coefficient, to first order; not of sampling; NULL "
    "where it is not known",
    "verdict": "'clear' if noise does not explain the coefficient, for all features at once (95 %), else 'unclear'; "
    "'not measured' without a std_error; 'undetermined' without a coefficient",
}
_LOG_ODDS = _TERMS | {"coefficient": "contribution to the log odds of the positive class, in the units of the columns"}
_SSP = (
    "Y.-X. Wang, Revisiting differentially private linear regression, UAI 2018 (ada_ssp)",
    "S. Tang, S. Aydore, M. Kearns, S. Rho, A. Roth, Y. Wang, Y.-X. Wang, Z. S. Wu, Improved differentially private "
    "regression via "
    "gradient boosting, SaTML 2024 (boosted_ada_ssp). A published implementation adds noise of standard deviation mu "
    "in place of "
    "1 / mu; that is not private at the stated epsilon",
    "K. Amin, M. Joseph, M. Ribero, S. Vassilvitskii, Easy differentially private linear regression, ICLR 2023 "
    "(tukey). There models only "
    "come and go; a row, however, replaces the model of its block. The printed density and test spend too much for "
    "that; here both "
    "are calibrated to a replaced model",
)
_REGRESSION = (
    "For rows of norm at most R, in standard deviations or half widths of their bounds, and m rows per person: the "
    "products of all columns "
    "move by m R² in Frobenius norm (sqrt(2) m R² under 'replace'), their least eigenvalue by m R², and the products "
    "with the target by m R "
    "(2 m R under 'replace'), the target being within [-1, 1]. All Gaussian releases are calibrated together by the "
    "exact profile. "
    "'tukey': one row or person replaces the model of one block, of two under 'replace', and the depth of a point "
    "moves by 1 for each."
)

ENTRIES = (
    ManualEntry(
        name="dp_linear_regression",
        topic=MODELS,
        guarantee="(epsilon, delta)-DP for the whole call, with private bounds, standard deviations, scale and count.",
        neighbours=UNITS,
        sensitivity=_REGRESSION,
        unprotected=ALWAYS_SHOWN + " With 'tukey', that a model was not released.",
        missing="NULL and NaN count as the middle of their bounds, and values outside are clipped. 'tukey': a row "
        "without a target is in no fit.",
        columns=_TERMS,
        example=called(
            "dp_linear_regression",
            "patients",
            target="days",
            features=["age", "bmi"],
            epsilon=1.0,
            delta=1e-6,
            lower=0,
            upper={"age": 120, "bmi": 60},
            target_lower=0,
            target_upper=30,
        ),
        papers=_SSP,
    ),
    ManualEntry(
        name="dp_pipeline",
        topic=MODELS,
        guarantee="(epsilon, delta)-DP for the whole call: the selection takes `selection_share` of epsilon, and the "
        "fit the rest and all of delta.",
        neighbours=UNITS,
        sensitivity="That of the selector (`dp_kendall`, `dp_two_stage`, `dp_best_subset` or `dp_sis`), and then "
        "that of the fit: " + _REGRESSION,
        unprotected=ALWAYS_SHOWN + " Which features were selected, which is part of the result.",
        missing="As of the selector; then as of `dp_linear_regression`.",
        columns=_TERMS,
        example=called(
            "dp_pipeline",
            "patients",
            target="days",
            features=["age", "bmi", "pressure", "sugar"],
            k=2,
            epsilon=1.0,
            delta=1e-6,
        ),
        papers=_SSP,
    ),
    ManualEntry(
        name="dp_naive_bayes",
        topic=MODELS,
        guarantee="Pure epsilon-DP without `delta`; (epsilon, delta)-DP with it.",
        neighbours=UNITS,
        sensitivity=(
            "A row moves one class size by 1, and its feature counts by R = `max_features_per_row` together, none by "
            "more than 1; a replaced row moves twice "
            "as many. The sizes cost `count_share` of the budget and the counts the rest, so without `delta` the "
            "noise on a count has the "
            "scale R / ((1 - count_share) epsilon), whatever the number of features. Multiply by `max_rows_per_unit`."
        ),
        unprotected=ALWAYS_SHOWN + " The names of the features are public.",
        missing="A missing feature counts as absent; a row whose label is neither level counts as no row.",
        columns=_LOG_ODDS,
        example=called(
            "dp_naive_bayes",
            "words",
            target="spam",
            features="word",
            row_id="message",
            names=["free", "prize", "meeting", "today"],
            max_features_per_row=4,
            epsilon=1.0,
        ),
        papers=(
            "J. Vaidya, B. Shafiq, A. Basu, Y. Hong, Differentially private naive Bayes classification, WI 2013. "
            "There every count gets noise for "
            "itself; here one release covers all counts of a row, which is what its guarantee needs",
        ),
    ),
    ManualEntry(
        name="dp_logistic_regression",
        topic=MODELS,
        guarantee="Pure epsilon-DP without `delta`; (epsilon, delta)-DP with it, and private bounds and deviations "
        "are included.",
        neighbours=UNITS,
        sensitivity=(
            "The sum of logistic losses plus a ridge plus a random linear term is minimised; rows are scaled to a "
            "norm of at most 1. An added "
            "row moves the gradient by q in (0, 1) and multiplies the determinant of the second derivatives by at most "
            "1 + q (1 - q) / lambda, with the same q. Both are accounted for together, exactly. The minimiser is "
            "certified to within a "
            "public distance, which noise on a public grid covers. Persons with m rows are m steps."
        ),
        unprotected=ALWAYS_SHOWN,
        missing="A missing feature counts as the middle of its bounds (as zero with `row_norm` and in long rows); a "
        "row whose label is neither level counts as no row.",
        columns=_LOG_ODDS,
        example=called(
            "dp_logistic_regression",
            "patients",
            target="readmitted",
            target_levels=["no", "yes"],
            features=["age", "bmi"],
            epsilon=1.0,
            lower=0,
            upper={"age": 120, "bmi": 60},
        ),
        papers=(
            "K. Chaudhuri, C. Monteleoni, A. Sarwate, Differentially private empirical risk minimization, JMLR 2011: "
            "its calibration is for "
            "replaced rows, and loose, because it bounds two determinants apart",
            "D. Kifer, A. Smith, A. Thakurta, Private convex empirical risk minimization, COLT 2012: its constants "
            "are for added rows; at a fixed "
            "number of rows they lose up to 1.27 epsilon",
        ),
    ),
)

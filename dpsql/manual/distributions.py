"""Histograms, quantiles, bounds, and how columns vary together."""

from __future__ import annotations

from dpsql.manual.entry import ALWAYS_SHOWN, DISTRIBUTIONS, FREE, NO_ROWS, UNITS, Example, ManualEntry, called

_MOMENTS = (
    "With p features mapped to [-1, 1] and m rows per unit, the vector of count, sums, squares and products moves by "
    "at most, "
    "in squared L2 norm, m² (1 + p + p/4 + p (p - 1)/2), and under 'replace' 4 m² floor((p + 1)/2) ceil((p + 1)/2). "
    "In L1 norm, "
    "which pure DP needs, it is m (1 + p + p/2 + p (p - 1)/2), and under 'replace' the larger of that and "
    "m p (p + 2)² / (2 (p + 1)). All are attained."
)
_MATRIX = {
    "feature_1": "one column",
    "feature_2": "the other one",
    "value": "the estimate, with noise",
    "std_error": "standard deviation of the noise, to first order",
    "lower": "lower end of an interval for the exact number, with a confidence of 95 %",
    "upper": "its upper end",
    "verdict": "'clear' if the interval excludes 0, else 'unclear'",
}
_MATRIX_GUARANTEE = "(epsilon, delta)-DP for the whole matrix; without `delta` pure epsilon-DP, for at most 3 features."
_MATRIX_MISSING = "A row with NULL or NaN in any of the features is left out; values outside of the bounds are clipped."
_GAUSS = (
    "B. Balle, Y.-X. Wang, Improving the Gaussian mechanism for differential privacy, ICML 2018: the exact profile "
    "to which noise is calibrated",
)

ENTRIES = (
    ManualEntry(
        name="dp_histogram",
        topic=DISTRIBUTIONS,
        guarantee="Pure epsilon-DP for all groups and bins together; with `delta`, (epsilon, delta)-DP.",
        neighbours=UNITS,
        sensitivity=(
            "Every row is in one bin of one group, or in none. With K1 rows per person (1 without `privacy_unit`), "
            "every bin gets "
            "Laplace noise of scale K1 / epsilon under `curve := 'identity'`, twice that under 'replace'. The other "
            "curves release "
            "sums of bins: the L1 norm of a column of their strategy multiplies the scale, and least squares brings "
            "the noise "
            "of cumulative counts down."
        ),
        unprotected=ALWAYS_SHOWN + " Edges and keys are public; edges at quantiles of the rows would show the rows.",
        missing="NULL and NaN have a bin of their own, whose ends are NULL, unless `null_bin := false`. Values "
        "outside of lower and upper are clipped.",
        columns={
            "the columns of `by`": "the group's key, in its own type",
            "lower": "lower edge of the bin, which it does not hold; NULL for an open end",
            "upper": "upper edge of the bin, which it holds",
            "count": "rows in the bin, with noise",
            "std_error": "standard deviation of that noise",
            "count_lower": "lower end of an interval for the exact count, with `confidence`",
            "count_upper": "its upper end",
            "cumulative": "rows in this bin and those below it",
            "cumulative_std_error": "standard deviation of the noise in `cumulative`",
            "verdict": "'clear' if the interval excludes 0, else 'unclear'",
        },
        example=called("dp_histogram", "patients", target="age", lower=0, upper=120, n_bins=6, epsilon=0.5),
        papers=(
            "M. Hay, V. Rastogi, G. Miklau, D. Suciu, Boosting the accuracy of differentially private histograms "
            "through consistency, VLDB 2010 (tree)",
            "X. Xiao, G. Wang, J. Gehrke, Differential privacy via wavelet transforms, TKDE 2011 (wavelet)",
        ),
    ),
    ManualEntry(
        name="dp_histogram_quantile",
        topic=DISTRIBUTIONS,
        summary="Read quantiles off a released histogram, at no cost.",
        signature=("FROM dp_histogram_quantile(release, quantiles := 0.5, dataset := NULL)",),
        arguments={
            "release": "The histogram's release: its name, or its number in the ledger.",
            "quantiles": "One number between 0 and 1, or a list of them.",
            "dataset": "The budget of the release, where two of them have a release of that name.",
        },
        guarantee=FREE,
        neighbours=NO_ROWS,
        sensitivity="None: the release is public. Values are interpolated within the bins.",
        unprotected="What the histogram itself does not protect.",
        missing="Missing values have no quantile; the histogram's bin of NULLs is left out.",
        columns={
            "keys": "the group's key, as texts",
            "quantile": "which one",
            "value": "the value; NULL where noise hides it",
        },
        example=Example(
            "FROM dp_histogram_quantile('ages', quantiles := [0.25, 0.5, 0.75]);",
            'ctx.dp_histogram_quantile("ages", [0.25, 0.5, 0.75])',
            before=(
                "FROM dp_histogram('patients', target := 'age', lower := 0, upper := 120,\n"
                "  n_bins := 24, curve := 'auto', epsilon := 1.0, release := 'ages');",
            ),
        ),
        papers=("None: post-processing of a released histogram.",),
    ),
    ManualEntry(
        name="dp_quantile",
        topic=DISTRIBUTIONS,
        guarantee="Pure epsilon-DP for all quantiles of the call together, and for all groups of `by`; private "
        "bounds are included.",
        neighbours=UNITS
        + " With `by`, a replaced row may change its group, which costs extreme quantiles up to twice as much.",
        sensitivity=(
            "The utility of a cell is minus its distance, in rows, to the rank q n. One row moves the difference of "
            "two utilities "
            "by at most 2 max(q, 1 - q); under 'replace' by 2, and by 4 max(q, 1 - q) with `by` and from the second "
            "level of "
            "halving on. Each of the levels, ceil(log2(quantiles + 1)) of them, gets an equal share of epsilon. "
            "Multiply by the "
            "rows of a person. Without bounds, `bounds_share` of epsilon draws them first."
        ),
        unprotected=ALWAYS_SHOWN
        + " A quantile is the middle of one of `cells` public cells, so it may be off by half a cell.",
        missing="NULL and NaN are left out; values outside of the bounds are clipped.",
        columns={
            "the columns of `by`": "the group's key, in its own type",
            "quantile": "which one",
            "value": "the middle of a cell between the bounds",
            "verdict": "'not measured', because the error depends on the rows; 'undetermined' where no bounds were "
            "found",
        },
        example=called(
            "dp_quantile", "patients", target="days", quantiles=[0.25, 0.5, 0.75], epsilon=0.5, lower=0, upper=30
        ),
        papers=(
            "H. Kaplan, S. Schnapp, U. Stemmer, Differentially private approximate quantiles, ICML 2022. There the "
            "rank is fixed; here "
            "q n follows the number of rows, which is private, and the ranges above are those of that utility",
        ),
    ),
    ManualEntry(
        name="dp_bounds",
        topic=DISTRIBUTIONS,
        guarantee="Pure epsilon-DP for the interval and both counts, and for all groups of `by` together.",
        neighbours=UNITS,
        sensitivity=(
            "Three steps share epsilon. A quarter draws a start near the median by the exponential mechanism (a row "
            "moves two "
            "utilities apart by at most 1, a replaced one by 2). Three fifths stop two scans outwards at noisy "
            "thresholds of scale "
            "2 m / (3/5 epsilon), under 'replace' 3 m / (3/5 epsilon), m being the rows per person. The last 3/20 "
            "count the rows inside and outside."
        ),
        unprotected=ALWAYS_SHOWN
        + " Values outside of the interval: it holds the bulk of the column, and not all of it.",
        missing="NULL and NaN are left out.",
        columns={
            "the columns of `by`": "the group's key, in its own type",
            "lower": "lower end of the interval",
            "upper": "its upper end",
            "rows_inside": "rows whose value lies inside, with noise",
            "rows_outside": "rows whose value lies outside, with noise",
            "std_error": "standard deviation of the noise in both counts",
            "verdict": "'clear': more than half of the values lie inside, and the start was among them, each but for "
            "a chance of "
            "`failure`; 'undetermined': too few rows, and no bounds",
        },
        example=called("dp_bounds", "patients", target="days", epsilon=1.0),
        papers=(
            "A scan with noisy thresholds, as in the sparse vector technique; see M. Lyu, D. Su, N. Li, "
            "Understanding the sparse vector "
            "technique for differential privacy, VLDB 2017, for variants that are not private. The smallest and "
            "largest value of a table, "
            "which are often used as bounds, are not private: they are values of single rows",
        ),
    ),
    ManualEntry(
        name="dp_covariance",
        topic=DISTRIBUTIONS,
        guarantee=_MATRIX_GUARANTEE,
        neighbours=UNITS,
        sensitivity=_MOMENTS,
        unprotected=ALWAYS_SHOWN,
        missing=_MATRIX_MISSING,
        columns=_MATRIX,
        example=called(
            "dp_covariance",
            "patients",
            features=["age", "pressure"],
            epsilon=1.0,
            delta=1e-6,
            lower=0,
            upper={"age": 120, "pressure": 200},
        ),
        papers=_GAUSS,
    ),
    ManualEntry(
        name="dp_correlation",
        topic=DISTRIBUTIONS,
        guarantee=_MATRIX_GUARANTEE,
        neighbours=UNITS,
        sensitivity=_MOMENTS + " Correlations follow from the noisy moments; NULL where noise hides a variance.",
        unprotected=ALWAYS_SHOWN,
        missing=_MATRIX_MISSING,
        columns=_MATRIX,
        example=called(
            "dp_correlation",
            "patients",
            features=["age", "pressure", "days"],
            epsilon=1.0,
            delta=1e-6,
            lower=0,
            upper={"age": 120, "pressure": 200, "days": 30},
        ),
        papers=_GAUSS,
    ),
)

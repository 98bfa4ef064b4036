"""Counts, sums, averages and tables of counts."""

from __future__ import annotations

from dpsql.manual.entry import ALWAYS_SHOWN, COUNTS, UNITS, ManualEntry, called

_GUARANTEE = (
    "Pure epsilon-DP for all groups, targets and aggregates of the call together, as one release. With `delta` it is "
    "(epsilon, delta)-DP: noise may then be Gaussian, and `keys := 'private'` is allowed."
)
_LIMITS = (
    "A person may have m = `max_rows_per_unit` rows, r = `max_rows_per_unit_group` of them in one group, in "
    "g = `max_groups_per_unit` groups; so K1 = min(m, g r) rows count, and their squares add up to "
    "K2 = g r² if floor(m / r) >= g, else floor(m / r) r² plus the square of the rest. Without `privacy_unit` all of "
    "them are 1."
)
_UNPROTECTED = (
    f"{ALWAYS_SHOWN} Public `keys` are shown with their groups, also if no row has them. With `keys := 'private'` a "
    "key that "
    "one person alone has is shown with a chance of at most delta."
)
_GROUP_COLUMNS = {"the columns of `by`": "the group's key, in its own type"}
_COLUMNS = {
    **_GROUP_COLUMNS,
    "target": "the column that was aggregated; NULL where rows are counted",
    "aggregate": "'count', 'sum', 'avg', 'variance' or 'stddev'",
    "value": "the estimate, with noise; counts and sums are not clamped, so they may be negative",
    "std_error": "standard deviation of the noise, to first order where the estimate is a quotient; not of sampling",
    "lower": "lower end of an interval that holds the exact answer over the rows that count, with `confidence`",
    "upper": "its upper end",
    "verdict": "'clear' if the interval excludes 0, else 'unclear'; 'undetermined' without a value",
}
_MISSING = (
    "NULL and NaN of a target add nothing to it; values outside of the bounds are clipped. NULL is a key "
    "where `keys` lists it."
)
_KULESZA = (
    "A. Kulesza, A. T. Suresh, Y. Wang, Mean estimation in the add-remove model of differential privacy, 2023: a row "
    "adds "
    "its distances to both bounds, so that the count comes with the sum at no cost"
)
_CANONNE = (
    "C. Canonne, G. Kamath, T. Steinke, The discrete Gaussian for differential privacy, NeurIPS 2020: how "
    "noise is sampled"
)
_SUM = (
    "A row with value v adds the pair (v - lower, upper - v), whose L1 norm is the width upper - lower. So Laplace "
    "noise on "
    "the pair of each group has the scale K1 (upper - lower) / epsilon, twice that under 'replace'. Gaussian noise "
    "goes to "
    "centred sums instead. "
)
_SQUARES = (
    "A row with value v adds ((u - v)², 2 (u - v)(v - l), (v - l)²) for the bounds l and u, whose L1 norm is (u - "
    "l)². So Laplace "
    "noise on each of the three has the scale K1 (u - l)² / epsilon, twice that under 'replace'. Gaussian noise goes "
    "to centred "
    "sums of values and squares instead. "
)
_BOUNDS = "Without bounds, `bounds_share` of epsilon draws an interval first, as `dp_bounds` does; it is released. "


def _aggregate(name: str, sensitivity: str, **arguments: object) -> ManualEntry:
    return ManualEntry(
        name=name,
        topic=COUNTS,
        guarantee=_GUARANTEE,
        neighbours=UNITS,
        sensitivity=f"{sensitivity}{_LIMITS}",
        unprotected=_UNPROTECTED,
        missing=_MISSING,
        columns=_COLUMNS,
        example=called(name, "patients", **arguments),
        papers=(_KULESZA, _CANONNE) if name != "dp_count" else (_CANONNE,),
    )


_WARDS = {"by": "ward", "keys": ["A", "B", "C"]}
_STAY = {"target": "days", "lower": 0, "upper": 30}
ENTRIES = (
    _aggregate(
        "dp_count",
        "A row adds 1 to the count of its group. Laplace noise has the scale K1 / epsilon, twice that under "
        "'replace'; Gaussian "
        "noise has the squared L2 sensitivity K2, twice that under 'replace'. ",
        **_WARDS,
        epsilon=0.5,
    ),
    _aggregate("dp_sum", _SUM + _BOUNDS, **_STAY, **_WARDS, epsilon=0.5),
    _aggregate(
        "dp_avg", _SUM + "The average is the quotient of the noisy sum and count. " + _BOUNDS, **_STAY, epsilon=0.5
    ),
    _aggregate("dp_variance", _SQUARES + "The variance follows from them. " + _BOUNDS, **_STAY, epsilon=1.0),
    _aggregate("dp_stddev", _SQUARES + "The deviation is the root of the variance. " + _BOUNDS, **_STAY, epsilon=1.0),
    _aggregate(
        "dp_aggregate",
        "The block of noisy sums is the smallest that serves all aggregates: the count, as for `dp_count`; count and "
        "sum, as for "
        "`dp_sum`; or count, sum and squares, as for `dp_variance`. So a count beside a sum costs nothing. Several "
        "targets share "
        "epsilon. " + _BOUNDS,
        aggregates=["count", "avg", "stddev"],
        **_STAY,
        **_WARDS,
        epsilon=1.0,
    ),
    ManualEntry(
        name="dp_crosstab",
        topic=COUNTS,
        guarantee="Pure epsilon-DP for the whole table with its margins; with `delta`, (epsilon, delta)-DP.",
        neighbours=UNITS,
        sensitivity=(
            "With s marginals (total, rows, columns, cells) released as one vector, a row adds 1 to one entry of "
            "each: L1 s K1, "
            "squared L2 (s - 1) K1² + K2 where the cells are among them, both doubled under 'replace'. Or the cells "
            "alone get "
            "noise (s = 1) and margins are their sums; what has the smallest variance is taken. " + _LIMITS
        ),
        unprotected=ALWAYS_SHOWN + " The listed keys are shown, also if no row has them.",
        missing="A row with an unlisted key is in no cell and in no margin. NULL is a key where it is listed.",
        columns={
            "the columns of the table": "the keys; NULL in a column that a margin adds up over",
            "margin": "'total', the names of the columns that it shows, or 'cells'",
            "count": "the estimate; margins agree with cells, by least squares",
            "std_error": "standard deviation of the noise",
            "lower": "lower end of an interval that holds the exact count with `confidence`",
            "upper": "its upper end",
            "verdict": "'clear' if the interval excludes 0, else 'unclear'",
        },
        example=called(
            "dp_crosstab",
            "patients",
            rows="ward",
            columns="readmitted",
            keys={"ward": ["A", "B", "C"], "readmitted": ["no", "yes"]},
            epsilon=1.0,
        ),
        papers=(
            "B. Barak, K. Chaudhuri, C. Dwork, S. Kale, F. McSherry, K. Talwar, Privacy, accuracy, and consistency "
            "too, PODS 2007: "
            "noisy marginals made to agree; here by least squares on marginals with integer noise",
        ),
    ),
)

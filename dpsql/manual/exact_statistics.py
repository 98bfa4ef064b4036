"""Exact statistics, which are not private: for owners who look at their own rows, and for checks."""

from __future__ import annotations

from dpsql.manual.entry import EXACT_STATISTICS, Example, ManualEntry

_NONE = "None. NOT PRIVATE: the result is exact. Do not publish it."


def _exact(
    name: str,
    summary: str,
    signature: tuple[str, ...],
    sensitivity: str,
    missing: str,
    columns: dict[str, str],
    sql: str,
    arguments: dict[str, str],
    *before: str,
) -> ManualEntry:
    return ManualEntry(
        name=name,
        topic=EXACT_STATISTICS,
        summary=summary,
        signature=signature,
        arguments=arguments,
        guarantee=_NONE,
        neighbours="It makes no statement about neighbouring tables; the private function that uses it does.",
        sensitivity=sensitivity,
        unprotected="Anything: one row may be read off the difference of two results.",
        missing=missing,
        columns=columns,
        example=Example(sql, before=before),
        papers=("None.",),
    )


_BOUNDS = {
    "lower": "Lower bound of the feature.",
    "upper": "Upper bound of the feature.",
    "target_lower": "Lower bound of the target.",
    "target_upper": "Upper bound of the target.",
}
_SOURCE = {"source": "A table, view, file or registered frame."}
ENTRIES = (
    _exact(
        "exact_xty",
        "Add up the products of features and target exactly: the statistic of dp_sis. Not private.",
        ("SELECT exact_xty(x, y, lower, upper, target_lower, target_upper)",),
        "One row moves a component by at most 1 in units where values are mapped to [-1, 1]: 2^40 of the integers "
        "that are shown.",
        "NULL and NaN count as the middle of the bounds; values outside are clipped.",
        {
            "feature": "the feature's name",
            "xty": "the sum, in units of 2^-40 of the product of the half widths of the bounds",
        },
        "FROM exact_xty('patients', target := 'days', features := ['age', 'bmi'],\n  "
        "lower := 0, upper := 120, target_lower := 0, target_upper := 30);",
        {**_SOURCE, "x": "The feature, of the aggregate form.", "y": "The target, of the aggregate form."},
    ),
    _exact(
        "exact_discordant",
        "Count the pairs of rows that a feature orders otherwise than the target, and alike: the statistic of "
        "dp_kendall. Not private.",
        (),
        "One row is in n - 1 pairs, so it may move a count by that many.",
        "NULL and NaN tie with every value; ties count for neither.",
        {
            "feature": "the feature's name",
            "discordant": "pairs in opposite order",
            "concordant": "pairs in the same order",
        },
        "FROM exact_discordant('patients', target := 'days', features := ['age', 'bmi']);",
        _SOURCE,
    ),
    _exact(
        "exact_kendall_sql",
        "Count discordant and concordant pairs in SQL alone, for other engines. Not private.",
        ("FROM exact_kendall_sql(source, x, y)",),
        "As of exact_discordant.",
        "A pair of rows with a NULL or NaN counts for neither; ties count for neither.",
        {"concordant": "pairs in the same order", "discordant": "pairs in opposite order"},
        "FROM exact_kendall_sql('scores', 'score', 'days');",
        {**_SOURCE, "x": "Name of the one column.", "y": "Name of the other."},
    ),
    _exact(
        "exact_gram_sql",
        "Add up the products behind AdaSSP in SQL alone, for other engines. Not private.",
        ("FROM exact_gram_sql(source, x, y, lower, upper, target_lower, target_upper, row_norm := NULL)",),
        "A row moves the products by at most the square of its norm; see dp_linear_regression.",
        "NULL and NaN count as the middle of the bounds; values outside are clipped.",
        {
            "i": "one column: 0 the intercept, then the features, then the target",
            "j": "the other one, i <= j",
            "product": "the sum of their products, in units of 2^-40",
        },
        "FROM exact_gram_sql('vectors', 'x', 'y', 0, 120, 0, 30);",
        {
            **_SOURCE,
            "x": "Name of the vector column.",
            "y": "Name of the target.",
            **_BOUNDS,
            "row_norm": "Norm to which longer rows are scaled down.",
        },
        "CREATE OR REPLACE TEMP TABLE vectors AS SELECT [age, bmi] AS x, days AS y\nFROM patients;",
    ),
    _exact(
        "exact_fixed_point",
        "Return the integer, in units of 2^-20, that a value is computed as. Not private.",
        ("SELECT exact_fixed_point(v, middle, scale)",),
        "The integer of one value.",
        "NULL and NaN are 0, which is the middle of the bounds; values outside of them are clipped.",
        {"value": "a BIGINT from -2^20 to 2^20"},
        "SELECT exact_fixed_point(45.0, 60.0, 1048576 / 60.0) AS code;",
        {"v": "The value.", "middle": "Middle of its bounds.", "scale": "2^20 over half of their width."},
    ),
    _exact(
        "exact_double",
        "Return a value as the double that the exact functions read. Not private.",
        ("SELECT exact_double(v)",),
        "The number of one value.",
        "NULL stays NULL.",
        {"value": "a DOUBLE"},
        "SELECT exact_double(1.5::DECIMAL(3, 1)) AS number;",
        {"v": "A number of any type."},
    ),
)

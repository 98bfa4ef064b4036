"""The SQL functions as methods. Written by ``python -m dpsql.generate`` from the lists of arguments."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, SupportsFloat, SupportsInt, TypeAlias, overload

import polars as pl
import pyarrow as pa

from dpsql.released.release import Release

OF_FRAME: tuple[str, ...]

# Numbers of Python, of `fractions` and `decimal`, and of NumPy; text is none. An integer may be written 1e6.
Number: TypeAlias = SupportsFloat
Integer: TypeAlias = SupportsInt
Numbers: TypeAlias = Number | Iterable[Number]
Names: TypeAlias = str | Iterable[str]
# One number for all columns, one for each in their order, or by name.
Bounds: TypeAlias = Number | Iterable[Number] | Mapping[str, Number]
Keys: TypeAlias = str | Iterable[object] | Mapping[str, Iterable[object]]
Features: TypeAlias = str | Iterable[str] | Mapping[str, object] | Release

class ContextMethods:
    """The methods of `dpsql.Context` for the SQL functions of the same names, with the same arguments."""

    def dp_protect(
        self,
        dataset: str,
        *,
        epsilon: Number | None = None,
        delta: Number | None = None,
        rho: Number | None = None,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: int | Mapping[str, int] | None = None,
        lower: Bounds | None = None,
        upper: Bounds | None = None,
        target_lower: Number | None = None,
        target_upper: Number | None = None,
        target_levels: Iterable[object] | None = None,
        keys: Mapping[str, Iterable[object]] | None = None,
        accountant: Literal["basic", "rdp"] | None = None,
        public: Names | None = None,
        tables: Mapping[str, str] | None = None,
        merge: Names | None = None,
        mark: bool | None = True,
        source: bool | None = True,
        replace: bool | None = False,
        engine: str | None = None,
        claims: Literal["rows", "none", "all"] | None = None,
        enum_labels: Literal["private", "public"] | None = None,
        extremes: Literal["refused", "quantiles"] | None = None,
        period: Literal["day", "week", "month", "quarter", "year", "none"] | None = None,
        period_of: str | Mapping[str, str | None] | None = None,
        period_zone: Literal["UTC"] | None = None,
        epsilon_total: Number | None = None,
        delta_total: Number | None = None,
        default_epsilon: Number | Literal["none"] | None = None,
        default_delta: Number | Literal["none"] | None = None,
        default_daily_epsilon: Number | Literal["none"] | None = None,
        dated_ahead: bool | None = True,
    ) -> str:
        """Set the budget of a table; return the new state, in words.

        On an engine, the table is in the engine's catalog, under its full name. Other rows there use the budget that
        each call names.

        Parameters
        ----------
        dataset : str
            A table or view, or the name of rows that are in no catalog.
        epsilon : optional
            Total epsilon that all calls together may spend, above 0. Give either it or rho.
        delta : optional
            Total delta that all calls together may spend, at least 0 and below 1.
        rho : optional
            Budget under zero-concentrated differential privacy, above 0, in place of epsilon and delta.
        neighbours : {'add_remove', 'replace'}, optional
            For calls that leave it out: The neighbouring relation: tables that differ by adding or removing one row or
            person ('add_remove'), or by replacing one ('replace').
        privacy_unit : optional
            For calls that leave it out: Name of the column of the id of the person to protect. Without it one row is
            protected.
        max_rows_per_unit : optional
            For calls that leave it out: Rows that one person may contribute, from 1 to 1000000000. A random choice of
            them counts. Of several tables, a struct may say it of each: of what reads two of them, the larger number
            counts.
        lower : optional
            For calls that leave it out: Public lower bound of the features, in their own units: one number, a list with
            one per feature, or a struct by name. Values are clipped to it.
        upper : optional
            For calls that leave it out: Public upper bound of the features, in the same form as lower and above it.
            Values are clipped to it.
        target_lower : optional
            For calls that leave it out: Public lower bound of a numeric target, one number in its own unit.
        target_upper : optional
            For calls that leave it out: Public upper bound of a numeric target, above target_lower.
        target_levels : optional
            For calls that leave it out: The two public levels of a text target: the first is coded -1, the second +1,
            and any other value as 0.
        keys : optional
            Public values that a column may have, by column name: {'ward': ['A', 'B']}.
        accountant : {'basic', 'rdp'}, default 'basic'
            How charges add up: 'basic', or 'rdp' for many small calls.
        public : optional
            Names of tables without personal data, which the same call declares public.
        tables : optional
            Several tables of the same people, which share the budget: a struct of each table's column with the person's
            id, or the path to it: {patients: 'id', labs: 'visit -> visits.vid'}.
        merge : optional
            Names of budgets that this one takes the place of: it begins with the sum of what they spent.
        mark : default True
            Mark the table's database, so that it can only be used with this ledger.
        source : default True
            Whether the name is a table or view; false for rows outside every catalog.
        replace : default False
            Replace an existing budget. Arguments that are left out keep their values.
        engine : optional
            Name of the attached engine whose table it is; DuckDB's by default.
        claims : {'rows', 'none', 'all'}, default 'rows'
            Whether calls may claim that a file or a frame holds rows of this budget: 'none', or 'all'. By default they
            may, where an engine shows that each row of its view or frame comes from one row.
        enum_labels : {'private', 'public'}, default 'private'
            Whether the labels that ENUM columns have now are public: known without the rows. 'private' reads such
            columns as text.
        extremes : {'refused', 'quantiles'}, default 'refused'
            What min and max in plain SQL are answered with: 'quantiles' near 0 and 1, which are private; 'refused'
            answers neither.
        period : {'day', 'week', 'month', 'quarter', 'year', 'none'}, optional
            The periods by which rows are dated, each with the whole budget for itself. 'none' withdraws them.
        period_of : optional
            Name of the column that holds the date: a DATE or a TIMESTAMP. Of several tables, a struct of the column of
            each that has one: {visits: 'day'}.
        period_zone : {'UTC'}, optional
            The time zone of a date that is a TIMESTAMP WITH TIME ZONE.
        epsilon_total : optional
            Epsilon that one person may lose over all periods together, above 0.
        delta_total : optional
            Delta that one person may lose over all periods together, below 1.
        default_epsilon : optional
            What a question spends that states no epsilon, at most the budget's. 'none' withdraws it.
        default_delta : optional
            What a question may spend of delta that needs one and states none. 'none' withdraws it.
        default_daily_epsilon : default 10 times default_epsilon
            What the questions of one principal that state no epsilon may spend together on a day in UTC. 'none'
            withdraws it.
        dated_ahead : default True
            Whether rows may be dated in the future, where periods are new: what was spent before counts in later
            periods, too.
        """

    def dp_public(
        self,
        table: str,
        *,
        force: bool | None = False,
        engine: str | None = None,
    ) -> str:
        """Declare that a table is public: it holds nothing about any privacy unit, so views may join it.

        On an engine, the table is in the engine's catalog, and the declaration holds for this session.

        Parameters
        ----------
        table : str
            A table or view.
        force : default False
            Declare the table public even if it has the columns of a protected one.
        engine : optional
            Name of the attached engine whose table it is; DuckDB's by default. On an engine the declaration holds for
            the session, and for no view or frame.
        """

    def dp_derive(
        self,
        table: str,
        base: str,
        *,
        privacy_unit: str | None = None,
        own_rows_only: bool | None = False,
        one_row_each: bool | None = False,
        engine: str | None = None,
    ) -> str:
        """Declare that a table was made from a protected one; return the new state, in words.

        On an engine, the table is in the engine's catalog, and the declaration holds for this session. The base is
        another table of the engine, or any budget.

        Parameters
        ----------
        table : str
            A table or view.
        base : str
            The protected table that it was made from.
        privacy_unit : optional
            Name of the column in the derived table that holds the person's id.
        own_rows_only : default False
            Whether each row is derived only from rows of its own person and from public tables.
        one_row_each : default False
            Whether each base row yields at most one row, derived from it alone.
        engine : optional
            Name of the attached engine whose table it is; DuckDB's by default. On an engine the declaration holds for
            the session, and for no view or frame.
        """

    def dp_unplaced(
        self,
        *,
        engine: str | None = None,
    ) -> pa.Table:
        """Return every undeclared table, with the statements that would declare it.

        On an engine it lists the tables of the engine's catalog.

        Parameters
        ----------
        engine : optional
            Name of the attached engine whose catalog is listed; DuckDB's by default.
        """

    def query(
        self,
        sql: str,
        *,
        epsilon: Number | None = None,
        delta: Number | None = None,
        errors: bool | None = False,
        keys: Keys | None = None,
        lower: Bounds | None = None,
        upper: Bounds | None = None,
        during: Names | None = None,
        max_rows_per_unit: Integer | None = None,
        max_groups_per_unit: Integer | None = None,
        left_out_share: Number | None = None,
        confidence: Number | None = 0.95,
        release: str | None = None,
        max_age: Number | None = None,
        estimate: bool | None = False,
        fresh: bool | None = False,
    ) -> Any:
        """Answer a query of plain SQL privately, as `dp_query` does in SQL.

        It returns a `Release`; a query that reads no private rows costs nothing, and returns an Arrow table.

        Parameters
        ----------
        epsilon : required where the owner states no default_epsilon
            Privacy loss of the whole call, from 1e-15 to 1e12. 1.0 is usual.
        delta : optional
            Chance that the guarantee fails, from 1e-300 to 0.1. Without it pure DP; with it noise may be Gaussian, and
            keys may be private.
        errors : default False
            Whether every column of noisy numbers has its error, interval and verdict beside it.
        keys : default what the query and the owner say
            Public values of the columns to group by, which the owner has not stated: a struct of lists by column.
            'private' releases keys that many units have, and needs delta.
        lower : default what the query and the owner say, or drawn privately
            Public lower bounds of columns whose values are summed, a struct by column.
        upper : default as lower
            Public upper bounds, in the same form as lower.
        during : required where the owner stated periods
            Periods whose rows count, and whose budgets are charged: '2026-10', a list of names, or '2026-01/2026-12'
            from the first to the last.
        max_rows_per_unit : default stated by the owner
            Rows that one person may contribute, from 1 to 1000000000, of those that a core groups. A random choice of
            them counts. 'drawn' spends 5 % of epsilon to draw it: the 99th percentile of the rows per person.
        max_groups_per_unit : default max_rows_per_unit
            Groups in which one person may have rows. A random choice of them counts.
        left_out_share : default 0.05, where a person may have more rows than count
            Share of epsilon, from 0 to below 1, that tells how many persons have more rows than count, and how much
            fell away. Numbers are 'biased' where that is more than their intervals show.
        confidence : default 0.95
            Chance, from 0.01 to 0.999999, that an interval holds the exact answer over the rows that count, each by
            itself.
        release : optional
            Name of this release. The same call with the same name returns the stored result and costs nothing.
        max_age : default 24 hours; with release, any age
            How old an answer to the same query may be to be returned again at no cost: an INTERVAL, or a number of
            hours.
        estimate : default False
            Whether it is only told what the query would cost, and how noisy its columns would be; nothing is read or
            charged.
        fresh : default False
            Whether the query is asked anew, at a charge, although its answer is stored.
        """

    dp_query = query

    def dp_estimate(
        self,
        function: str = "dp_sis",
        *,
        n_features: Integer | None = None,
        k: Integer | None = None,
        epsilon: Number | None = None,
        delta: Number | None = None,
        n_rows: Integer | None = None,
        neighbours: Literal["add_remove", "replace"] | None = None,
        mechanism: Literal["one_shot", "gumbel", "canonical_lipschitz"]
        | Literal["gumbel", "exponential"]
        | None = None,
        gamma: Number | None = None,
        center: Literal["public", "target"] | None = None,
        center_share: Number | None = None,
        split: Literal["even", "scaled"] | Literal["even", "thirds"] | None = None,
        blocks: Integer | None = None,
        rows_per_block: Integer | None = None,
        count_share: Number | None = None,
        range_share: Number | None = None,
        radius: Number | None = None,
        intercept: bool | None = None,
        method: Literal["auto", "exact", "steps", "top_r"]
        | Literal["auto", "gaussian", "laplace", "svt", "cluster", "one_shot", "gumbel", "canonical_lipschitz"]
        | Literal["auto", "ada_ssp", "boosted_ada_ssp", "tukey", "additive"]
        | Literal["linear", "additive"]
        | Literal["scaled", "smooth"]
        | None = None,
        selector: Literal["kendall", "two_stage", "best_subset", "sis"] | None = None,
        selection_share: Number | None = None,
        selection_blocks: Integer | None = None,
        lower: Number | Bounds | None = None,
        upper: Number | Bounds | None = None,
        target_lower: Number | None = None,
        target_upper: Number | None = None,
        target_levels: Iterable[object] | None = None,
        row_norm: Number | None = None,
        rounds: Integer | None = None,
        bounds_share: Number | None = None,
        scale_share: Number | None = None,
        quantiles: Numbers | None = None,
        cells: Integer | Number | None = None,
        interval_share: Number | None = None,
        error_bound: Number | None = None,
        score: Literal["covariance", "rank"]
        | Literal["total_count", "difference_count", "purity", "information_gain"]
        | str
        | None = None,
        threshold: Number | None = None,
        max_features_per_row: Integer | None = None,
        n_max: Integer | None = None,
        cutoff: Integer | None = None,
        false_positives: Number | None = None,
        clusters: Integer | None = None,
        vocabulary: Literal["public", "private"] | None = None,
        vocabulary_share: Number | None = None,
        regularization: Number | None = None,
        thresholds: Numbers | Literal["recursive", "fixed", "smooth_medians"] | None = None,
        n_thresholds: Integer | None = None,
        threshold_share: Number | None = None,
        curve: Literal["auto", "identity", "tree", "wavelet", "toeplitz"] | None = None,
        aggregates: Names | None = None,
        keys: Keys | Mapping[str, Iterable[object]] | Iterable[object] | None = None,
        max_groups_per_unit: Integer | None = None,
        max_rows_per_unit_group: Integer | None = None,
        unit_value: Literal["rows", "sum"] | None = None,
        noise: Literal["auto", "laplace", "gaussian"] | None = None,
        ddof: Number | None = None,
        confidence: Number | None = None,
        max_rows_per_unit: Integer | None = None,
        left_out_share: Number | None = None,
        bins: Numbers | None = None,
        n_bins: Integer | None = None,
        null_bin: bool | None = None,
        margins: bool | None = None,
        verdict_share: Number | None = None,
        verdict: Literal["set", "each"] | None = None,
        standardize: bool | None = None,
        moments_share: Number | None = None,
        of: Literal["mean", "share", "count", "auc", "error"] | None = None,
        loss: Literal["zero_one", "absolute", "squared"] | None = None,
        sampling: bool | None = None,
        sql: str | None = None,
        during: Names | None = None,
    ) -> pa.Table:
        """Return the cost and the noise of a call; reads no table.

        Parameters
        ----------
        function : str
            A function that spends, such as ``'dp_sis'``.
        n_features : optional
            Number of features, from 1 to 1000000; not for functions of one column.
        k : optional
            As of dp_sis, dp_kendall, dp_two_stage, dp_best_subset, dp_score_filter, dp_pipeline.
        epsilon : optional
            Privacy loss of the whole call, from 1e-15 to 1e12. 1.0 is usual.
        delta : optional
            As of dp_count, dp_sum, dp_avg, dp_variance, dp_stddev, dp_aggregate, dp_histogram, dp_crosstab,
            dp_synthetic, dp_compare, dp_score_filter, dp_linear_regression, dp_pipeline, dp_naive_bayes,
            dp_logistic_regression, dp_covariance, dp_correlation, dp_roc, dp_auc, dp_confusion.
        n_rows : optional
            A public guess of the number of rows, up to 1e12, to which noise is compared.
        neighbours : optional
            The neighbouring relation: tables that differ by adding or removing one row or person ('add_remove'), or by
            replacing one ('replace').
        mechanism : optional
            As of dp_sis, dp_kendall, dp_two_stage.
        gamma : optional
            Weight of the canonical Lipschitz loss, between 0 and 1.
        center : optional
            Centre the target at the middle of its bounds, or at its private mean.
        center_share : optional
            Share of epsilon spent on a private mean of the target, between 0 and 1.
        split : optional
            As of dp_kendall, dp_linear_regression, dp_pipeline.
        blocks : optional
            As of dp_kendall, dp_two_stage, dp_linear_regression, dp_pipeline.
        rows_per_block : optional
            Average number of rows per block; the number of blocks is then derived from a private row count.
        count_share : optional
            As of dp_two_stage, dp_linear_regression, dp_pipeline, dp_naive_bayes.
        range_share : optional
            Tukey: share of epsilon spent on the range of predictions, between 0 and 1.
        radius : optional
            Radius of the ball of coefficients, from 1e-6 to 1e6. One unit is half the width of the target's bounds per
            half the width of a feature's bounds.
        intercept : optional
            As of dp_two_stage, dp_best_subset.
        method : optional
            As of dp_best_subset, dp_score_filter, dp_linear_regression, dp_pipeline, dp_logistic_regression, dp_auc.
        selector : optional
            Which selector chooses the features.
        selection_share : optional
            Share of epsilon spent on the selection, between 0 and 1.
        selection_blocks : optional
            Public number of blocks for the selector 'two_stage', from 1 to 1000000.
        lower : optional
            As of dp_sum, dp_avg, dp_variance, dp_stddev, dp_aggregate, dp_histogram, dp_synthetic, dp_compare, dp_sis,
            dp_best_subset, dp_linear_regression, dp_pipeline, dp_logistic_regression, dp_quantile, dp_covariance,
            dp_correlation, dp_regression_metrics, dp_roc, dp_auc, dp_confusion.
        upper : optional
            As of dp_sum, dp_avg, dp_variance, dp_stddev, dp_aggregate, dp_histogram, dp_synthetic, dp_compare, dp_sis,
            dp_best_subset, dp_linear_regression, dp_pipeline, dp_logistic_regression, dp_quantile, dp_covariance,
            dp_correlation, dp_regression_metrics, dp_roc, dp_auc, dp_confusion.
        target_lower : optional
            Public lower bound of a numeric target, one number in its own unit.
        target_upper : optional
            Public upper bound of a numeric target, above target_lower.
        target_levels : optional
            As of dp_compare, dp_sis, dp_kendall, dp_two_stage, dp_best_subset, dp_score_filter, dp_linear_regression,
            dp_pipeline, dp_naive_bayes, dp_logistic_regression, dp_roc, dp_auc, dp_confusion.
        row_norm : optional
            As of dp_linear_regression, dp_pipeline, dp_logistic_regression.
        rounds : optional
            Boosting: number of rounds, from 1 to 100000.
        bounds_share : optional
            As of dp_sum, dp_avg, dp_variance, dp_stddev, dp_aggregate, dp_synthetic, dp_linear_regression, dp_pipeline,
            dp_logistic_regression, dp_quantile.
        scale_share : optional
            Boosting: share of epsilon spent on the target's quantiles, between 0 and 1.
        quantiles : optional
            The quantiles to draw: one number between 0 and 1, or up to 1000 in ascending order.
        cells : optional
            As of dp_compare, dp_quantile, dp_roc, dp_auc.
        interval_share : optional
            Share of epsilon, from 0 to below 1, that pays for the intervals of the quantiles.
        error_bound : optional
            Bound that errors are clipped to, above 0, in the unit of the target.
        score : optional
            As of dp_sis, dp_score_filter, dp_roc, dp_auc, dp_confusion.
        threshold : optional
            Report the features whose score is at least this, from 0, in rows or in nats times rows. Give it or k.
        max_features_per_row : optional
            Number of features that count in full per row, from 1 to 999999. Of a row with more, each counts an equal
            share of it. A smaller number means less noise.
        n_max : optional
            Public limit on the number of rows that count, for exact information gain.
        cutoff : optional
            For 'svt': the largest number of features to report, from 1 to 1000000.
        false_positives : optional
            Largest expected number of reported features that no row has, from 1e-12 to 1e12.
        clusters : optional
            For 'cluster': number of clusters, from 2 to 1000.
        vocabulary : optional
            Whether feature names of long rows are public, or drawn privately.
        vocabulary_share : optional
            Share of the budget spent on a private vocabulary, between 0 and 1.
        regularization : optional
            Ridge penalty: weight of the squared coefficients against the loss summed over all rows, above 0.
        thresholds : optional
            As of dp_compare, dp_roc, dp_confusion.
        n_thresholds : optional
            Number of thresholds, from 1 to 255 and below the number of cells.
        threshold_share : optional
            Share of epsilon spent on choosing the thresholds, between 0 and 1.
        curve : optional
            As of dp_histogram, dp_roc, dp_confusion.
        aggregates : optional
            What to compute of every target: some of 'count', 'sum', 'avg', 'variance' and 'stddev', from the same
            noise.
        keys : optional
            As of dp_count, dp_sum, dp_avg, dp_variance, dp_stddev, dp_aggregate, dp_histogram, dp_crosstab,
            dp_synthetic, dp_compare, dp_quantile, dp_bounds.
        max_groups_per_unit : optional
            Groups in which one person may have rows. A random choice of them counts.
        max_rows_per_unit_group : optional
            Rows that one person may contribute to a group. A random choice of them counts.
        unit_value : optional
            What a person contributes to a group: its 'rows', or the 'sum' of its values as one row, whose bounds are
            lower and upper.
        noise : optional
            The law of the noise; 'auto' takes what is smaller.
        ddof : optional
            As of dp_variance, dp_stddev, dp_aggregate, dp_covariance.
        confidence : optional
            Chance, from 0.01 to 0.999999, that an interval holds the exact answer over the rows that count, each by
            itself.
        max_rows_per_unit : optional
            Rows that one person may contribute, from 1 to 1000000000. A random choice of them counts.
        left_out_share : optional
            Share of epsilon, from 0 to below 1, that tells how many units have more rows than count, and how much fell
            away. Rows are 'biased' where that is more than their intervals show.
        bins : optional
            Public edges, ascending: a bin holds the values above one edge and up to the next, and there is a bin below
            the first and one above the last, in place of lower, upper and n_bins. A bare number is n_bins.
        n_bins : optional
            Number of bins of equal width between lower and upper, up to 1023.
        null_bin : optional
            Whether rows whose value is NULL or NaN are counted in a bin of their own.
        margins : optional
            Whether totals over columns are in the result beside the cells; of more than two columns, in place of them:
            the total and all tables of one or two columns.
        verdict_share : optional
            Share of epsilon, from 0 to below 1, that pays for the verdict. Only for rank scores of all rows.
        verdict : optional
            What verdict_share pays for: by how much the set leads over shuffled targets, or the score of each feature.
        standardize : optional
            As of dp_two_stage, dp_linear_regression, dp_pipeline, dp_logistic_regression.
        moments_share : optional
            As of dp_linear_regression, dp_pipeline, dp_logistic_regression.
        of : optional
            What is compared: the mean of a column, the share of rows in which it is true, or the number of rows, in two
            groups; or the area or the error of two scores on the same rows.
        loss : optional
            The error of a row: whether the predicted class is wrong, or how far the prediction is off.
        sampling : optional
            As of dp_avg, dp_aggregate, dp_compare, dp_linear_regression, dp_correlation, dp_auc.
        sql : optional
            For dp_query alone. One SELECT of at most 100,000 characters, as text or as a parameter.
        during : optional
            For dp_query alone. Periods whose rows count, and whose budgets are charged: '2026-10', a list of names, or
            '2026-01/2026-12' from the first to the last.
        """

    def dp_count(
        self,
        source: object,
        *,
        target: Names | None = None,
        distinct_of: Names | None = None,
        epsilon: Number | None = None,
        delta: Number | None = None,
        by: Names | None = None,
        keys: Keys | None = None,
        other: bool | None = False,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        max_groups_per_unit: Integer | None = None,
        max_rows_per_unit_group: Integer | None = None,
        left_out_share: Number | None = None,
        noise: Literal["auto", "laplace", "gaussian"] | None = "auto",
        confidence: Number | None = 0.95,
        dataset: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        engine: str | None = None,
        during: Names | None = None,
    ) -> Release:
        """Count rows, values or distinct units privately, in groups.

        Parameters
        ----------
        source : str or frame
            Table, view or registered name; or a Polars, pandas or Arrow frame, for which give `dataset`.
        target : optional
            Count the values of this column, or of several, in place of rows.
        distinct_of : optional
            Name of a column whose different values are counted, in place of rows: of the privacy unit, or of items, of
            which at most max_rows_per_unit_group of a person count in a group.
        epsilon : required where the owner states no default_epsilon
            Privacy loss of the whole call, from 1e-15 to 1e12. 1.0 is usual.
        delta : optional
            Chance that the guarantee fails, from 1e-300 to 0.1. Without it pure DP; with it noise may be Gaussian, and
            keys may be private.
        by : optional
            Names of the columns to group by: one name, or a list. All groups are one release.
        keys : default stated by the owner, or by the column's type
            The groups, from public knowledge: a list of values, a struct of lists by column (all combinations), or a
            list of structs. BOOLEAN columns need none, nor ENUMs with declared labels. 'private' releases keys that
            many units have, and needs delta.
        other : default False
            Whether rows of all other keys form one group more, in which the column other is true.
        neighbours : {'add_remove', 'replace'}, default 'add_remove', or stated by the owner
            The neighbouring relation: tables that differ by adding or removing one row or person ('add_remove'), or by
            replacing one ('replace').
        privacy_unit : optional
            Name of the column of the id of the person to protect. Without it one row is protected.
        max_rows_per_unit : required with privacy_unit
            Rows that one person may contribute, from 1 to 1000000000. A random choice of them counts.
        max_groups_per_unit : default max_rows_per_unit
            Groups in which one person may have rows. A random choice of them counts.
        max_rows_per_unit_group : default max_rows_per_unit
            Rows that one person may contribute to a group. A random choice of them counts.
        left_out_share : default 0.05, where limits may leave rows out
            Share of epsilon, from 0 to below 1, that tells how many units have more rows than count, and how much fell
            away. Rows are 'biased' where that is more than their intervals show.
        noise : {'auto', 'laplace', 'gaussian'}, default 'auto'
            The law of the noise; 'auto' takes what is smaller.
        confidence : default 0.95
            Chance, from 0.01 to 0.999999, that an interval holds the exact answer over the rows that count, each by
            itself.
        dataset : default the source's name
            Name of the budget that is charged.
        release : optional
            Name of this release. The same call with the same name returns the stored result and costs nothing.
        condition : optional
            A condition on one row as text, such as 'age >= 18': only rows that meet it count. Rows for which it is NULL
            or an error do not.
        engine : default DuckDB itself
            Name of the attached engine that holds the source, see `dpsql.attach_engine`.
        during : required where the owner stated periods
            Periods whose rows count, and whose budgets are charged: '2026-10', a list of names, or '2026-01/2026-12'
            from the first to the last.

        Returns
        -------
        release : Release
            ``target``, ``aggregate``, ``value``, ``std_error``, ``lower``, ``upper``, ``verdict``, ``covers``,
            ``speaks_of``.

        Raises
        ------
        DpsqlError
            With a code and the next step; it depends on public values only.
        """

    def dp_sum(
        self,
        source: object,
        *,
        target: Names,
        epsilon: Number | None = None,
        delta: Number | None = None,
        lower: Number | None = None,
        upper: Number | None = None,
        bounds_share: Number | None = 0.25,
        by: Names | None = None,
        keys: Keys | None = None,
        other: bool | None = False,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        max_groups_per_unit: Integer | None = None,
        max_rows_per_unit_group: Integer | None = None,
        left_out_share: Number | None = None,
        unit_value: Literal["rows", "sum"] | None = "rows",
        group_sizes: Numbers | None = None,
        noise: Literal["auto", "laplace", "gaussian"] | None = "auto",
        confidence: Number | None = 0.95,
        dataset: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        engine: str | None = None,
        during: Names | None = None,
    ) -> Release:
        """Add up a column privately, in groups.

        Parameters
        ----------
        source : str or frame
            Table, view or registered name; or a Polars, pandas or Arrow frame, for which give `dataset`.
        target : required
            Name of the column to aggregate, or a list of names. Rows whose value is NULL or NaN add nothing to it.
        epsilon : required where the owner states no default_epsilon
            Privacy loss of the whole call, from 1e-15 to 1e12. 1.0 is usual.
        delta : optional
            Chance that the guarantee fails, from 1e-300 to 0.1. Without it pure DP; with it noise may be Gaussian, and
            keys may be private.
        lower : default drawn privately
            Public lower bound of the values: one number, a list with one per target, or a struct by name. Values are
            clipped to it.
        upper : default drawn privately
            Public upper bound of the values: one number, a list with one per target, or a struct by name. Values are
            clipped to it.
        bounds_share : default 0.25
            Share of epsilon spent on private bounds where none are given, between 0 and 1.
        by : optional
            Names of the columns to group by: one name, or a list. All groups are one release.
        keys : default stated by the owner, or by the column's type
            The groups, from public knowledge: a list of values, a struct of lists by column (all combinations), or a
            list of structs. BOOLEAN columns need none, nor ENUMs with declared labels. 'private' releases keys that
            many units have, and needs delta.
        other : default False
            Whether rows of all other keys form one group more, in which the column other is true.
        neighbours : {'add_remove', 'replace'}, default 'add_remove', or stated by the owner
            The neighbouring relation: tables that differ by adding or removing one row or person ('add_remove'), or by
            replacing one ('replace').
        privacy_unit : optional
            Name of the column of the id of the person to protect. Without it one row is protected.
        max_rows_per_unit : required with privacy_unit
            Rows that one person may contribute, from 1 to 1000000000. A random choice of them counts.
        max_groups_per_unit : default max_rows_per_unit
            Groups in which one person may have rows. A random choice of them counts.
        max_rows_per_unit_group : default max_rows_per_unit
            Rows that one person may contribute to a group. A random choice of them counts.
        left_out_share : default 0.05, where limits may leave rows out
            Share of epsilon, from 0 to below 1, that tells how many units have more rows than count, and how much fell
            away. Rows are 'biased' where that is more than their intervals show.
        unit_value : {'rows', 'sum'}, default 'rows'
            What a person contributes to a group: its 'rows', or the 'sum' of its values as one row, whose bounds are
            lower and upper.
        group_sizes : optional
            Rows with a value in every group, where these are published: one number without by, or a list in the order
            of keys. Then only the sum from the middle of the bounds gets noise. A wrong number makes wrong answers, and
            no less privacy.
        noise : {'auto', 'laplace', 'gaussian'}, default 'auto'
            The law of the noise; 'auto' takes what is smaller.
        confidence : default 0.95
            Chance, from 0.01 to 0.999999, that an interval holds the exact answer over the rows that count, each by
            itself.
        dataset : default the source's name
            Name of the budget that is charged.
        release : optional
            Name of this release. The same call with the same name returns the stored result and costs nothing.
        condition : optional
            A condition on one row as text, such as 'age >= 18': only rows that meet it count. Rows for which it is NULL
            or an error do not.
        engine : default DuckDB itself
            Name of the attached engine that holds the source, see `dpsql.attach_engine`.
        during : required where the owner stated periods
            Periods whose rows count, and whose budgets are charged: '2026-10', a list of names, or '2026-01/2026-12'
            from the first to the last.

        Returns
        -------
        release : Release
            ``target``, ``aggregate``, ``value``, ``std_error``, ``lower``, ``upper``, ``verdict``, ``covers``,
            ``speaks_of``.

        Raises
        ------
        DpsqlError
            With a code and the next step; it depends on public values only.
        """

    def dp_avg(
        self,
        source: object,
        *,
        target: Names,
        epsilon: Number | None = None,
        delta: Number | None = None,
        lower: Number | None = None,
        upper: Number | None = None,
        bounds_share: Number | None = 0.25,
        by: Names | None = None,
        keys: Keys | None = None,
        other: bool | None = False,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        max_groups_per_unit: Integer | None = None,
        max_rows_per_unit_group: Integer | None = None,
        left_out_share: Number | None = None,
        unit_value: Literal["rows", "sum"] | None = "rows",
        nulls: Literal["middle"] | None = None,
        group_sizes: Numbers | None = None,
        noise: Literal["auto", "laplace", "gaussian"] | None = "auto",
        sampling: bool | None = False,
        confidence: Number | None = 0.95,
        dataset: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        engine: str | None = None,
        during: Names | None = None,
    ) -> Release:
        """Average a column privately, in groups.

        Parameters
        ----------
        source : str or frame
            Table, view or registered name; or a Polars, pandas or Arrow frame, for which give `dataset`.
        target : required
            Name of the column to aggregate, or a list of names. Rows whose value is NULL or NaN add nothing to it.
        epsilon : required where the owner states no default_epsilon
            Privacy loss of the whole call, from 1e-15 to 1e12. 1.0 is usual.
        delta : optional
            Chance that the guarantee fails, from 1e-300 to 0.1. Without it pure DP; with it noise may be Gaussian, and
            keys may be private.
        lower : default drawn privately
            Public lower bound of the values: one number, a list with one per target, or a struct by name. Values are
            clipped to it.
        upper : default drawn privately
            Public upper bound of the values: one number, a list with one per target, or a struct by name. Values are
            clipped to it.
        bounds_share : default 0.25
            Share of epsilon spent on private bounds where none are given, between 0 and 1.
        by : optional
            Names of the columns to group by: one name, or a list. All groups are one release.
        keys : default stated by the owner, or by the column's type
            The groups, from public knowledge: a list of values, a struct of lists by column (all combinations), or a
            list of structs. BOOLEAN columns need none, nor ENUMs with declared labels. 'private' releases keys that
            many units have, and needs delta.
        other : default False
            Whether rows of all other keys form one group more, in which the column other is true.
        neighbours : {'add_remove', 'replace'}, default 'add_remove', or stated by the owner
            The neighbouring relation: tables that differ by adding or removing one row or person ('add_remove'), or by
            replacing one ('replace').
        privacy_unit : optional
            Name of the column of the id of the person to protect. Without it one row is protected.
        max_rows_per_unit : required with privacy_unit
            Rows that one person may contribute, from 1 to 1000000000. A random choice of them counts.
        max_groups_per_unit : default max_rows_per_unit
            Groups in which one person may have rows. A random choice of them counts.
        max_rows_per_unit_group : default max_rows_per_unit
            Rows that one person may contribute to a group. A random choice of them counts.
        left_out_share : default 0.05, where limits may leave rows out
            Share of epsilon, from 0 to below 1, that tells how many units have more rows than count, and how much fell
            away. Rows are 'biased' where that is more than their intervals show.
        unit_value : {'rows', 'sum'}, default 'rows'
            What a person contributes to a group: its 'rows', or the 'sum' of its values as one row, whose bounds are
            lower and upper.
        nulls : {'middle'}, default left out
            With 'middle' a row without a value counts as the middle of the bounds in an average. Then every row counts,
            so several targets share one count, which takes less noise.
        group_sizes : optional
            Rows with a value in every group, where these are published: one number without by, or a list in the order
            of keys. Then only the sum from the middle of the bounds gets noise. A wrong number makes wrong answers, and
            no less privacy.
        noise : {'auto', 'laplace', 'gaussian'}, default 'auto'
            The law of the noise; 'auto' takes what is smaller.
        sampling : default False
            Whether the interval of an average is about the population that the rows are from, rather than about these
            rows. The sum of squares that it needs comes with Laplace noise at no cost, and with Gaussian noise at 1.2
            times the noise.
        confidence : default 0.95
            Chance, from 0.01 to 0.999999, that an interval holds the exact answer over the rows that count, each by
            itself.
        dataset : default the source's name
            Name of the budget that is charged.
        release : optional
            Name of this release. The same call with the same name returns the stored result and costs nothing.
        condition : optional
            A condition on one row as text, such as 'age >= 18': only rows that meet it count. Rows for which it is NULL
            or an error do not.
        engine : default DuckDB itself
            Name of the attached engine that holds the source, see `dpsql.attach_engine`.
        during : required where the owner stated periods
            Periods whose rows count, and whose budgets are charged: '2026-10', a list of names, or '2026-01/2026-12'
            from the first to the last.

        Returns
        -------
        release : Release
            ``target``, ``aggregate``, ``value``, ``std_error``, ``lower``, ``upper``, ``verdict``, ``covers``,
            ``speaks_of``.

        Raises
        ------
        DpsqlError
            With a code and the next step; it depends on public values only.
        """

    def dp_variance(
        self,
        source: object,
        *,
        target: Names,
        epsilon: Number | None = None,
        delta: Number | None = None,
        lower: Number | None = None,
        upper: Number | None = None,
        bounds_share: Number | None = 0.25,
        by: Names | None = None,
        keys: Keys | None = None,
        other: bool | None = False,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        max_groups_per_unit: Integer | None = None,
        max_rows_per_unit_group: Integer | None = None,
        left_out_share: Number | None = None,
        unit_value: Literal["rows", "sum"] | None = "rows",
        noise: Literal["auto", "laplace", "gaussian"] | None = "auto",
        ddof: Number | None = 1,
        confidence: Number | None = 0.95,
        dataset: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        engine: str | None = None,
        during: Names | None = None,
    ) -> Release:
        """Estimate the variance of a column privately, in groups.

        Parameters
        ----------
        source : str or frame
            Table, view or registered name; or a Polars, pandas or Arrow frame, for which give `dataset`.
        target : required
            Name of the column to aggregate, or a list of names. Rows whose value is NULL or NaN add nothing to it.
        epsilon : required where the owner states no default_epsilon
            Privacy loss of the whole call, from 1e-15 to 1e12. 1.0 is usual.
        delta : optional
            Chance that the guarantee fails, from 1e-300 to 0.1. Without it pure DP; with it noise may be Gaussian, and
            keys may be private.
        lower : default drawn privately
            Public lower bound of the values: one number, a list with one per target, or a struct by name. Values are
            clipped to it.
        upper : default drawn privately
            Public upper bound of the values: one number, a list with one per target, or a struct by name. Values are
            clipped to it.
        bounds_share : default 0.25
            Share of epsilon spent on private bounds where none are given, between 0 and 1.
        by : optional
            Names of the columns to group by: one name, or a list. All groups are one release.
        keys : default stated by the owner, or by the column's type
            The groups, from public knowledge: a list of values, a struct of lists by column (all combinations), or a
            list of structs. BOOLEAN columns need none, nor ENUMs with declared labels. 'private' releases keys that
            many units have, and needs delta.
        other : default False
            Whether rows of all other keys form one group more, in which the column other is true.
        neighbours : {'add_remove', 'replace'}, default 'add_remove', or stated by the owner
            The neighbouring relation: tables that differ by adding or removing one row or person ('add_remove'), or by
            replacing one ('replace').
        privacy_unit : optional
            Name of the column of the id of the person to protect. Without it one row is protected.
        max_rows_per_unit : required with privacy_unit
            Rows that one person may contribute, from 1 to 1000000000. A random choice of them counts.
        max_groups_per_unit : default max_rows_per_unit
            Groups in which one person may have rows. A random choice of them counts.
        max_rows_per_unit_group : default max_rows_per_unit
            Rows that one person may contribute to a group. A random choice of them counts.
        left_out_share : default 0.05, where limits may leave rows out
            Share of epsilon, from 0 to below 1, that tells how many units have more rows than count, and how much fell
            away. Rows are 'biased' where that is more than their intervals show.
        unit_value : {'rows', 'sum'}, default 'rows'
            What a person contributes to a group: its 'rows', or the 'sum' of its values as one row, whose bounds are
            lower and upper.
        noise : {'auto', 'laplace', 'gaussian'}, default 'auto'
            The law of the noise; 'auto' takes what is smaller.
        ddof : default 1
            What variances subtract from the number of rows: 1 as var_samp does, or 0 as var_pop does.
        confidence : default 0.95
            Chance, from 0.01 to 0.999999, that an interval holds the exact answer over the rows that count, each by
            itself.
        dataset : default the source's name
            Name of the budget that is charged.
        release : optional
            Name of this release. The same call with the same name returns the stored result and costs nothing.
        condition : optional
            A condition on one row as text, such as 'age >= 18': only rows that meet it count. Rows for which it is NULL
            or an error do not.
        engine : default DuckDB itself
            Name of the attached engine that holds the source, see `dpsql.attach_engine`.
        during : required where the owner stated periods
            Periods whose rows count, and whose budgets are charged: '2026-10', a list of names, or '2026-01/2026-12'
            from the first to the last.

        Returns
        -------
        release : Release
            ``target``, ``aggregate``, ``value``, ``std_error``, ``lower``, ``upper``, ``verdict``, ``covers``,
            ``speaks_of``.

        Raises
        ------
        DpsqlError
            With a code and the next step; it depends on public values only.
        """

    def dp_stddev(
        self,
        source: object,
        *,
        target: Names,
        epsilon: Number | None = None,
        delta: Number | None = None,
        lower: Number | None = None,
        upper: Number | None = None,
        bounds_share: Number | None = 0.25,
        by: Names | None = None,
        keys: Keys | None = None,
        other: bool | None = False,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        max_groups_per_unit: Integer | None = None,
        max_rows_per_unit_group: Integer | None = None,
        left_out_share: Number | None = None,
        unit_value: Literal["rows", "sum"] | None = "rows",
        noise: Literal["auto", "laplace", "gaussian"] | None = "auto",
        ddof: Number | None = 1,
        confidence: Number | None = 0.95,
        dataset: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        engine: str | None = None,
        during: Names | None = None,
    ) -> Release:
        """Estimate the standard deviation of a column privately, in groups.

        Parameters
        ----------
        source : str or frame
            Table, view or registered name; or a Polars, pandas or Arrow frame, for which give `dataset`.
        target : required
            Name of the column to aggregate, or a list of names. Rows whose value is NULL or NaN add nothing to it.
        epsilon : required where the owner states no default_epsilon
            Privacy loss of the whole call, from 1e-15 to 1e12. 1.0 is usual.
        delta : optional
            Chance that the guarantee fails, from 1e-300 to 0.1. Without it pure DP; with it noise may be Gaussian, and
            keys may be private.
        lower : default drawn privately
            Public lower bound of the values: one number, a list with one per target, or a struct by name. Values are
            clipped to it.
        upper : default drawn privately
            Public upper bound of the values: one number, a list with one per target, or a struct by name. Values are
            clipped to it.
        bounds_share : default 0.25
            Share of epsilon spent on private bounds where none are given, between 0 and 1.
        by : optional
            Names of the columns to group by: one name, or a list. All groups are one release.
        keys : default stated by the owner, or by the column's type
            The groups, from public knowledge: a list of values, a struct of lists by column (all combinations), or a
            list of structs. BOOLEAN columns need none, nor ENUMs with declared labels. 'private' releases keys that
            many units have, and needs delta.
        other : default False
            Whether rows of all other keys form one group more, in which the column other is true.
        neighbours : {'add_remove', 'replace'}, default 'add_remove', or stated by the owner
            The neighbouring relation: tables that differ by adding or removing one row or person ('add_remove'), or by
            replacing one ('replace').
        privacy_unit : optional
            Name of the column of the id of the person to protect. Without it one row is protected.
        max_rows_per_unit : required with privacy_unit
            Rows that one person may contribute, from 1 to 1000000000. A random choice of them counts.
        max_groups_per_unit : default max_rows_per_unit
            Groups in which one person may have rows. A random choice of them counts.
        max_rows_per_unit_group : default max_rows_per_unit
            Rows that one person may contribute to a group. A random choice of them counts.
        left_out_share : default 0.05, where limits may leave rows out
            Share of epsilon, from 0 to below 1, that tells how many units have more rows than count, and how much fell
            away. Rows are 'biased' where that is more than their intervals show.
        unit_value : {'rows', 'sum'}, default 'rows'
            What a person contributes to a group: its 'rows', or the 'sum' of its values as one row, whose bounds are
            lower and upper.
        noise : {'auto', 'laplace', 'gaussian'}, default 'auto'
            The law of the noise; 'auto' takes what is smaller.
        ddof : default 1
            What variances subtract from the number of rows: 1 as var_samp does, or 0 as var_pop does.
        confidence : default 0.95
            Chance, from 0.01 to 0.999999, that an interval holds the exact answer over the rows that count, each by
            itself.
        dataset : default the source's name
            Name of the budget that is charged.
        release : optional
            Name of this release. The same call with the same name returns the stored result and costs nothing.
        condition : optional
            A condition on one row as text, such as 'age >= 18': only rows that meet it count. Rows for which it is NULL
            or an error do not.
        engine : default DuckDB itself
            Name of the attached engine that holds the source, see `dpsql.attach_engine`.
        during : required where the owner stated periods
            Periods whose rows count, and whose budgets are charged: '2026-10', a list of names, or '2026-01/2026-12'
            from the first to the last.

        Returns
        -------
        release : Release
            ``target``, ``aggregate``, ``value``, ``std_error``, ``lower``, ``upper``, ``verdict``, ``covers``,
            ``speaks_of``.

        Raises
        ------
        DpsqlError
            With a code and the next step; it depends on public values only.
        """

    def dp_aggregate(
        self,
        source: object,
        *,
        aggregates: Names,
        target: Names | None = None,
        epsilon: Number | None = None,
        delta: Number | None = None,
        lower: Number | None = None,
        upper: Number | None = None,
        bounds_share: Number | None = 0.25,
        by: Names | None = None,
        keys: Keys | None = None,
        other: bool | None = False,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        max_groups_per_unit: Integer | None = None,
        max_rows_per_unit_group: Integer | None = None,
        left_out_share: Number | None = None,
        unit_value: Literal["rows", "sum"] | None = "rows",
        nulls: Literal["middle"] | None = None,
        group_sizes: Numbers | None = None,
        noise: Literal["auto", "laplace", "gaussian"] | None = "auto",
        ddof: Number | None = 1,
        sampling: bool | None = False,
        confidence: Number | None = 0.95,
        dataset: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        engine: str | None = None,
        during: Names | None = None,
    ) -> Release:
        """Release several aggregates of several columns as one, in groups.

        Parameters
        ----------
        source : str or frame
            Table, view or registered name; or a Polars, pandas or Arrow frame, for which give `dataset`.
        aggregates : required
            What to compute of every target: some of 'count', 'sum', 'avg', 'variance' and 'stddev', from the same
            noise.
        target : optional
            Name of the column to aggregate, or a list of names. Rows whose value is NULL or NaN add nothing to it.
        epsilon : required where the owner states no default_epsilon
            Privacy loss of the whole call, from 1e-15 to 1e12. 1.0 is usual.
        delta : optional
            Chance that the guarantee fails, from 1e-300 to 0.1. Without it pure DP; with it noise may be Gaussian, and
            keys may be private.
        lower : default drawn privately
            Public lower bound of the values: one number, a list with one per target, or a struct by name. Values are
            clipped to it.
        upper : default drawn privately
            Public upper bound of the values: one number, a list with one per target, or a struct by name. Values are
            clipped to it.
        bounds_share : default 0.25
            Share of epsilon spent on private bounds where none are given, between 0 and 1.
        by : optional
            Names of the columns to group by: one name, or a list. All groups are one release.
        keys : default stated by the owner, or by the column's type
            The groups, from public knowledge: a list of values, a struct of lists by column (all combinations), or a
            list of structs. BOOLEAN columns need none, nor ENUMs with declared labels. 'private' releases keys that
            many units have, and needs delta.
        other : default False
            Whether rows of all other keys form one group more, in which the column other is true.
        neighbours : {'add_remove', 'replace'}, default 'add_remove', or stated by the owner
            The neighbouring relation: tables that differ by adding or removing one row or person ('add_remove'), or by
            replacing one ('replace').
        privacy_unit : optional
            Name of the column of the id of the person to protect. Without it one row is protected.
        max_rows_per_unit : required with privacy_unit
            Rows that one person may contribute, from 1 to 1000000000. A random choice of them counts.
        max_groups_per_unit : default max_rows_per_unit
            Groups in which one person may have rows. A random choice of them counts.
        max_rows_per_unit_group : default max_rows_per_unit
            Rows that one person may contribute to a group. A random choice of them counts.
        left_out_share : default 0.05, where limits may leave rows out
            Share of epsilon, from 0 to below 1, that tells how many units have more rows than count, and how much fell
            away. Rows are 'biased' where that is more than their intervals show.
        unit_value : {'rows', 'sum'}, default 'rows'
            What a person contributes to a group: its 'rows', or the 'sum' of its values as one row, whose bounds are
            lower and upper.
        nulls : {'middle'}, default left out
            With 'middle' a row without a value counts as the middle of the bounds in an average. Then every row counts,
            so several targets share one count, which takes less noise.
        group_sizes : optional
            Rows with a value in every group, where these are published: one number without by, or a list in the order
            of keys. Then only the sum from the middle of the bounds gets noise. A wrong number makes wrong answers, and
            no less privacy.
        noise : {'auto', 'laplace', 'gaussian'}, default 'auto'
            The law of the noise; 'auto' takes what is smaller.
        ddof : default 1
            What variances subtract from the number of rows: 1 as var_samp does, or 0 as var_pop does.
        sampling : default False
            Whether the interval of an average is about the population that the rows are from, rather than about these
            rows. The sum of squares that it needs comes with Laplace noise at no cost, and with Gaussian noise at 1.2
            times the noise.
        confidence : default 0.95
            Chance, from 0.01 to 0.999999, that an interval holds the exact answer over the rows that count, each by
            itself.
        dataset : default the source's name
            Name of the budget that is charged.
        release : optional
            Name of this release. The same call with the same name returns the stored result and costs nothing.
        condition : optional
            A condition on one row as text, such as 'age >= 18': only rows that meet it count. Rows for which it is NULL
            or an error do not.
        engine : default DuckDB itself
            Name of the attached engine that holds the source, see `dpsql.attach_engine`.
        during : required where the owner stated periods
            Periods whose rows count, and whose budgets are charged: '2026-10', a list of names, or '2026-01/2026-12'
            from the first to the last.

        Returns
        -------
        release : Release
            ``target``, ``aggregate``, ``value``, ``std_error``, ``lower``, ``upper``, ``verdict``, ``covers``,
            ``speaks_of``.

        Raises
        ------
        DpsqlError
            With a code and the next step; it depends on public values only.
        """

    def dp_histogram(
        self,
        source: object,
        *,
        target: str,
        bins: Numbers | None = None,
        epsilon: Number | None = None,
        delta: Number | None = None,
        lower: Number | None = None,
        upper: Number | None = None,
        n_bins: Integer | None = None,
        null_bin: bool | None = True,
        by: Names | None = None,
        keys: Keys | None = None,
        other: bool | None = False,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        max_groups_per_unit: Integer | None = None,
        max_rows_per_unit_group: Integer | None = None,
        noise: Literal["auto", "laplace", "gaussian"] | None = "auto",
        curve: Literal["auto", "identity", "tree", "wavelet", "toeplitz"] | None = "identity",
        confidence: Number | None = 0.95,
        dataset: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        engine: str | None = None,
        during: Names | None = None,
    ) -> Release:
        """Count the values of a column privately between public edges.

        Parameters
        ----------
        source : str or frame
            Table, view or registered name; or a Polars, pandas or Arrow frame, for which give `dataset`.
        target : required
            Name of the numeric or boolean column.
        bins : optional
            Public edges, ascending: a bin holds the values above one edge and up to the next, and there is a bin below
            the first and one above the last, in place of lower, upper and n_bins. A bare number is n_bins.
        epsilon : required where the owner states no default_epsilon
            Privacy loss of the whole call, from 1e-15 to 1e12. 1.0 is usual.
        delta : optional
            Chance that the guarantee fails, from 1e-300 to 0.1. Without it pure DP; with it noise may be Gaussian.
        lower : required, or stated by the owner
            Public lower end of the bins, one number. Values are clipped to it.
        upper : required, or stated by the owner
            Public upper end of the bins, one number. Values are clipped to it.
        n_bins : optional
            Number of bins of equal width between lower and upper, up to 1023.
        null_bin : default True
            Whether rows whose value is NULL or NaN are counted in a bin of their own.
        by : optional
            Names of the columns to group by: one name, or a list. All groups are one release.
        keys : default stated by the owner, or by the column's type
            The groups, from public knowledge: a list of values, a struct of lists by column (all combinations), or a
            list of structs. BOOLEAN columns need none, nor ENUMs with declared labels. 'private' releases keys that
            many units have, and needs delta.
        other : default False
            Whether rows of all other keys form one group more, in which the column other is true.
        neighbours : {'add_remove', 'replace'}, default 'add_remove', or stated by the owner
            The neighbouring relation: tables that differ by adding or removing one row or person ('add_remove'), or by
            replacing one ('replace').
        privacy_unit : optional
            Name of the column of the id of the person to protect. Without it one row is protected.
        max_rows_per_unit : required with privacy_unit
            Rows that one person may contribute, from 1 to 1000000000. A random choice of them counts.
        max_groups_per_unit : default max_rows_per_unit
            Groups in which one person may have rows. A random choice of them counts.
        max_rows_per_unit_group : default max_rows_per_unit
            Rows that one person may contribute to a group. A random choice of them counts.
        noise : {'auto', 'laplace', 'gaussian'}, default 'auto'
            The law of the noise; 'auto' takes what is smaller.
        curve : {'auto', 'identity', 'tree', 'wavelet', 'toeplitz'}, default 'identity'
            What gets noise: every bin by itself ('identity'), or sums of bins, which makes cumulative counts of many
            bins more precise and bins less; 'auto' takes the best for cumulative counts.
        confidence : default 0.95
            Chance, from 0.01 to 0.999999, that an interval holds the exact answer over the rows that count, each by
            itself.
        dataset : default the source's name
            Name of the budget that is charged.
        release : optional
            Name of this release. The same call with the same name returns the stored result and costs nothing.
        condition : optional
            A condition on one row as text, such as 'age >= 18': only rows that meet it count. Rows for which it is NULL
            or an error do not.
        engine : default DuckDB itself
            Name of the attached engine that holds the source, see `dpsql.attach_engine`.
        during : required where the owner stated periods
            Periods whose rows count, and whose budgets are charged: '2026-10', a list of names, or '2026-01/2026-12'
            from the first to the last.

        Returns
        -------
        release : Release
            ``lower``, ``upper``, ``count``, ``std_error``, ``count_lower``, ``count_upper``, ``cumulative``,
            ``cumulative_std_error``, ``verdict``, ``covers``, ``speaks_of``.

        Raises
        ------
        DpsqlError
            With a code and the next step; it depends on public values only.
        """

    def dp_crosstab(
        self,
        source: object,
        *,
        rows: str | None = None,
        columns: str | None = None,
        by: Names | None = None,
        keys: Keys | None = None,
        epsilon: Number | None = None,
        delta: Number | None = None,
        margins: bool | None = True,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        max_groups_per_unit: Integer | None = None,
        max_rows_per_unit_group: Integer | None = None,
        noise: Literal["auto", "laplace", "gaussian"] | None = "auto",
        confidence: Number | None = 0.95,
        dataset: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        engine: str | None = None,
        during: Names | None = None,
    ) -> Release:
        """Count the combinations of columns privately, with margins.

        Parameters
        ----------
        source : str or frame
            Table, view or registered name; or a Polars, pandas or Arrow frame, for which give `dataset`.
        rows : optional
            Name of the column whose keys are the rows of the table.
        columns : optional
            Name of the column whose keys are the columns of the table.
        by : optional
            Names of two to eight columns, in place of rows and columns.
        keys : default stated by the owner
            The keys of each column, from public knowledge: a struct of lists by column. Rows with any other key are in
            no cell and in no margin.
        epsilon : required where the owner states no default_epsilon
            Privacy loss of the whole call, from 1e-15 to 1e12. 1.0 is usual.
        delta : optional
            Chance that the guarantee fails, from 1e-300 to 0.1. Without it pure DP; with it noise may be Gaussian.
        margins : default True
            Whether totals over columns are in the result beside the cells; of more than two columns, in place of them:
            the total and all tables of one or two columns.
        neighbours : {'add_remove', 'replace'}, default 'add_remove', or stated by the owner
            The neighbouring relation: tables that differ by adding or removing one row or person ('add_remove'), or by
            replacing one ('replace').
        privacy_unit : optional
            Name of the column of the id of the person to protect. Without it one row is protected.
        max_rows_per_unit : required with privacy_unit
            Rows that one person may contribute, from 1 to 1000000000. A random choice of them counts.
        max_groups_per_unit : default max_rows_per_unit
            Groups in which one person may have rows. A random choice of them counts.
        max_rows_per_unit_group : default max_rows_per_unit
            Rows that one person may contribute to a group. A random choice of them counts.
        noise : {'auto', 'laplace', 'gaussian'}, default 'auto'
            The law of the noise; 'auto' takes what is smaller.
        confidence : default 0.95
            Chance, from 0.01 to 0.999999, that an interval holds the exact answer over the rows that count, each by
            itself.
        dataset : default the source's name
            Name of the budget that is charged.
        release : optional
            Name of this release. The same call with the same name returns the stored result and costs nothing.
        condition : optional
            A condition on one row as text, such as 'age >= 18': only rows that meet it count. Rows for which it is NULL
            or an error do not.
        engine : default DuckDB itself
            Name of the attached engine that holds the source, see `dpsql.attach_engine`.
        during : required where the owner stated periods
            Periods whose rows count, and whose budgets are charged: '2026-10', a list of names, or '2026-01/2026-12'
            from the first to the last.

        Returns
        -------
        release : Release
            ``margin``, ``count``, ``std_error``, ``lower``, ``upper``, ``verdict``, ``covers``, ``speaks_of``.

        Raises
        ------
        DpsqlError
            With a code and the next step; it depends on public values only.
        """

    def dp_synthetic(
        self,
        source: object,
        *,
        columns: Names | None = None,
        epsilon: Number | None = None,
        delta: Number,
        target: str | None = None,
        lower: Bounds | None = None,
        upper: Bounds | None = None,
        keys: Mapping[str, Iterable[object]] | None = None,
        private_keys: bool | None = False,
        bounds_share: Number | None = None,
        report_share: Number | None = 0.05,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        row_id: str | None = None,
        dataset: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        engine: str | None = None,
        during: Names | None = None,
    ) -> Release:
        """Release a model of a whole table privately, of which rows are made.

        Parameters
        ----------
        source : str or frame
            Table, view or registered name; or a Polars, pandas or Arrow frame, for which give `dataset`.
        columns : default every such column
            Names of the columns of the table: numbers, texts, booleans, dates and timestamps.
        epsilon : required where the owner states no default_epsilon
            Privacy loss of the whole call, from 1e-15 to 1e12. 1.0 is usual.
        delta : required
            Chance that the guarantee fails, from 1e-300 to 0.1. Keep it far below 1 / number of rows.
        target : optional
            Name of a column that is to be predicted from the others: its pairs are all measured, and others are
            modelled by it. Without it a column is drawn that tells most of all others.
        lower : default drawn privately
            Public lower bound of the numbers, dates and timestamps, in their own units: one number, a list with one per
            feature, or a struct by name. Values are clipped to it.
        upper : default drawn privately
            Public upper bound of the numbers, dates and timestamps, in the same form as lower and above it. Values are
            clipped to it.
        keys : default stated by the owner
            Public values of text columns: a struct of lists by column. All other values are one, 'other'.
        private_keys : default False
            Whether values of text columns without keys are drawn from the rows, at the price of half of delta: those
            that many rows have.
        bounds_share : default 0.1 where lower and upper are left out
            Share of the loss for private bounds of numbers that have no public ones.
        report_share : default 0.05
            Share of the loss for the error of every pair of columns. 0 leaves the errors out.
        neighbours : {'add_remove', 'replace'}, default 'add_remove', or stated by the owner
            The neighbouring relation: tables that differ by adding or removing one row or person ('add_remove'), or by
            replacing one ('replace').
        privacy_unit : optional
            Name of the column of the id of the person to protect. Without it one row is protected.
        max_rows_per_unit : required with privacy_unit
            Rows that one person may contribute, from 1 to 1000000000. A random choice of them counts.
        row_id : optional
            Name of the column of the row's id in long rows, or of a stored unique id.
        dataset : default the source's name
            Name of the budget that is charged.
        release : optional
            Name of this release. The same call with the same name returns the stored result and costs nothing.
        condition : optional
            A condition on one row as text, such as 'age >= 18': only rows that meet it count. Rows for which it is NULL
            or an error do not.
        engine : default DuckDB itself
            Name of the attached engine that holds the source, see `dpsql.attach_engine`.
        during : required where the owner stated periods
            Periods whose rows count, and whose budgets are charged: '2026-10', a list of names, or '2026-01/2026-12'
            from the first to the last.

        Returns
        -------
        release : Release
            ``column_1``, ``column_2``, ``fit``, ``error``, ``std_error``, ``lower``, ``upper``, ``verdict``.

        Raises
        ------
        DpsqlError
            With a code and the next step; it depends on public values only.
        """

    def dp_compare(
        self,
        source: object,
        *,
        of: Literal["mean", "share", "count", "auc", "error"] | None = "mean",
        target: str | None = None,
        groups: str | None = None,
        keys: Iterable[object] | None = None,
        scores: Names | None = None,
        label: str | None = None,
        epsilon: Number | None = None,
        delta: Number | None = None,
        lower: Number | None = None,
        upper: Number | None = None,
        loss: Literal["zero_one", "absolute", "squared"] | None = "zero_one",
        thresholds: Numbers | None = None,
        sampling: bool | None = True,
        confidence: Number | None = 0.95,
        noise: Literal["auto", "laplace", "gaussian"] | None = "auto",
        cells: Integer | None = None,
        target_levels: Iterable[object] | None = None,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        row_id: str | None = None,
        dataset: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        engine: str | None = None,
        during: Names | None = None,
    ) -> Release:
        """Tell privately whether two groups or two scores differ.

        Parameters
        ----------
        source : str or frame
            Table, view or registered name; or a Polars, pandas or Arrow frame, for which give `dataset`.
        of : {'mean', 'share', 'count', 'auc', 'error'}, default 'mean'
            What is compared: the mean of a column, the share of rows in which it is true, or the number of rows, in two
            groups; or the area or the error of two scores on the same rows.
        target : optional
            Column whose means or shares are compared; with 'count' only rows with a value count.
        groups : optional
            Column that says which of the two groups a row is in.
        keys : default [false, true], [0, 1], or stated by the owner
            The two groups, from public knowledge: the difference is the first less the second. Other rows are ignored.
        scores : optional
            The two columns of scores, or of predictions, that are compared on the same rows.
        label : optional
            Column of the label, or of the numeric truth for losses of size, of 'auc' and 'error'.
        epsilon : required where the owner states no default_epsilon
            Privacy loss of the whole call, from 1e-15 to 1e12. 1.0 is usual.
        delta : optional
            Chance that the guarantee fails, from 1e-300 to 0.1. Without it pure DP; with it noise may be Gaussian.
        lower : required for means, else 0
            Public lower bound of the values, one number. Values are clipped to it.
        upper : required for means, else 1
            Public upper bound of the values, one number. Values are clipped to it.
        loss : {'zero_one', 'absolute', 'squared'}, default 'zero_one'
            The error of a row: whether the predicted class is wrong, or how far the prediction is off.
        thresholds : default the middle of the bounds
            Score from which the positive class is predicted: one number, or one for each score.
        sampling : default True
            Whether the interval is about the population that the rows are from, rather than about these rows.
        confidence : default 0.95
            Chance, from 0.01 to 0.999999, that an interval holds the exact answer over the rows that count, each by
            itself.
        noise : {'auto', 'laplace', 'gaussian'}, default 'auto'
            The law of the noise; 'auto' takes what is smaller.
        cells : default none
            Number of equal-width cells, from 1 to 65536, in which scores are tied: an area is that of scores rounded
            so. Without it no score is rounded; method := 'smooth' has 4096.
        target_levels : default [false, true], or [0, 1]
            The negative and the positive class of the label. Rows of neither class are ignored.
        neighbours : {'add_remove', 'replace'}, default 'add_remove', or stated by the owner
            The neighbouring relation: tables that differ by adding or removing one row or person ('add_remove'), or by
            replacing one ('replace').
        privacy_unit : optional
            Name of the column of the id of the person to protect. Without it one row is protected.
        max_rows_per_unit : required with privacy_unit
            Rows that one person may contribute, from 1 to 1000000000. A random choice of them counts.
        row_id : optional
            Name of the column of the row's id in long rows, or of a stored unique id.
        dataset : default the source's name
            Name of the budget that is charged.
        release : optional
            Name of this release. The same call with the same name returns the stored result and costs nothing.
        condition : optional
            A condition on one row as text, such as 'age >= 18': only rows that meet it count. Rows for which it is NULL
            or an error do not.
        engine : default DuckDB itself
            Name of the attached engine that holds the source, see `dpsql.attach_engine`.
        during : required where the owner stated periods
            Periods whose rows count, and whose budgets are charged: '2026-10', a list of names, or '2026-01/2026-12'
            from the first to the last.

        Returns
        -------
        release : Release
            ``first``, ``second``, ``difference``, ``std_error``, ``lower``, ``upper``, ``rows_needed``, ``verdict``.

        Raises
        ------
        DpsqlError
            With a code and the next step; it depends on public values only.
        """

    def dp_sis(
        self,
        source: object,
        *,
        target: str,
        features: Features | None = None,
        n_features: Integer | None = None,
        names: Iterable[str] | None = None,
        k: Integer,
        epsilon: Number | None = None,
        lower: Bounds | None = None,
        upper: Bounds | None = None,
        target_lower: Number | None = None,
        target_upper: Number | None = None,
        target_levels: Iterable[object] | None = None,
        score: Literal["covariance", "rank"] | None = "covariance",
        mechanism: Literal["one_shot", "gumbel", "canonical_lipschitz"] | None = "one_shot",
        gamma: Number | None = 0.5,
        center: Literal["public", "target"] | None = "public",
        center_share: Number | None = 0.1,
        verdict_share: Number | None = None,
        verdict: Literal["set", "each"] | None = "set",
        n_rows: Integer | None = None,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        row_id: str | None = None,
        value: str | None = None,
        dataset: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        engine: str | None = None,
        during: Names | None = None,
    ) -> Release:
        """Select k features privately by covariance or rank correlation.

        Parameters
        ----------
        source : str or frame
            Table, view or registered name; or a Polars, pandas or Arrow frame, for which give `dataset`.
        target : required
            Name of the target's column: numeric, text or boolean.
        features : default every numeric column
            Names of the feature columns, the name of one vector column, or in long rows the column that names the
            feature. release('name') uses the features that an earlier release selected.
        n_features : optional
            Length of the vectors of a list column, from 1 to 1000000. It is public.
        names : optional
            Public names of the features: one per element of a vector, or the names that count in long rows.
        k : required
            Number of features to select, from 1 to the number of features.
        epsilon : required where the owner states no default_epsilon
            Privacy loss of the whole call, from 1e-15 to 1e12. 1.0 is usual.
        lower : required, or stated by the owner
            Public lower bound of the features, in their own units: one number, a list with one per feature, or a struct
            by name. Values are clipped to it.
        upper : required, or stated by the owner
            Public upper bound of the features, in the same form as lower and above it. Values are clipped to it.
        target_lower : required for a numeric target
            Public lower bound of a numeric target, one number in its own unit.
        target_upper : required for a numeric target
            Public upper bound of a numeric target, above target_lower.
        target_levels : required for a text target
            The two public levels of a text target: the first is coded -1, the second +1, and any other value as 0.
        score : {'covariance', 'rank'}, default 'covariance'
            How features are scored: by covariance with the target, or by rank correlation, which needs no bounds.
        mechanism : {'one_shot', 'gumbel', 'canonical_lipschitz'}, default 'one_shot'
            How the features are drawn; docs/selection.md says which to take when.
        gamma : default 0.5
            Weight of the canonical Lipschitz loss, between 0 and 1.
        center : {'public', 'target'}, default 'public'
            Centre the target at the middle of its bounds, or at its private mean.
        center_share : default 0.1
            Share of epsilon spent on a private mean of the target, between 0 and 1.
        verdict_share : default 0.1, for rank scores of all rows
            Share of epsilon, from 0 to below 1, that pays for the verdict. Only for rank scores of all rows.
        verdict : {'set', 'each'}, default 'set'
            What verdict_share pays for: by how much the set leads over shuffled targets, or the score of each feature.
        n_rows : optional
            A public number of rows, up to 1e12: below what a selection needs, its verdict is 'unclear', and where none
            could be clear the selection has all of epsilon.
        neighbours : {'add_remove', 'replace'}, default 'add_remove', or stated by the owner
            The neighbouring relation: tables that differ by adding or removing one row or person ('add_remove'), or by
            replacing one ('replace').
        privacy_unit : optional
            Name of the column of the id of the person to protect. Without it one row is protected.
        max_rows_per_unit : required with privacy_unit
            Rows that one person may contribute, from 1 to 1000000000. A random choice of them counts.
        row_id : optional
            Name of the column of the row's id in long rows, or of a stored unique id.
        value : optional
            Name of the column that holds the value in long rows. Without it, every listed feature has the value 1.
        dataset : default the source's name
            Name of the budget that is charged.
        release : optional
            Name of this release. The same call with the same name returns the stored result and costs nothing.
        condition : optional
            A condition on one row as text, such as 'age >= 18': only rows that meet it count. Rows for which it is NULL
            or an error do not.
        engine : default DuckDB itself
            Name of the attached engine that holds the source, see `dpsql.attach_engine`.
        during : required where the owner stated periods
            Periods whose rows count, and whose budgets are charged: '2026-10', a list of names, or '2026-01/2026-12'
            from the first to the last.

        Returns
        -------
        release : Release
            ``rank``, ``feature``, ``score``, ``std_error``, ``verdict``, ``set_verdict``.

        Raises
        ------
        DpsqlError
            With a code and the next step; it depends on public values only.
        """

    def dp_kendall(
        self,
        source: object,
        *,
        target: str,
        features: Features | None = None,
        n_features: Integer | None = None,
        names: Iterable[str] | None = None,
        k: Integer,
        epsilon: Number | None = None,
        target_levels: Iterable[object] | None = None,
        mechanism: Literal["gumbel", "exponential"] | None = "gumbel",
        split: Literal["even", "scaled"] | None = "even",
        blocks: Integer | None = None,
        verdict_share: Number | None = None,
        verdict: Literal["set", "each"] | None = "set",
        n_rows: Integer | None = None,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        row_id: str | None = None,
        value: str | None = None,
        dataset: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        engine: str | None = None,
        during: Names | None = None,
    ) -> Release:
        """Select k features privately by rank correlation.

        Parameters
        ----------
        source : str or frame
            Table, view or registered name; or a Polars, pandas or Arrow frame, for which give `dataset`.
        target : required
            Name of the target's column: numeric, text or boolean.
        features : default every numeric column
            Names of the feature columns, the name of one vector column, or in long rows the column that names the
            feature. release('name') uses the features that an earlier release selected.
        n_features : optional
            Length of the vectors of a list column, from 1 to 1000000. It is public.
        names : optional
            Public names of the features: one per element of a vector, or the names that count in long rows.
        k : required
            Number of features to select, from 1 to the number of features.
        epsilon : required where the owner states no default_epsilon
            Privacy loss of the whole call, from 1e-15 to 1e12. 1.0 is usual.
        target_levels : required for a text target
            The two public levels of a text target: the first is coded -1, the second +1, and any other value as 0.
        mechanism : {'gumbel', 'exponential'}, default 'gumbel'
            How each round draws its feature.
        split : {'even', 'scaled'}, default 'even'
            How the rounds share epsilon: equally, or such that all have the same noise.
        blocks : optional
            Public number of blocks: only pairs of rows within a block are compared. Needs row_id or privacy_unit.
        verdict_share : default 0.1, for rank scores of all rows
            Share of epsilon, from 0 to below 1, that pays for the verdict. Only for rank scores of all rows.
        verdict : {'set', 'each'}, default 'set'
            What verdict_share pays for: by how much the set leads over shuffled targets, or the score of each feature.
        n_rows : optional
            A public number of rows, up to 1e12: below what a selection needs, its verdict is 'unclear', and where none
            could be clear the selection has all of epsilon.
        neighbours : {'add_remove', 'replace'}, default 'add_remove', or stated by the owner
            The neighbouring relation: tables that differ by adding or removing one row or person ('add_remove'), or by
            replacing one ('replace').
        privacy_unit : optional
            Name of the column of the id of the person to protect. Without it one row is protected.
        max_rows_per_unit : required with privacy_unit
            Rows that one person may contribute, from 1 to 1000000000. A random choice of them counts.
        row_id : optional
            Name of the column of the row's id in long rows, or of a stored unique id.
        value : optional
            Name of the column that holds the value in long rows. Without it, every listed feature has the value 1.
        dataset : default the source's name
            Name of the budget that is charged.
        release : optional
            Name of this release. The same call with the same name returns the stored result and costs nothing.
        condition : optional
            A condition on one row as text, such as 'age >= 18': only rows that meet it count. Rows for which it is NULL
            or an error do not.
        engine : default DuckDB itself
            Name of the attached engine that holds the source, see `dpsql.attach_engine`.
        during : required where the owner stated periods
            Periods whose rows count, and whose budgets are charged: '2026-10', a list of names, or '2026-01/2026-12'
            from the first to the last.

        Returns
        -------
        release : Release
            ``rank``, ``feature``, ``score``, ``std_error``, ``verdict``, ``set_verdict``.

        Raises
        ------
        DpsqlError
            With a code and the next step; it depends on public values only.
        """

    def dp_two_stage(
        self,
        source: object,
        *,
        target: str,
        features: Features | None = None,
        n_features: Integer | None = None,
        names: Iterable[str] | None = None,
        k: Integer,
        epsilon: Number | None = None,
        target_levels: Iterable[object] | None = None,
        blocks: Integer | None = None,
        rows_per_block: Integer | None = None,
        count_share: Number | None = 0.05,
        count_failure: Number | None = 0.0001,
        penalty: Number | None = 0.1,
        standardize: bool | None = True,
        intercept: bool | None = True,
        mechanism: Literal["one_shot", "gumbel", "canonical_lipschitz"] | None = "one_shot",
        gamma: Number | None = 0.5,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        row_id: str | None = None,
        value: str | None = None,
        dataset: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        engine: str | None = None,
        during: Names | None = None,
    ) -> Release:
        """Select k features privately by votes of block-wise Lasso fits.

        Parameters
        ----------
        source : str or frame
            Table, view or registered name; or a Polars, pandas or Arrow frame, for which give `dataset`.
        target : required
            Name of the target's column: numeric, text or boolean.
        features : default every numeric column
            Names of the feature columns, the name of one vector column, or in long rows the column that names the
            feature. release('name') uses the features that an earlier release selected.
        n_features : optional
            Length of the vectors of a list column, from 1 to 1000000. It is public.
        names : optional
            Public names of the features: one per element of a vector, or the names that count in long rows.
        k : required
            Number of features to select, from 1 to the number of features.
        epsilon : required where the owner states no default_epsilon
            Privacy loss of the whole call, from 1e-15 to 1e12. 1.0 is usual.
        target_levels : required for a text target
            The two public levels of a text target: the first is coded -1, the second +1, and any other value as 0.
        blocks : optional
            Public number of blocks of rows, from 1 to 1000000. Give either it or rows_per_block.
        rows_per_block : optional
            Average number of rows per block; the number of blocks is then derived from a private row count.
        count_share : default 0.05
            Share of epsilon spent on a private row count, between 0 and 1.
        count_failure : default 0.0001
            Chance that blocks are smaller than requested, between 0 and 1.
        penalty : default 0.1
            Weight of the Lasso penalty, above 0. With standardize, a weight of 1 selects no feature.
        standardize : default True
            Scale features and target within each block.
        intercept : default True
            Centre features and target within each block.
        mechanism : {'one_shot', 'gumbel', 'canonical_lipschitz'}, default 'one_shot'
            How the features are drawn; docs/selection.md says which to take when.
        gamma : default 0.5
            Weight of the canonical Lipschitz loss, between 0 and 1.
        neighbours : {'add_remove', 'replace'}, default 'add_remove', or stated by the owner
            The neighbouring relation: tables that differ by adding or removing one row or person ('add_remove'), or by
            replacing one ('replace').
        privacy_unit : optional
            Name of the column of the id of the person to protect. Without it one row is protected.
        max_rows_per_unit : required with privacy_unit
            Rows that one person may contribute, from 1 to 1000000000. A random choice of them counts.
        row_id : optional
            Name of the column of the row's id in long rows, or of a stored unique id.
        value : optional
            Name of the column that holds the value in long rows. Without it, every listed feature has the value 1.
        dataset : default the source's name
            Name of the budget that is charged.
        release : optional
            Name of this release. The same call with the same name returns the stored result and costs nothing.
        condition : optional
            A condition on one row as text, such as 'age >= 18': only rows that meet it count. Rows for which it is NULL
            or an error do not.
        engine : default DuckDB itself
            Name of the attached engine that holds the source, see `dpsql.attach_engine`.
        during : required where the owner stated periods
            Periods whose rows count, and whose budgets are charged: '2026-10', a list of names, or '2026-01/2026-12'
            from the first to the last.

        Returns
        -------
        release : Release
            ``rank``, ``feature``, ``score``, ``std_error``, ``verdict``, ``set_verdict``.

        Raises
        ------
        DpsqlError
            With a code and the next step; it depends on public values only.
        """

    def dp_best_subset(
        self,
        source: object,
        *,
        target: str,
        features: Features | None = None,
        n_features: Integer | None = None,
        names: Iterable[str] | None = None,
        k: Integer,
        epsilon: Number | None = None,
        lower: Bounds | None = None,
        upper: Bounds | None = None,
        target_lower: Number | None = None,
        target_upper: Number | None = None,
        target_levels: Iterable[object] | None = None,
        radius: Number | None = 1.1,
        ridge: Number | None = 0,
        intercept: bool | None = False,
        method: Literal["auto", "exact", "steps", "top_r"] | None = "auto",
        list_size: Integer | None = None,
        gap: Number | None = None,
        node_limit: Integer | None = 20000000,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        row_id: str | None = None,
        value: str | None = None,
        dataset: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        engine: str | None = None,
        during: Names | None = None,
    ) -> Release:
        """Select one k-subset privately by its least squares fit.

        Parameters
        ----------
        source : str or frame
            Table, view or registered name; or a Polars, pandas or Arrow frame, for which give `dataset`.
        target : required
            Name of the target's column: numeric, text or boolean.
        features : default every numeric column
            Names of the feature columns, the name of one vector column, or in long rows the column that names the
            feature. release('name') uses the features that an earlier release selected.
        n_features : optional
            Length of the vectors of a list column, from 1 to 1000000. It is public.
        names : optional
            Public names of the features: one per element of a vector, or the names that count in long rows.
        k : required
            Number of features to select, from 1 to the number of features.
        epsilon : required where the owner states no default_epsilon
            Privacy loss of the whole call, from 1e-15 to 1e12. 1.0 is usual.
        lower : required, or stated by the owner
            Public lower bound of the features, in their own units: one number, a list with one per feature, or a struct
            by name. Values are clipped to it.
        upper : required, or stated by the owner
            Public upper bound of the features, in the same form as lower and above it. Values are clipped to it.
        target_lower : required for a numeric target
            Public lower bound of a numeric target, one number in its own unit.
        target_upper : required for a numeric target
            Public upper bound of a numeric target, above target_lower.
        target_levels : required for a text target
            The two public levels of a text target: the first is coded -1, the second +1, and any other value as 0.
        radius : default 1.1
            Radius of the ball of coefficients, from 1e-6 to 1e6. One unit is half the width of the target's bounds per
            half the width of a feature's bounds.
        ridge : default 0
            Weight of the squared coefficients in a fit, from 0 to 1e12. It costs no noise.
        intercept : default False
            Fit an intercept in every subset. It adds as much noise as one more feature.
        method : {'auto', 'exact', 'steps', 'top_r'}, default 'auto'
            Score all subsets; score those of one or two more columns in each of several steps, which ends in a public
            time; or score the best ones and give all others one score. 'auto': 'exact' up to 1e10 subsets, else
            'steps'.
        list_size : default k (d - k) + 2 for d features
            Number of subsets that the search lists, from 1 to 1000000.
        gap : optional
            For 'top_r': scores are capped at this much above the best one. A public number above 0.
        node_limit : default 20000000
            For 'exact': the search stops after this many nodes, from 1 to 1000000000. It does not change the law, and
            does not limit the time.
        neighbours : {'add_remove', 'replace'}, default 'add_remove', or stated by the owner
            The neighbouring relation: tables that differ by adding or removing one row or person ('add_remove'), or by
            replacing one ('replace').
        privacy_unit : optional
            Name of the column of the id of the person to protect. Without it one row is protected.
        max_rows_per_unit : required with privacy_unit
            Rows that one person may contribute, from 1 to 1000000000. A random choice of them counts.
        row_id : optional
            Name of the column of the row's id in long rows, or of a stored unique id.
        value : optional
            Name of the column that holds the value in long rows. Without it, every listed feature has the value 1.
        dataset : default the source's name
            Name of the budget that is charged.
        release : optional
            Name of this release. The same call with the same name returns the stored result and costs nothing.
        condition : optional
            A condition on one row as text, such as 'age >= 18': only rows that meet it count. Rows for which it is NULL
            or an error do not.
        engine : default DuckDB itself
            Name of the attached engine that holds the source, see `dpsql.attach_engine`.
        during : required where the owner stated periods
            Periods whose rows count, and whose budgets are charged: '2026-10', a list of names, or '2026-01/2026-12'
            from the first to the last.

        Returns
        -------
        release : Release
            ``rank``, ``feature``, ``score``, ``std_error``, ``verdict``, ``set_verdict``.

        Raises
        ------
        DpsqlError
            With a code and the next step; it depends on public values only.
        """

    def dp_score_filter(
        self,
        source: object,
        *,
        target: str,
        features: Features | None = None,
        n_features: Integer | None = None,
        names: Iterable[str] | None = None,
        score: Literal["total_count", "difference_count", "purity", "information_gain"] | None = "difference_count",
        threshold: Number | None = None,
        k: Integer | None = None,
        epsilon: Number | None = None,
        delta: Number | None = None,
        method: Literal["auto", "gaussian", "laplace", "svt", "cluster", "one_shot", "gumbel", "canonical_lipschitz"]
        | None = "auto",
        max_features_per_row: Integer | None = 10,
        present_above: Number | None = None,
        n_max: Integer | None = None,
        cutoff: Integer | None = None,
        false_positives: Number | None = 1,
        clusters: Integer | None = 2,
        vocabulary: Literal["public", "private"] | None = "public",
        vocabulary_share: Number | None = 0.5,
        target_levels: Iterable[object] | None = None,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        row_id: str | None = None,
        value: str | None = None,
        dataset: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        engine: str | None = None,
        during: Names | None = None,
    ) -> Release:
        """Find features privately whose counts by label score high.

        Parameters
        ----------
        source : str or frame
            Table, view or registered name; or a Polars, pandas or Arrow frame, for which give `dataset`.
        target : required
            Name of the target's column: numeric, text or boolean.
        features : default every numeric column
            Names of the feature columns, the name of one vector column, or in long rows the column that names the
            feature. release('name') uses the features that an earlier release selected.
        n_features : optional
            Length of the vectors of a list column, from 1 to 1000000. It is public.
        names : optional
            Public names of the features: one per element of a vector, or the names that count in long rows.
        score : {'total_count', 'difference_count', 'purity', 'information_gain'}, default 'difference_count'
            How features are scored; docs/selection.md defines the scores.
        threshold : optional
            Report the features whose score is at least this, from 0, in rows or in nats times rows. Give it or k.
        k : optional
            Report the k features with the highest scores. Give it or threshold.
        epsilon : required where the owner states no default_epsilon
            Privacy loss of the whole call, from 1e-15 to 1e12. 1.0 is usual.
        delta : optional
            Chance that the guarantee fails, from 1e-300 to 0.1. Keep it far below 1 / number of rows. Needed for
            Gaussian noise and for a private vocabulary.
        method : {'auto', 'gaussian', 'laplace', 'svt', 'cluster', 'one_shot', 'gumbel', 'canonical_lipschitz'}, default
        'auto'
            How the features are found; docs/selection.md compares the ways.
        max_features_per_row : default 10
            Number of features that count in full per row, from 1 to 999999. Of a row with more, each counts an equal
            share of it. A smaller number means less noise.
        present_above : default not zero
            A feature is present in a row if its value is larger than this number. For columns and vectors.
        n_max : optional
            Public limit on the number of rows that count, for exact information gain.
        cutoff : optional
            For 'svt': the largest number of features to report, from 1 to 1000000.
        false_positives : default 1
            Largest expected number of reported features that no row has, from 1e-12 to 1e12.
        clusters : default 2
            For 'cluster': number of clusters, from 2 to 1000.
        vocabulary : {'public', 'private'}, default 'public'
            Whether feature names of long rows are public, or drawn privately.
        vocabulary_share : default 0.5
            Share of the budget spent on a private vocabulary, between 0 and 1.
        target_levels : default [false, true], or [0, 1]
            The negative and the positive class of the label. Rows of neither class are ignored.
        neighbours : {'add_remove', 'replace'}, default 'add_remove', or stated by the owner
            The neighbouring relation: tables that differ by adding or removing one row or person ('add_remove'), or by
            replacing one ('replace').
        privacy_unit : optional
            Name of the column of the id of the person to protect. Without it one row is protected.
        max_rows_per_unit : required with privacy_unit
            Rows that one person may contribute, from 1 to 1000000000. A random choice of them counts.
        row_id : optional
            Name of the column of the row's id in long rows, or of a stored unique id.
        value : optional
            Name of the column that holds the value in long rows. Without it, every listed feature has the value 1.
        dataset : default the source's name
            Name of the budget that is charged.
        release : optional
            Name of this release. The same call with the same name returns the stored result and costs nothing.
        condition : optional
            A condition on one row as text, such as 'age >= 18': only rows that meet it count. Rows for which it is NULL
            or an error do not.
        engine : default DuckDB itself
            Name of the attached engine that holds the source, see `dpsql.attach_engine`.
        during : required where the owner stated periods
            Periods whose rows count, and whose budgets are charged: '2026-10', a list of names, or '2026-01/2026-12'
            from the first to the last.

        Returns
        -------
        release : Release
            ``rank``, ``feature``, ``score``, ``std_error``, ``verdict``, ``set_verdict``.

        Raises
        ------
        DpsqlError
            With a code and the next step; it depends on public values only.
        """

    def dp_linear_regression(
        self,
        source: object,
        *,
        target: str,
        features: Features | None = None,
        n_features: Integer | None = None,
        names: Iterable[str] | None = None,
        epsilon: Number | None = None,
        delta: Number,
        method: Literal["auto", "ada_ssp", "boosted_ada_ssp", "tukey", "additive"] | None = "auto",
        lower: Bounds | None = None,
        upper: Bounds | None = None,
        target_lower: Number | None = None,
        target_upper: Number | None = None,
        target_levels: Iterable[object] | None = None,
        row_norm: Number | None = None,
        rounds: Integer | None = 10,
        split: Literal["even", "thirds"] | None = "even",
        blocks: Integer | None = None,
        n_rows: Integer | None = None,
        clip: bool | None = True,
        standardize: bool | None = True,
        bounds_share: Number | None = 0.4,
        moments_share: Number | None = 0.05,
        scale_share: Number | None = 0.1,
        count_share: Number | None = 0.05,
        count_failure: Number | None = 0.0001,
        range_share: Number | None = 0.05,
        sampling: bool | None = False,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        row_id: str | None = None,
        value: str | None = None,
        dataset: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        engine: str | None = None,
        during: Names | None = None,
    ) -> Release:
        """Fit a linear model privately.

        Parameters
        ----------
        source : str or frame
            Table, view or registered name; or a Polars, pandas or Arrow frame, for which give `dataset`.
        target : required
            Name of the target's column: numeric, text or boolean.
        features : default every numeric column
            Names of the feature columns, the name of one vector column, or in long rows the column that names the
            feature. release('name') uses the features that an earlier release selected.
        n_features : optional
            Length of the vectors of a list column, from 1 to 1000000. It is public.
        names : optional
            Public names of the features: one per element of a vector, or the names that count in long rows.
        epsilon : required where the owner states no default_epsilon
            Privacy loss of the whole call, from 1e-15 to 1e12. 1.0 is usual.
        delta : required
            Chance that the guarantee fails, from 1e-300 to 0.1. Keep it far below 1 / number of rows.
        method : {'auto', 'ada_ssp', 'boosted_ada_ssp', 'tukey', 'additive'}, default 'auto'
            How the model is fitted; docs/models.md says which to take when.
        lower : default drawn privately
            Public lower bound of the features, in their own units: one number, a list with one per feature, or a struct
            by name. Values are clipped to it.
        upper : default drawn privately
            Public upper bound of the features, in the same form as lower and above it. Values are clipped to it.
        target_lower : default drawn privately
            Public lower bound of a numeric target, one number in its own unit.
        target_upper : default drawn privately
            Public upper bound of a numeric target, above target_lower.
        target_levels : required for a text target
            The two public levels of a text target: the first is coded -1, the second +1, and any other value as 0.
        row_norm : default sqrt(features), in standard deviations
            Norm to which longer rows of features are scaled down, above 0. Each feature is then measured in half widths
            of its bounds, and nothing is standardized.
        rounds : default 10
            Boosting: number of rounds, from 1 to 100000.
        split : {'even', 'thirds'}, default 'even'
            Boosting: how the products, the ridge and the rounds share the budget.
        blocks : optional
            Tukey: public number of blocks of rows.
        n_rows : optional
            Public lower bound on the number of rows, in place of a private count.
        clip : default True
            Clip predictions to the target's bounds, given or drawn.
        standardize : default True
            Measure features in their private standard deviations; not for Tukey.
        bounds_share : default 0.4
            Share of the budget spent on private bounds, between 0 and 1.
        moments_share : default 0.05
            Share of the rest spent on means and standard deviations of the features, between 0 and 1.
        scale_share : default 0.1
            Boosting: share of epsilon spent on the target's quantiles, between 0 and 1.
        count_share : default 0.05
            Tukey: share of epsilon spent on a private row count, between 0 and 1.
        count_failure : default 0.0001
            Tukey: chance that the private row count is too high, between 0 and 1.
        range_share : default 0.05
            Tukey: share of epsilon spent on the range of predictions, between 0 and 1.
        sampling : default False
            Whether standard errors also count the sampling of the rows, where the errors of all rows have one variance.
            Needs 'ada_ssp', which 'auto' then is; a tenth of the fit's budget tells the target's squares.
        neighbours : {'add_remove', 'replace'}, default 'add_remove', or stated by the owner
            The neighbouring relation: tables that differ by adding or removing one row or person ('add_remove'), or by
            replacing one ('replace').
        privacy_unit : optional
            Name of the column of the id of the person to protect. Without it one row is protected.
        max_rows_per_unit : required with privacy_unit
            Rows that one person may contribute, from 1 to 1000000000. A random choice of them counts.
        row_id : optional
            Name of the column of the row's id in long rows, or of a stored unique id.
        value : optional
            Name of the column that holds the value in long rows. Without it, every listed feature has the value 1.
        dataset : default the source's name
            Name of the budget that is charged.
        release : optional
            Name of this release. The same call with the same name returns the stored result and costs nothing.
        condition : optional
            A condition on one row as text, such as 'age >= 18': only rows that meet it count. Rows for which it is NULL
            or an error do not.
        engine : default DuckDB itself
            Name of the attached engine that holds the source, see `dpsql.attach_engine`.
        during : required where the owner stated periods
            Periods whose rows count, and whose budgets are charged: '2026-10', a list of names, or '2026-01/2026-12'
            from the first to the last.

        Returns
        -------
        release : Release
            ``term``, ``coefficient``, ``std_error``, ``verdict``.

        Raises
        ------
        DpsqlError
            With a code and the next step; it depends on public values only.
        """

    def dp_pipeline(
        self,
        source: object,
        *,
        target: str,
        features: Features | None = None,
        n_features: Integer | None = None,
        names: Iterable[str] | None = None,
        k: Integer | None = None,
        epsilon: Number | None = None,
        delta: Number,
        selector: Literal["kendall", "two_stage", "best_subset", "sis"] | None = "kendall",
        method: Literal["auto", "ada_ssp", "boosted_ada_ssp", "tukey", "additive"] | None = "auto",
        selection_share: Number | None = None,
        selection_blocks: Integer | None = 1000,
        lower: Bounds | None = None,
        upper: Bounds | None = None,
        target_lower: Number | None = None,
        target_upper: Number | None = None,
        target_levels: Iterable[object] | None = None,
        row_norm: Number | None = None,
        rounds: Integer | None = 10,
        split: Literal["even", "thirds"] | None = "even",
        blocks: Integer | None = None,
        n_rows: Integer | None = None,
        clip: bool | None = True,
        standardize: bool | None = True,
        bounds_share: Number | None = 0.4,
        moments_share: Number | None = 0.05,
        scale_share: Number | None = 0.1,
        count_share: Number | None = 0.05,
        count_failure: Number | None = 0.0001,
        range_share: Number | None = 0.05,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        row_id: str | None = None,
        value: str | None = None,
        dataset: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        engine: str | None = None,
        during: Names | None = None,
    ) -> Release:
        """Select features and fit a linear model to them under one budget.

        Parameters
        ----------
        source : str or frame
            Table, view or registered name; or a Polars, pandas or Arrow frame, for which give `dataset`.
        target : required
            Name of the target's column: numeric, text or boolean.
        features : default every numeric column
            Names of the feature columns, the name of one vector column, or in long rows the column that names the
            feature. release('name') uses the features that an earlier release selected.
        n_features : optional
            Length of the vectors of a list column, from 1 to 1000000. It is public.
        names : optional
            Public names of the features: one per element of a vector, or the names that count in long rows.
        k : default no selection
            Features to select; where there are fewer, or without it, all of up to 50.
        epsilon : required where the owner states no default_epsilon
            Privacy loss of the whole call, from 1e-15 to 1e12. 1.0 is usual.
        delta : required
            Chance that the guarantee fails, from 1e-300 to 0.1. Keep it far below 1 / number of rows.
        selector : {'kendall', 'two_stage', 'best_subset', 'sis'}, default 'kendall'
            Which selector chooses the features.
        method : {'auto', 'ada_ssp', 'boosted_ada_ssp', 'tukey', 'additive'}, default 'auto'
            How the model is fitted; docs/models.md says which to take when.
        selection_share : default 0.3, of kendall 0.1
            Share of epsilon spent on the selection, between 0 and 1.
        selection_blocks : default 1000
            Public number of blocks for the selector 'two_stage', from 1 to 1000000.
        lower : default drawn privately
            Public lower bound of the features, in their own units: one number, a list with one per feature, or a struct
            by name. Values are clipped to it.
        upper : default drawn privately
            Public upper bound of the features, in the same form as lower and above it. Values are clipped to it.
        target_lower : default drawn privately
            Public lower bound of a numeric target, one number in its own unit.
        target_upper : default drawn privately
            Public upper bound of a numeric target, above target_lower.
        target_levels : required for a text target
            The two public levels of a text target: the first is coded -1, the second +1, and any other value as 0.
        row_norm : default sqrt(features), in standard deviations
            Norm to which longer rows of features are scaled down, above 0. Each feature is then measured in half widths
            of its bounds, and nothing is standardized.
        rounds : default 10
            Boosting: number of rounds, from 1 to 100000.
        split : {'even', 'thirds'}, default 'even'
            Boosting: how the products, the ridge and the rounds share the budget.
        blocks : optional
            Tukey: public number of blocks of rows.
        n_rows : optional
            Public lower bound on the number of rows, in place of a private count.
        clip : default True
            Clip predictions to the target's bounds, given or drawn.
        standardize : default True
            Measure features in their private standard deviations; not for Tukey.
        bounds_share : default 0.4
            Share of the budget spent on private bounds, between 0 and 1.
        moments_share : default 0.05
            Share of the rest spent on means and standard deviations of the features, between 0 and 1.
        scale_share : default 0.1
            Boosting: share of epsilon spent on the target's quantiles, between 0 and 1.
        count_share : default 0.05
            Tukey: share of epsilon spent on a private row count, between 0 and 1.
        count_failure : default 0.0001
            Tukey: chance that the private row count is too high, between 0 and 1.
        range_share : default 0.05
            Tukey: share of epsilon spent on the range of predictions, between 0 and 1.
        neighbours : {'add_remove', 'replace'}, default 'add_remove', or stated by the owner
            The neighbouring relation: tables that differ by adding or removing one row or person ('add_remove'), or by
            replacing one ('replace').
        privacy_unit : optional
            Name of the column of the id of the person to protect. Without it one row is protected.
        max_rows_per_unit : required with privacy_unit
            Rows that one person may contribute, from 1 to 1000000000. A random choice of them counts.
        row_id : optional
            Name of the column of the row's id in long rows, or of a stored unique id.
        value : optional
            Name of the column that holds the value in long rows. Without it, every listed feature has the value 1.
        dataset : default the source's name
            Name of the budget that is charged.
        release : optional
            Name of this release. The same call with the same name returns the stored result and costs nothing.
        condition : optional
            A condition on one row as text, such as 'age >= 18': only rows that meet it count. Rows for which it is NULL
            or an error do not.
        engine : default DuckDB itself
            Name of the attached engine that holds the source, see `dpsql.attach_engine`.
        during : required where the owner stated periods
            Periods whose rows count, and whose budgets are charged: '2026-10', a list of names, or '2026-01/2026-12'
            from the first to the last.

        Returns
        -------
        release : Release
            ``term``, ``coefficient``, ``std_error``, ``verdict``.

        Raises
        ------
        DpsqlError
            With a code and the next step; it depends on public values only.
        """

    def dp_naive_bayes(
        self,
        source: object,
        *,
        target: str,
        features: Features | None = None,
        n_features: Integer | None = None,
        names: Iterable[str] | None = None,
        epsilon: Number | None = None,
        delta: Number | None = None,
        max_features_per_row: Integer | None = 10,
        present_above: Number | None = None,
        count_share: Number | None = 0.1,
        smoothing: Number | None = 1.0,
        shrink: bool | None = True,
        target_levels: Iterable[object] | None = None,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        row_id: str | None = None,
        value: str | None = None,
        dataset: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        engine: str | None = None,
        during: Names | None = None,
    ) -> Release:
        """Fit naive Bayes privately to binary features.

        Parameters
        ----------
        source : str or frame
            Table, view or registered name; or a Polars, pandas or Arrow frame, for which give `dataset`.
        target : required
            Name of the target's column: numeric, text or boolean.
        features : default every numeric column
            Names of the feature columns, the name of one vector column, or in long rows the column that names the
            feature. release('name') uses the features that an earlier release selected.
        n_features : optional
            Length of the vectors of a list column, from 1 to 1000000. It is public.
        names : optional
            Public names of the features: one per element of a vector, or the names that count in long rows.
        epsilon : required where the owner states no default_epsilon
            Privacy loss of the whole call, from 1e-15 to 1e12. 1.0 is usual.
        delta : optional
            Chance that the guarantee fails, from 1e-300 to 0.1. With it the noise is Gaussian; without it, pure DP.
        max_features_per_row : default 10
            Number of features that count in full per row, from 1 to 999999. Of a row with more, each counts an equal
            share of it. A smaller number means less noise.
        present_above : default not zero
            A feature is present in a row if its value is larger than this number. For columns and vectors.
        count_share : default 0.1
            Share of the budget spent on the class sizes, between 0 and 1.
        smoothing : default 1.0
            Pseudocount: rows with and rows without each feature to add to each class, above 0 and at most 1e9.
        shrink : default True
            Shrink the two classes' rates together, by as much as noise alone would separate them.
        target_levels : default [false, true], or [0, 1]
            The negative and the positive class of the label. Rows of neither class are ignored.
        neighbours : {'add_remove', 'replace'}, default 'add_remove', or stated by the owner
            The neighbouring relation: tables that differ by adding or removing one row or person ('add_remove'), or by
            replacing one ('replace').
        privacy_unit : optional
            Name of the column of the id of the person to protect. Without it one row is protected.
        max_rows_per_unit : required with privacy_unit
            Rows that one person may contribute, from 1 to 1000000000. A random choice of them counts.
        row_id : optional
            Name of the column of the row's id in long rows, or of a stored unique id.
        value : optional
            Name of the column that holds the value in long rows. Without it, every listed feature has the value 1.
        dataset : default the source's name
            Name of the budget that is charged.
        release : optional
            Name of this release. The same call with the same name returns the stored result and costs nothing.
        condition : optional
            A condition on one row as text, such as 'age >= 18': only rows that meet it count. Rows for which it is NULL
            or an error do not.
        engine : default DuckDB itself
            Name of the attached engine that holds the source, see `dpsql.attach_engine`.
        during : required where the owner stated periods
            Periods whose rows count, and whose budgets are charged: '2026-10', a list of names, or '2026-01/2026-12'
            from the first to the last.

        Returns
        -------
        release : Release
            ``term``, ``coefficient``, ``std_error``, ``verdict``.

        Raises
        ------
        DpsqlError
            With a code and the next step; it depends on public values only.
        """

    def dp_logistic_regression(
        self,
        source: object,
        *,
        target: str,
        features: Features | None = None,
        n_features: Integer | None = None,
        names: Iterable[str] | None = None,
        epsilon: Number | None = None,
        delta: Number | None = None,
        method: Literal["linear", "additive"] | None = "linear",
        lower: Bounds | None = None,
        upper: Bounds | None = None,
        row_norm: Number | None = None,
        regularization: Number | None = None,
        standardize: bool | None = True,
        bounds_share: Number | None = 0.25,
        moments_share: Number | None = 0.1,
        target_levels: Iterable[object] | None = None,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        row_id: str | None = None,
        value: str | None = None,
        dataset: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        engine: str | None = None,
        during: Names | None = None,
    ) -> Release:
        """Fit a logistic regression privately.

        Parameters
        ----------
        source : str or frame
            Table, view or registered name; or a Polars, pandas or Arrow frame, for which give `dataset`.
        target : required
            Name of the target's column: numeric, text or boolean.
        features : default every numeric column
            Names of the feature columns, the name of one vector column, or in long rows the column that names the
            feature. release('name') uses the features that an earlier release selected.
        n_features : optional
            Length of the vectors of a list column, from 1 to 1000000. It is public.
        names : optional
            Public names of the features: one per element of a vector, or the names that count in long rows.
        epsilon : required where the owner states no default_epsilon
            Privacy loss of the whole call, from 1e-15 to 1e12. 1.0 is usual.
        delta : optional
            Chance that the guarantee fails, from 1e-300 to 0.1. With it the noise is Gaussian; without it, pure DP.
        method : {'linear', 'additive'}, default 'linear'
            A linear fit with all of the budget, or with half of it, and steps per feature with the other half.
            'additive' needs delta, and features in columns or vectors.
        lower : default drawn privately
            Public lower bound of the features, in their own units: one number, a list with one per feature, or a struct
            by name. Values are clipped to it.
        upper : default drawn privately
            Public upper bound of the features, in the same form as lower and above it. Values are clipped to it.
        row_norm : default sqrt(features), in standard deviations; without delta none is shortened
            Norm to which longer rows of features are scaled down, at least 2**-10. Each feature is then measured in
            half widths of its bounds, and nothing is standardized.
        regularization : default chosen from the public arguments
            Ridge penalty: weight of the squared coefficients against the loss summed over all rows, above 0.
        standardize : default True
            Measure features in their private standard deviations; needs delta, not for long rows.
        bounds_share : default 0.25
            Share of the budget spent on private bounds, between 0 and 1.
        moments_share : default 0.1
            Share of the budget spent on means and standard deviations, between 0 and 1.
        target_levels : default [false, true], or [0, 1]
            The negative and the positive class of the label. Rows of neither class are ignored.
        neighbours : {'add_remove', 'replace'}, default 'add_remove', or stated by the owner
            The neighbouring relation: tables that differ by adding or removing one row or person ('add_remove'), or by
            replacing one ('replace').
        privacy_unit : optional
            Name of the column of the id of the person to protect. Without it one row is protected.
        max_rows_per_unit : required with privacy_unit
            Rows that one person may contribute, from 1 to 1000000000. A random choice of them counts.
        row_id : optional
            Name of the column of the row's id in long rows, or of a stored unique id.
        value : optional
            Name of the column that holds the value in long rows. Without it, every listed feature has the value 1.
        dataset : default the source's name
            Name of the budget that is charged.
        release : optional
            Name of this release. The same call with the same name returns the stored result and costs nothing.
        condition : optional
            A condition on one row as text, such as 'age >= 18': only rows that meet it count. Rows for which it is NULL
            or an error do not.
        engine : default DuckDB itself
            Name of the attached engine that holds the source, see `dpsql.attach_engine`.
        during : required where the owner stated periods
            Periods whose rows count, and whose budgets are charged: '2026-10', a list of names, or '2026-01/2026-12'
            from the first to the last.

        Returns
        -------
        release : Release
            ``term``, ``coefficient``, ``std_error``, ``verdict``.

        Raises
        ------
        DpsqlError
            With a code and the next step; it depends on public values only.
        """

    def dp_quantile(
        self,
        source: object,
        *,
        target: str,
        quantiles: Numbers | None = 0.5,
        epsilon: Number | None = None,
        lower: Number | None = None,
        upper: Number | None = None,
        cells: Integer | None = None,
        interval_share: Number | None = 0.25,
        bounds_share: Number | None = None,
        by: Names | None = None,
        keys: Keys | None = None,
        other: bool | None = False,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        max_groups_per_unit: Integer | None = None,
        max_rows_per_unit_group: Integer | None = None,
        row_id: str | None = None,
        dataset: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        engine: str | None = None,
        during: Names | None = None,
    ) -> Release:
        """Draw private quantiles of a column.

        Parameters
        ----------
        source : str or frame
            Table, view or registered name; or a Polars, pandas or Arrow frame, for which give `dataset`.
        target : required
            Name of the target's column: numeric, text or boolean.
        quantiles : default 0.5
            The quantiles to draw: one number between 0 and 1, or up to 1000 in ascending order.
        epsilon : required where the owner states no default_epsilon
            Privacy loss of the whole call, from 1e-15 to 1e12. 1.0 is usual.
        lower : default none; drawn privately with by
            Public lower bound of the values, one number. Values are clipped to it.
        upper : default none; drawn privately with by
            Public upper bound of the values, one number. Values are clipped to it.
        cells : default by the column's type and the bounds
            Number of cells of equal width between the bounds, from 1 to 1048576. A quantile is the midpoint of a cell.
        interval_share : default 0.25
            Share of epsilon, from 0 to below 1, that pays for the intervals of the quantiles.
        bounds_share : default none are drawn; 0.25 with by
            Share of epsilon that draws bounds first where none are given, between 0 and 1. Quantiles need none without
            by.
        by : optional
            Names of the columns to group by: one name, or a list. All groups are one release.
        keys : default stated by the owner, or by the column's type
            The groups, from public knowledge: a list of values, a struct of lists by column (all combinations), or a
            list of structs. BOOLEAN columns need none, nor ENUMs with declared labels. 'private' releases keys that
            many units have, and needs delta.
        other : default False
            Whether rows of all other keys form one group more, in which the column other is true.
        neighbours : {'add_remove', 'replace'}, default 'add_remove', or stated by the owner
            The neighbouring relation: tables that differ by adding or removing one row or person ('add_remove'), or by
            replacing one ('replace').
        privacy_unit : optional
            Name of the column of the id of the person to protect. Without it one row is protected.
        max_rows_per_unit : required with privacy_unit
            Rows that one person may contribute, from 1 to 1000000000. A random choice of them counts.
        max_groups_per_unit : default max_rows_per_unit
            Groups in which one person may have rows. A random choice of them counts.
        max_rows_per_unit_group : default max_rows_per_unit
            Rows that one person may contribute to a group. A random choice of them counts.
        row_id : optional
            Name of the column of the row's id in long rows, or of a stored unique id.
        dataset : default the source's name
            Name of the budget that is charged.
        release : optional
            Name of this release. The same call with the same name returns the stored result and costs nothing.
        condition : optional
            A condition on one row as text, such as 'age >= 18': only rows that meet it count. Rows for which it is NULL
            or an error do not.
        engine : default DuckDB itself
            Name of the attached engine that holds the source, see `dpsql.attach_engine`.
        during : required where the owner stated periods
            Periods whose rows count, and whose budgets are charged: '2026-10', a list of names, or '2026-01/2026-12'
            from the first to the last.

        Returns
        -------
        release : Release
            ``quantile``, ``value``, ``lower``, ``upper``, ``verdict``, ``covers``, ``speaks_of``.

        Raises
        ------
        DpsqlError
            With a code and the next step; it depends on public values only.
        """

    def dp_bounds(
        self,
        source: object,
        *,
        target: str,
        epsilon: Number | None = None,
        failure: Number | None = 0.01,
        by: Names | None = None,
        keys: Keys | None = None,
        other: bool | None = False,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        max_groups_per_unit: Integer | None = None,
        max_rows_per_unit_group: Integer | None = None,
        row_id: str | None = None,
        dataset: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        engine: str | None = None,
        during: Names | None = None,
    ) -> Release:
        """Draw private bounds that hold the bulk of a column.

        Parameters
        ----------
        source : str or frame
            Table, view or registered name; or a Polars, pandas or Arrow frame, for which give `dataset`.
        target : required
            Name of the target's column: numeric, text or boolean.
        epsilon : required where the owner states no default_epsilon
            Privacy loss of the whole call, from 1e-15 to 1e12. 1.0 is usual.
        failure : default 0.01
            Chance, at most, that either claim about a clear interval is false, between 0 and 1.
        by : optional
            Names of the columns to group by: one name, or a list. All groups are one release.
        keys : default stated by the owner, or by the column's type
            The groups, from public knowledge: a list of values, a struct of lists by column (all combinations), or a
            list of structs. BOOLEAN columns need none, nor ENUMs with declared labels. 'private' releases keys that
            many units have, and needs delta.
        other : default False
            Whether rows of all other keys form one group more, in which the column other is true.
        neighbours : {'add_remove', 'replace'}, default 'add_remove', or stated by the owner
            The neighbouring relation: tables that differ by adding or removing one row or person ('add_remove'), or by
            replacing one ('replace').
        privacy_unit : optional
            Name of the column of the id of the person to protect. Without it one row is protected.
        max_rows_per_unit : required with privacy_unit
            Rows that one person may contribute, from 1 to 1000000000. A random choice of them counts.
        max_groups_per_unit : default max_rows_per_unit
            Groups in which one person may have rows. A random choice of them counts.
        max_rows_per_unit_group : default max_rows_per_unit
            Rows that one person may contribute to a group. A random choice of them counts.
        row_id : optional
            Name of the column of the row's id in long rows, or of a stored unique id.
        dataset : default the source's name
            Name of the budget that is charged.
        release : optional
            Name of this release. The same call with the same name returns the stored result and costs nothing.
        condition : optional
            A condition on one row as text, such as 'age >= 18': only rows that meet it count. Rows for which it is NULL
            or an error do not.
        engine : default DuckDB itself
            Name of the attached engine that holds the source, see `dpsql.attach_engine`.
        during : required where the owner stated periods
            Periods whose rows count, and whose budgets are charged: '2026-10', a list of names, or '2026-01/2026-12'
            from the first to the last.

        Returns
        -------
        release : Release
            ``lower``, ``upper``, ``rows_inside``, ``rows_outside``, ``std_error``, ``verdict``.

        Raises
        ------
        DpsqlError
            With a code and the next step; it depends on public values only.
        """

    def dp_covariance(
        self,
        source: object,
        *,
        features: Features | None = None,
        n_features: Integer | None = None,
        names: Iterable[str] | None = None,
        epsilon: Number | None = None,
        delta: Number | None = None,
        lower: Bounds | None = None,
        upper: Bounds | None = None,
        ddof: Number | None = 1,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        row_id: str | None = None,
        value: str | None = None,
        dataset: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        engine: str | None = None,
        during: Names | None = None,
    ) -> Release:
        """Release the covariance matrix of columns privately.

        Parameters
        ----------
        source : str or frame
            Table, view or registered name; or a Polars, pandas or Arrow frame, for which give `dataset`.
        features : default every numeric column
            Names of the feature columns, the name of one vector column, or in long rows the column that names the
            feature. release('name') uses the features that an earlier release selected.
        n_features : optional
            Length of the vectors of a list column, from 1 to 1000000. It is public.
        names : optional
            Public names of the features: one per element of a vector, or the names that count in long rows.
        epsilon : required where the owner states no default_epsilon
            Privacy loss of the whole call, from 1e-15 to 1e12. 1.0 is usual.
        delta : optional
            Chance that the guarantee fails, from 1e-300 to 0.1. With it the noise is Gaussian; without it, pure DP.
        lower : required, or stated by the owner
            Public lower bound of the features, in their own units: one number, a list with one per feature, or a struct
            by name. Values are clipped to it.
        upper : required, or stated by the owner
            Public upper bound of the features, in the same form as lower and above it. Values are clipped to it.
        ddof : default 1
            The divisor of a covariance is the number of rows less this: 1 as covar_samp, 0 as covar_pop.
        neighbours : {'add_remove', 'replace'}, default 'add_remove', or stated by the owner
            The neighbouring relation: tables that differ by adding or removing one row or person ('add_remove'), or by
            replacing one ('replace').
        privacy_unit : optional
            Name of the column of the id of the person to protect. Without it one row is protected.
        max_rows_per_unit : required with privacy_unit
            Rows that one person may contribute, from 1 to 1000000000. A random choice of them counts.
        row_id : optional
            Name of the column of the row's id in long rows, or of a stored unique id.
        value : optional
            Name of the column that holds the value in long rows. Without it, every listed feature has the value 1.
        dataset : default the source's name
            Name of the budget that is charged.
        release : optional
            Name of this release. The same call with the same name returns the stored result and costs nothing.
        condition : optional
            A condition on one row as text, such as 'age >= 18': only rows that meet it count. Rows for which it is NULL
            or an error do not.
        engine : default DuckDB itself
            Name of the attached engine that holds the source, see `dpsql.attach_engine`.
        during : required where the owner stated periods
            Periods whose rows count, and whose budgets are charged: '2026-10', a list of names, or '2026-01/2026-12'
            from the first to the last.

        Returns
        -------
        release : Release
            ``feature_1``, ``feature_2``, ``value``, ``std_error``, ``lower``, ``upper``, ``verdict``, ``covers``,
            ``speaks_of``.

        Raises
        ------
        DpsqlError
            With a code and the next step; it depends on public values only.
        """

    def dp_correlation(
        self,
        source: object,
        *,
        features: Features | None = None,
        n_features: Integer | None = None,
        names: Iterable[str] | None = None,
        epsilon: Number | None = None,
        delta: Number | None = None,
        lower: Bounds | None = None,
        upper: Bounds | None = None,
        sampling: bool | None = False,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        row_id: str | None = None,
        value: str | None = None,
        dataset: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        engine: str | None = None,
        during: Names | None = None,
    ) -> Release:
        """Release the correlation matrix of columns privately.

        Parameters
        ----------
        source : str or frame
            Table, view or registered name; or a Polars, pandas or Arrow frame, for which give `dataset`.
        features : default every numeric column
            Names of the feature columns, the name of one vector column, or in long rows the column that names the
            feature. release('name') uses the features that an earlier release selected.
        n_features : optional
            Length of the vectors of a list column, from 1 to 1000000. It is public.
        names : optional
            Public names of the features: one per element of a vector, or the names that count in long rows.
        epsilon : required where the owner states no default_epsilon
            Privacy loss of the whole call, from 1e-15 to 1e12. 1.0 is usual.
        delta : optional
            Chance that the guarantee fails, from 1e-300 to 0.1. With it the noise is Gaussian; without it, pure DP.
        lower : required, or stated by the owner
            Public lower bound of the features, in their own units: one number, a list with one per feature, or a struct
            by name. Values are clipped to it.
        upper : required, or stated by the owner
            Public upper bound of the features, in the same form as lower and above it. Values are clipped to it.
        sampling : default False
            Whether the interval is about the population that the rows are from, rather than about these rows, at no
            further cost.
        neighbours : {'add_remove', 'replace'}, default 'add_remove', or stated by the owner
            The neighbouring relation: tables that differ by adding or removing one row or person ('add_remove'), or by
            replacing one ('replace').
        privacy_unit : optional
            Name of the column of the id of the person to protect. Without it one row is protected.
        max_rows_per_unit : required with privacy_unit
            Rows that one person may contribute, from 1 to 1000000000. A random choice of them counts.
        row_id : optional
            Name of the column of the row's id in long rows, or of a stored unique id.
        value : optional
            Name of the column that holds the value in long rows. Without it, every listed feature has the value 1.
        dataset : default the source's name
            Name of the budget that is charged.
        release : optional
            Name of this release. The same call with the same name returns the stored result and costs nothing.
        condition : optional
            A condition on one row as text, such as 'age >= 18': only rows that meet it count. Rows for which it is NULL
            or an error do not.
        engine : default DuckDB itself
            Name of the attached engine that holds the source, see `dpsql.attach_engine`.
        during : required where the owner stated periods
            Periods whose rows count, and whose budgets are charged: '2026-10', a list of names, or '2026-01/2026-12'
            from the first to the last.

        Returns
        -------
        release : Release
            ``feature_1``, ``feature_2``, ``value``, ``std_error``, ``lower``, ``upper``, ``verdict``, ``covers``,
            ``speaks_of``.

        Raises
        ------
        DpsqlError
            With a code and the next step; it depends on public values only.
        """

    def dp_regression_metrics(
        self,
        source: object,
        *,
        target: str,
        prediction: str,
        epsilon: Number | None = None,
        lower: Number | None = None,
        upper: Number | None = None,
        error_bound: Number | None = None,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        row_id: str | None = None,
        dataset: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        engine: str | None = None,
        during: Names | None = None,
    ) -> Release:
        """Measure predictions privately.

        Parameters
        ----------
        source : str or frame
            Table, view or registered name; or a Polars, pandas or Arrow frame, for which give `dataset`.
        target : required
            Name of the target's column: numeric, text or boolean.
        prediction : required
            Name of the column that holds the predictions.
        epsilon : required where the owner states no default_epsilon
            Privacy loss of the whole call, from 1e-15 to 1e12. 1.0 is usual.
        lower : required, or stated by the owner
            Public lower bound of the values, one number. Values are clipped to it.
        upper : required, or stated by the owner
            Public upper bound of the values, one number. Values are clipped to it.
        error_bound : default the width of the bounds
            Bound that errors are clipped to, above 0, in the unit of the target.
        neighbours : {'add_remove', 'replace'}, default 'add_remove', or stated by the owner
            The neighbouring relation: tables that differ by adding or removing one row or person ('add_remove'), or by
            replacing one ('replace').
        privacy_unit : optional
            Name of the column of the id of the person to protect. Without it one row is protected.
        max_rows_per_unit : required with privacy_unit
            Rows that one person may contribute, from 1 to 1000000000. A random choice of them counts.
        row_id : optional
            Name of the column of the row's id in long rows, or of a stored unique id.
        dataset : default the source's name
            Name of the budget that is charged.
        release : optional
            Name of this release. The same call with the same name returns the stored result and costs nothing.
        condition : optional
            A condition on one row as text, such as 'age >= 18': only rows that meet it count. Rows for which it is NULL
            or an error do not.
        engine : default DuckDB itself
            Name of the attached engine that holds the source, see `dpsql.attach_engine`.
        during : required where the owner stated periods
            Periods whose rows count, and whose budgets are charged: '2026-10', a list of names, or '2026-01/2026-12'
            from the first to the last.

        Returns
        -------
        release : Release
            ``metric``, ``value``, ``lower``, ``upper``, ``verdict``.

        Raises
        ------
        DpsqlError
            With a code and the next step; it depends on public values only.
        """

    def dp_roc(
        self,
        source: object,
        *,
        label: str,
        score: str,
        epsilon: Number | None = None,
        delta: Number | None = None,
        thresholds: Literal["recursive", "fixed", "smooth_medians"] | None = "recursive",
        n_thresholds: Integer | None = 15,
        threshold_share: Number | None = 0.2,
        curve: Literal["auto", "identity", "tree", "wavelet", "toeplitz"] | None = "auto",
        cells: Number | None = 4096,
        lower: Number | None = 0,
        upper: Number | None = 1,
        target_levels: Iterable[object] | None = None,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        row_id: str | None = None,
        dataset: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        engine: str | None = None,
        during: Names | None = None,
    ) -> Release:
        """Release a ROC curve of scores privately.

        Parameters
        ----------
        source : str or frame
            Table, view or registered name; or a Polars, pandas or Arrow frame, for which give `dataset`.
        label : required
            Name of the column that holds the label.
        score : required
            Name of the column that holds the score. A higher score means that the positive class is more likely.
        epsilon : required where the owner states no default_epsilon
            Privacy loss of the whole call, from 1e-15 to 1e12. 1.0 is usual.
        delta : optional
            Chance that the guarantee fails, from 1e-300 to 0.1. With it the noise is Gaussian; without it, pure DP.
        thresholds : {'recursive', 'fixed', 'smooth_medians'}, default 'recursive'
            How the thresholds are chosen.
        n_thresholds : default 15
            Number of thresholds, from 1 to 255 and below the number of cells.
        threshold_share : default 0.2
            Share of epsilon spent on choosing the thresholds, between 0 and 1.
        curve : {'auto', 'identity', 'tree', 'wavelet', 'toeplitz'}, default 'auto'
            Strategy that adds noise to the cumulative counts.
        cells : default 4096
            Number of equal-width cells that scores are counted in, from 1 to 65536.
        lower : default 0
            Public lower bound of the score, one number. Scores are clipped to it.
        upper : default 1
            Public upper bound of the score, one number. Scores are clipped to it.
        target_levels : default [false, true], or [0, 1]
            The negative and the positive class of the label. Rows of neither class are ignored.
        neighbours : {'add_remove', 'replace'}, default 'add_remove', or stated by the owner
            The neighbouring relation: tables that differ by adding or removing one row or person ('add_remove'), or by
            replacing one ('replace').
        privacy_unit : optional
            Name of the column of the id of the person to protect. Without it one row is protected.
        max_rows_per_unit : required with privacy_unit
            Rows that one person may contribute, from 1 to 1000000000. A random choice of them counts.
        row_id : optional
            Name of the column of the row's id in long rows, or of a stored unique id.
        dataset : default the source's name
            Name of the budget that is charged.
        release : optional
            Name of this release. The same call with the same name returns the stored result and costs nothing.
        condition : optional
            A condition on one row as text, such as 'age >= 18': only rows that meet it count. Rows for which it is NULL
            or an error do not.
        engine : default DuckDB itself
            Name of the attached engine that holds the source, see `dpsql.attach_engine`.
        during : required where the owner stated periods
            Periods whose rows count, and whose budgets are charged: '2026-10', a list of names, or '2026-01/2026-12'
            from the first to the last.

        Returns
        -------
        release : Release
            ``threshold``, ``fpr``, ``tpr``, ``fpr_std_error``, ``tpr_std_error``, ``verdict``.

        Raises
        ------
        DpsqlError
            With a code and the next step; it depends on public values only.
        """

    @overload
    def dp_auc(self, *, release: str | int | Release, dataset: str | None = None) -> pa.Table: ...
    @overload
    def dp_auc(
        self,
        source: object,
        *,
        label: str,
        score: str,
        epsilon: Number | None = None,
        delta: Number | None = None,
        method: Literal["scaled", "smooth"] | None = "scaled",
        noise: Literal["auto", "laplace", "gaussian"] | None = "auto",
        cells: Integer | None = None,
        lower: Number | None = 0,
        upper: Number | None = 1,
        target_levels: Iterable[object] | None = None,
        sampling: bool | None = False,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        row_id: str | None = None,
        dataset: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        engine: str | None = None,
        during: Names | None = None,
    ) -> Release:
        """Release the area under a ROC curve privately.

        With `release` alone, the result is read off a named release at no cost, and comes as a table.

        Parameters
        ----------
        source : str or frame
            Table, view or registered name; or a Polars, pandas or Arrow frame, for which give `dataset`.
        label : required
            Name of the column that holds the label.
        score : required
            Name of the column that holds the score. A higher score means that the positive class is more likely.
        epsilon : required where the owner states no default_epsilon
            Privacy loss of the whole call, from 1e-15 to 1e12. 1.0 is usual.
        delta : optional
            Chance that the guarantee fails, from 1e-300 to 0.1. Without it pure DP; with it noise may be Gaussian.
        method : {'scaled', 'smooth'}, default 'scaled'
            What gets noise: a scaled count of pairs, or the area by its smooth sensitivity.
        noise : {'auto', 'laplace', 'gaussian'}, default 'auto'
            The law of the noise; 'auto' takes what is smaller.
        cells : default none
            Number of equal-width cells, from 1 to 65536, in which scores are tied: an area is that of scores rounded
            so. Without it no score is rounded; method := 'smooth' has 4096.
        lower : default 0
            Public lower bound of the score, one number. Scores are clipped to it.
        upper : default 1
            Public upper bound of the score, one number. Scores are clipped to it.
        target_levels : default [false, true], or [0, 1]
            The negative and the positive class of the label. Rows of neither class are ignored.
        sampling : default False
            Whether the interval is about the population that the rows are from, rather than about these rows, at no
            further cost.
        neighbours : {'add_remove', 'replace'}, default 'add_remove', or stated by the owner
            The neighbouring relation: tables that differ by adding or removing one row or person ('add_remove'), or by
            replacing one ('replace').
        privacy_unit : optional
            Name of the column of the id of the person to protect. Without it one row is protected.
        max_rows_per_unit : required with privacy_unit
            Rows that one person may contribute, from 1 to 1000000000. A random choice of them counts.
        row_id : optional
            Name of the column of the row's id in long rows, or of a stored unique id.
        dataset : default the source's name
            Name of the budget that is charged.
        release : optional
            Name of this release. The same call with the same name returns the stored result and costs nothing.
        condition : optional
            A condition on one row as text, such as 'age >= 18': only rows that meet it count. Rows for which it is NULL
            or an error do not.
        engine : default DuckDB itself
            Name of the attached engine that holds the source, see `dpsql.attach_engine`.
        during : required where the owner stated periods
            Periods whose rows count, and whose budgets are charged: '2026-10', a list of names, or '2026-01/2026-12'
            from the first to the last.

        Returns
        -------
        release : Release
            ``auc``, ``std_error``, ``lower``, ``upper``, ``verdict``.

        Raises
        ------
        DpsqlError
            With a code and the next step; it depends on public values only.
        """

    def dp_confusion(
        self,
        source: object,
        *,
        label: str,
        score: str,
        thresholds: Numbers | None = 0.5,
        epsilon: Number | None = None,
        delta: Number | None = None,
        curve: Literal["auto", "identity", "tree", "wavelet", "toeplitz"] | None = "auto",
        lower: Number | None = 0,
        upper: Number | None = 1,
        target_levels: Iterable[object] | None = None,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        row_id: str | None = None,
        dataset: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        engine: str | None = None,
        during: Names | None = None,
    ) -> Release:
        """Release confusion matrices at public thresholds privately.

        Parameters
        ----------
        source : str or frame
            Table, view or registered name; or a Polars, pandas or Arrow frame, for which give `dataset`.
        label : required
            Name of the column that holds the label.
        score : required
            Name of the column that holds the score. A higher score means that the positive class is more likely.
        thresholds : default 0.5
            Public thresholds: one number, or up to 100. A score of at least the threshold is predicted positive.
        epsilon : required where the owner states no default_epsilon
            Privacy loss of the whole call, from 1e-15 to 1e12. 1.0 is usual.
        delta : optional
            Chance that the guarantee fails, from 1e-300 to 0.1. With it the noise is Gaussian; without it, pure DP.
        curve : {'auto', 'identity', 'tree', 'wavelet', 'toeplitz'}, default 'auto'
            Strategy that adds noise to the cumulative counts.
        lower : default 0
            Public lower bound of the score, one number. Scores are clipped to it.
        upper : default 1
            Public upper bound of the score, one number. Scores are clipped to it.
        target_levels : default [false, true], or [0, 1]
            The negative and the positive class of the label. Rows of neither class are ignored.
        neighbours : {'add_remove', 'replace'}, default 'add_remove', or stated by the owner
            The neighbouring relation: tables that differ by adding or removing one row or person ('add_remove'), or by
            replacing one ('replace').
        privacy_unit : optional
            Name of the column of the id of the person to protect. Without it one row is protected.
        max_rows_per_unit : required with privacy_unit
            Rows that one person may contribute, from 1 to 1000000000. A random choice of them counts.
        row_id : optional
            Name of the column of the row's id in long rows, or of a stored unique id.
        dataset : default the source's name
            Name of the budget that is charged.
        release : optional
            Name of this release. The same call with the same name returns the stored result and costs nothing.
        condition : optional
            A condition on one row as text, such as 'age >= 18': only rows that meet it count. Rows for which it is NULL
            or an error do not.
        engine : default DuckDB itself
            Name of the attached engine that holds the source, see `dpsql.attach_engine`.
        during : required where the owner stated periods
            Periods whose rows count, and whose budgets are charged: '2026-10', a list of names, or '2026-01/2026-12'
            from the first to the last.

        Returns
        -------
        release : Release
            ``threshold``, ``true_positives``, ``false_positives``, ``false_negatives``, ``true_negatives``,
            ``accuracy``, ``precision``, ``recall``, ``f1``, ``std_error``, ``verdict``.

        Raises
        ------
        DpsqlError
            With a code and the next step; it depends on public values only.
        """

    select_then_fit = dp_pipeline

class FrameMethods:
    """The methods of the namespace `dp` of Polars frames for SQL functions: `count` is `dp_count`."""

    def protect(
        self,
        *,
        epsilon: Number | None = None,
        delta: Number | None = None,
        rho: Number | None = None,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: int | Mapping[str, int] | None = None,
        lower: Bounds | None = None,
        upper: Bounds | None = None,
        target_lower: Number | None = None,
        target_upper: Number | None = None,
        target_levels: Iterable[object] | None = None,
        keys: Mapping[str, Iterable[object]] | None = None,
        accountant: Literal["basic", "rdp"] | None = None,
        public: Names | None = None,
        mark: bool | None = True,
        replace: bool | None = False,
        claims: Literal["rows", "none", "all"] | None = None,
        enum_labels: Literal["private", "public"] | None = None,
        extremes: Literal["refused", "quantiles"] | None = None,
        period: Literal["day", "week", "month", "quarter", "year", "none"] | None = None,
        period_of: str | Mapping[str, str | None] | None = None,
        period_zone: Literal["UTC"] | None = None,
        epsilon_total: Number | None = None,
        delta_total: Number | None = None,
        default_epsilon: Number | Literal["none"] | None = None,
        default_delta: Number | Literal["none"] | None = None,
        default_daily_epsilon: Number | Literal["none"] | None = None,
        dated_ahead: bool | None = True,
    ) -> str:
        """Set the budget of the frame's dataset, which `of` names; return the new state, in words."""

    def query(
        self,
        sql: str,
        *,
        epsilon: Number | None = None,
        delta: Number | None = None,
        errors: bool | None = False,
        keys: Keys | None = None,
        lower: Bounds | None = None,
        upper: Bounds | None = None,
        during: Names | None = None,
        max_rows_per_unit: Integer | None = None,
        max_groups_per_unit: Integer | None = None,
        left_out_share: Number | None = None,
        confidence: Number | None = 0.95,
        release: str | None = None,
        max_age: Number | None = None,
        estimate: bool | None = False,
        fresh: bool | None = False,
    ) -> pl.DataFrame:
        """Answer a query of plain SQL privately, in which ``self`` is the frame; see `dp_query` of SQL.

        The rows come as a Polars frame. DuckDB reads the named columns of the frame once. A query without `release`
        runs anew each time, because other frames may have other rows.
        """

    def count(
        self,
        *,
        target: Names | None = None,
        distinct_of: Names | None = None,
        epsilon: Number | None = None,
        delta: Number | None = None,
        by: Names | None = None,
        keys: Keys | None = None,
        other: bool | None = False,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        max_groups_per_unit: Integer | None = None,
        max_rows_per_unit_group: Integer | None = None,
        left_out_share: Number | None = None,
        noise: Literal["auto", "laplace", "gaussian"] | None = "auto",
        confidence: Number | None = 0.95,
        release: str | None = None,
        condition: str | None = None,
        during: Names | None = None,
    ) -> pl.DataFrame:
        """Count rows, values or distinct units privately, in groups.

        The rows of the release, as a Polars frame; see `dp_count` of SQL.
        """

    def sum(
        self,
        *,
        target: Names,
        epsilon: Number | None = None,
        delta: Number | None = None,
        lower: Number | None = None,
        upper: Number | None = None,
        bounds_share: Number | None = 0.25,
        by: Names | None = None,
        keys: Keys | None = None,
        other: bool | None = False,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        max_groups_per_unit: Integer | None = None,
        max_rows_per_unit_group: Integer | None = None,
        left_out_share: Number | None = None,
        unit_value: Literal["rows", "sum"] | None = "rows",
        group_sizes: Numbers | None = None,
        noise: Literal["auto", "laplace", "gaussian"] | None = "auto",
        confidence: Number | None = 0.95,
        release: str | None = None,
        condition: str | None = None,
        during: Names | None = None,
    ) -> pl.DataFrame:
        """Add up a column privately, in groups.

        The rows of the release, as a Polars frame; see `dp_sum` of SQL.
        """

    def avg(
        self,
        *,
        target: Names,
        epsilon: Number | None = None,
        delta: Number | None = None,
        lower: Number | None = None,
        upper: Number | None = None,
        bounds_share: Number | None = 0.25,
        by: Names | None = None,
        keys: Keys | None = None,
        other: bool | None = False,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        max_groups_per_unit: Integer | None = None,
        max_rows_per_unit_group: Integer | None = None,
        left_out_share: Number | None = None,
        unit_value: Literal["rows", "sum"] | None = "rows",
        nulls: Literal["middle"] | None = None,
        group_sizes: Numbers | None = None,
        noise: Literal["auto", "laplace", "gaussian"] | None = "auto",
        sampling: bool | None = False,
        confidence: Number | None = 0.95,
        release: str | None = None,
        condition: str | None = None,
        during: Names | None = None,
    ) -> pl.DataFrame:
        """Average a column privately, in groups.

        The rows of the release, as a Polars frame; see `dp_avg` of SQL.
        """

    def variance(
        self,
        *,
        target: Names,
        epsilon: Number | None = None,
        delta: Number | None = None,
        lower: Number | None = None,
        upper: Number | None = None,
        bounds_share: Number | None = 0.25,
        by: Names | None = None,
        keys: Keys | None = None,
        other: bool | None = False,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        max_groups_per_unit: Integer | None = None,
        max_rows_per_unit_group: Integer | None = None,
        left_out_share: Number | None = None,
        unit_value: Literal["rows", "sum"] | None = "rows",
        noise: Literal["auto", "laplace", "gaussian"] | None = "auto",
        ddof: Number | None = 1,
        confidence: Number | None = 0.95,
        release: str | None = None,
        condition: str | None = None,
        during: Names | None = None,
    ) -> pl.DataFrame:
        """Estimate the variance of a column privately, in groups.

        The rows of the release, as a Polars frame; see `dp_variance` of SQL.
        """

    def stddev(
        self,
        *,
        target: Names,
        epsilon: Number | None = None,
        delta: Number | None = None,
        lower: Number | None = None,
        upper: Number | None = None,
        bounds_share: Number | None = 0.25,
        by: Names | None = None,
        keys: Keys | None = None,
        other: bool | None = False,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        max_groups_per_unit: Integer | None = None,
        max_rows_per_unit_group: Integer | None = None,
        left_out_share: Number | None = None,
        unit_value: Literal["rows", "sum"] | None = "rows",
        noise: Literal["auto", "laplace", "gaussian"] | None = "auto",
        ddof: Number | None = 1,
        confidence: Number | None = 0.95,
        release: str | None = None,
        condition: str | None = None,
        during: Names | None = None,
    ) -> pl.DataFrame:
        """Estimate the standard deviation of a column privately, in groups.

        The rows of the release, as a Polars frame; see `dp_stddev` of SQL.
        """

    def aggregate(
        self,
        *,
        aggregates: Names,
        target: Names | None = None,
        epsilon: Number | None = None,
        delta: Number | None = None,
        lower: Number | None = None,
        upper: Number | None = None,
        bounds_share: Number | None = 0.25,
        by: Names | None = None,
        keys: Keys | None = None,
        other: bool | None = False,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        max_groups_per_unit: Integer | None = None,
        max_rows_per_unit_group: Integer | None = None,
        left_out_share: Number | None = None,
        unit_value: Literal["rows", "sum"] | None = "rows",
        nulls: Literal["middle"] | None = None,
        group_sizes: Numbers | None = None,
        noise: Literal["auto", "laplace", "gaussian"] | None = "auto",
        ddof: Number | None = 1,
        sampling: bool | None = False,
        confidence: Number | None = 0.95,
        release: str | None = None,
        condition: str | None = None,
        during: Names | None = None,
    ) -> pl.DataFrame:
        """Release several aggregates of several columns as one, in groups.

        The rows of the release, as a Polars frame; see `dp_aggregate` of SQL.
        """

    def histogram(
        self,
        *,
        target: str,
        bins: Numbers | None = None,
        epsilon: Number | None = None,
        delta: Number | None = None,
        lower: Number | None = None,
        upper: Number | None = None,
        n_bins: Integer | None = None,
        null_bin: bool | None = True,
        by: Names | None = None,
        keys: Keys | None = None,
        other: bool | None = False,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        max_groups_per_unit: Integer | None = None,
        max_rows_per_unit_group: Integer | None = None,
        noise: Literal["auto", "laplace", "gaussian"] | None = "auto",
        curve: Literal["auto", "identity", "tree", "wavelet", "toeplitz"] | None = "identity",
        confidence: Number | None = 0.95,
        release: str | None = None,
        condition: str | None = None,
        during: Names | None = None,
    ) -> pl.DataFrame:
        """Count the values of a column privately between public edges.

        The rows of the release, as a Polars frame; see `dp_histogram` of SQL.
        """

    def crosstab(
        self,
        *,
        rows: str | None = None,
        columns: str | None = None,
        by: Names | None = None,
        keys: Keys | None = None,
        epsilon: Number | None = None,
        delta: Number | None = None,
        margins: bool | None = True,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        max_groups_per_unit: Integer | None = None,
        max_rows_per_unit_group: Integer | None = None,
        noise: Literal["auto", "laplace", "gaussian"] | None = "auto",
        confidence: Number | None = 0.95,
        release: str | None = None,
        condition: str | None = None,
        during: Names | None = None,
    ) -> pl.DataFrame:
        """Count the combinations of columns privately, with margins.

        The rows of the release, as a Polars frame; see `dp_crosstab` of SQL.
        """

    def synthetic(
        self,
        *,
        columns: Names | None = None,
        epsilon: Number | None = None,
        delta: Number,
        target: str | None = None,
        lower: Bounds | None = None,
        upper: Bounds | None = None,
        keys: Mapping[str, Iterable[object]] | None = None,
        private_keys: bool | None = False,
        bounds_share: Number | None = None,
        report_share: Number | None = 0.05,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        row_id: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        during: Names | None = None,
    ) -> pl.DataFrame:
        """Release a model of a whole table privately, of which rows are made.

        The rows of the release, as a Polars frame; see `dp_synthetic` of SQL.
        """

    def compare(
        self,
        *,
        of: Literal["mean", "share", "count", "auc", "error"] | None = "mean",
        target: str | None = None,
        groups: str | None = None,
        keys: Iterable[object] | None = None,
        scores: Names | None = None,
        label: str | None = None,
        epsilon: Number | None = None,
        delta: Number | None = None,
        lower: Number | None = None,
        upper: Number | None = None,
        loss: Literal["zero_one", "absolute", "squared"] | None = "zero_one",
        thresholds: Numbers | None = None,
        sampling: bool | None = True,
        confidence: Number | None = 0.95,
        noise: Literal["auto", "laplace", "gaussian"] | None = "auto",
        cells: Integer | None = None,
        target_levels: Iterable[object] | None = None,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        row_id: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        during: Names | None = None,
    ) -> pl.DataFrame:
        """Tell privately whether two groups or two scores differ.

        The rows of the release, as a Polars frame; see `dp_compare` of SQL.
        """

    def sis(
        self,
        *,
        target: str,
        features: Features | pl.DataFrame | None = None,
        n_features: Integer | None = None,
        names: Iterable[str] | None = None,
        k: Integer,
        epsilon: Number | None = None,
        lower: Bounds | None = None,
        upper: Bounds | None = None,
        target_lower: Number | None = None,
        target_upper: Number | None = None,
        target_levels: Iterable[object] | None = None,
        score: Literal["covariance", "rank"] | None = "covariance",
        mechanism: Literal["one_shot", "gumbel", "canonical_lipschitz"] | None = "one_shot",
        gamma: Number | None = 0.5,
        center: Literal["public", "target"] | None = "public",
        center_share: Number | None = 0.1,
        verdict_share: Number | None = None,
        verdict: Literal["set", "each"] | None = "set",
        n_rows: Integer | None = None,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        row_id: str | None = None,
        value: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        during: Names | None = None,
    ) -> pl.DataFrame:
        """Select k features privately by covariance or rank correlation.

        The rows of the release, as a Polars frame; see `dp_sis` of SQL.
        """

    def kendall(
        self,
        *,
        target: str,
        features: Features | pl.DataFrame | None = None,
        n_features: Integer | None = None,
        names: Iterable[str] | None = None,
        k: Integer,
        epsilon: Number | None = None,
        target_levels: Iterable[object] | None = None,
        mechanism: Literal["gumbel", "exponential"] | None = "gumbel",
        split: Literal["even", "scaled"] | None = "even",
        blocks: Integer | None = None,
        verdict_share: Number | None = None,
        verdict: Literal["set", "each"] | None = "set",
        n_rows: Integer | None = None,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        row_id: str | None = None,
        value: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        during: Names | None = None,
    ) -> pl.DataFrame:
        """Select k features privately by rank correlation.

        The rows of the release, as a Polars frame; see `dp_kendall` of SQL.
        """

    def two_stage(
        self,
        *,
        target: str,
        features: Features | pl.DataFrame | None = None,
        n_features: Integer | None = None,
        names: Iterable[str] | None = None,
        k: Integer,
        epsilon: Number | None = None,
        target_levels: Iterable[object] | None = None,
        blocks: Integer | None = None,
        rows_per_block: Integer | None = None,
        count_share: Number | None = 0.05,
        count_failure: Number | None = 0.0001,
        penalty: Number | None = 0.1,
        standardize: bool | None = True,
        intercept: bool | None = True,
        mechanism: Literal["one_shot", "gumbel", "canonical_lipschitz"] | None = "one_shot",
        gamma: Number | None = 0.5,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        row_id: str | None = None,
        value: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        during: Names | None = None,
    ) -> pl.DataFrame:
        """Select k features privately by votes of block-wise Lasso fits.

        The rows of the release, as a Polars frame; see `dp_two_stage` of SQL.
        """

    def best_subset(
        self,
        *,
        target: str,
        features: Features | pl.DataFrame | None = None,
        n_features: Integer | None = None,
        names: Iterable[str] | None = None,
        k: Integer,
        epsilon: Number | None = None,
        lower: Bounds | None = None,
        upper: Bounds | None = None,
        target_lower: Number | None = None,
        target_upper: Number | None = None,
        target_levels: Iterable[object] | None = None,
        radius: Number | None = 1.1,
        ridge: Number | None = 0,
        intercept: bool | None = False,
        method: Literal["auto", "exact", "steps", "top_r"] | None = "auto",
        list_size: Integer | None = None,
        gap: Number | None = None,
        node_limit: Integer | None = 20000000,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        row_id: str | None = None,
        value: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        during: Names | None = None,
    ) -> pl.DataFrame:
        """Select one k-subset privately by its least squares fit.

        The rows of the release, as a Polars frame; see `dp_best_subset` of SQL.
        """

    def score_filter(
        self,
        *,
        target: str,
        features: Features | pl.DataFrame | None = None,
        n_features: Integer | None = None,
        names: Iterable[str] | None = None,
        score: Literal["total_count", "difference_count", "purity", "information_gain"] | None = "difference_count",
        threshold: Number | None = None,
        k: Integer | None = None,
        epsilon: Number | None = None,
        delta: Number | None = None,
        method: Literal["auto", "gaussian", "laplace", "svt", "cluster", "one_shot", "gumbel", "canonical_lipschitz"]
        | None = "auto",
        max_features_per_row: Integer | None = 10,
        present_above: Number | None = None,
        n_max: Integer | None = None,
        cutoff: Integer | None = None,
        false_positives: Number | None = 1,
        clusters: Integer | None = 2,
        vocabulary: Literal["public", "private"] | None = "public",
        vocabulary_share: Number | None = 0.5,
        target_levels: Iterable[object] | None = None,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        row_id: str | None = None,
        value: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        during: Names | None = None,
    ) -> pl.DataFrame:
        """Find features privately whose counts by label score high.

        The rows of the release, as a Polars frame; see `dp_score_filter` of SQL.
        """

    def linear_regression(
        self,
        *,
        target: str,
        features: Features | pl.DataFrame | None = None,
        n_features: Integer | None = None,
        names: Iterable[str] | None = None,
        epsilon: Number | None = None,
        delta: Number,
        method: Literal["auto", "ada_ssp", "boosted_ada_ssp", "tukey", "additive"] | None = "auto",
        lower: Bounds | None = None,
        upper: Bounds | None = None,
        target_lower: Number | None = None,
        target_upper: Number | None = None,
        target_levels: Iterable[object] | None = None,
        row_norm: Number | None = None,
        rounds: Integer | None = 10,
        split: Literal["even", "thirds"] | None = "even",
        blocks: Integer | None = None,
        n_rows: Integer | None = None,
        clip: bool | None = True,
        standardize: bool | None = True,
        bounds_share: Number | None = 0.4,
        moments_share: Number | None = 0.05,
        scale_share: Number | None = 0.1,
        count_share: Number | None = 0.05,
        count_failure: Number | None = 0.0001,
        range_share: Number | None = 0.05,
        sampling: bool | None = False,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        row_id: str | None = None,
        value: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        during: Names | None = None,
    ) -> pl.DataFrame:
        """Fit a linear model privately.

        The rows of the release, as a Polars frame; see `dp_linear_regression` of SQL.
        """

    def pipeline(
        self,
        *,
        target: str,
        features: Features | pl.DataFrame | None = None,
        n_features: Integer | None = None,
        names: Iterable[str] | None = None,
        k: Integer | None = None,
        epsilon: Number | None = None,
        delta: Number,
        selector: Literal["kendall", "two_stage", "best_subset", "sis"] | None = "kendall",
        method: Literal["auto", "ada_ssp", "boosted_ada_ssp", "tukey", "additive"] | None = "auto",
        selection_share: Number | None = None,
        selection_blocks: Integer | None = 1000,
        lower: Bounds | None = None,
        upper: Bounds | None = None,
        target_lower: Number | None = None,
        target_upper: Number | None = None,
        target_levels: Iterable[object] | None = None,
        row_norm: Number | None = None,
        rounds: Integer | None = 10,
        split: Literal["even", "thirds"] | None = "even",
        blocks: Integer | None = None,
        n_rows: Integer | None = None,
        clip: bool | None = True,
        standardize: bool | None = True,
        bounds_share: Number | None = 0.4,
        moments_share: Number | None = 0.05,
        scale_share: Number | None = 0.1,
        count_share: Number | None = 0.05,
        count_failure: Number | None = 0.0001,
        range_share: Number | None = 0.05,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        row_id: str | None = None,
        value: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        during: Names | None = None,
    ) -> pl.DataFrame:
        """Select features and fit a linear model to them under one budget.

        The rows of the release, as a Polars frame; see `dp_pipeline` of SQL.
        """

    def naive_bayes(
        self,
        *,
        target: str,
        features: Features | pl.DataFrame | None = None,
        n_features: Integer | None = None,
        names: Iterable[str] | None = None,
        epsilon: Number | None = None,
        delta: Number | None = None,
        max_features_per_row: Integer | None = 10,
        present_above: Number | None = None,
        count_share: Number | None = 0.1,
        smoothing: Number | None = 1.0,
        shrink: bool | None = True,
        target_levels: Iterable[object] | None = None,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        row_id: str | None = None,
        value: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        during: Names | None = None,
    ) -> pl.DataFrame:
        """Fit naive Bayes privately to binary features.

        The rows of the release, as a Polars frame; see `dp_naive_bayes` of SQL.
        """

    def logistic_regression(
        self,
        *,
        target: str,
        features: Features | pl.DataFrame | None = None,
        n_features: Integer | None = None,
        names: Iterable[str] | None = None,
        epsilon: Number | None = None,
        delta: Number | None = None,
        method: Literal["linear", "additive"] | None = "linear",
        lower: Bounds | None = None,
        upper: Bounds | None = None,
        row_norm: Number | None = None,
        regularization: Number | None = None,
        standardize: bool | None = True,
        bounds_share: Number | None = 0.25,
        moments_share: Number | None = 0.1,
        target_levels: Iterable[object] | None = None,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        row_id: str | None = None,
        value: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        during: Names | None = None,
    ) -> pl.DataFrame:
        """Fit a logistic regression privately.

        The rows of the release, as a Polars frame; see `dp_logistic_regression` of SQL.
        """

    def quantile(
        self,
        *,
        target: str,
        quantiles: Numbers | None = 0.5,
        epsilon: Number | None = None,
        lower: Number | None = None,
        upper: Number | None = None,
        cells: Integer | None = None,
        interval_share: Number | None = 0.25,
        bounds_share: Number | None = None,
        by: Names | None = None,
        keys: Keys | None = None,
        other: bool | None = False,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        max_groups_per_unit: Integer | None = None,
        max_rows_per_unit_group: Integer | None = None,
        row_id: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        during: Names | None = None,
    ) -> pl.DataFrame:
        """Draw private quantiles of a column.

        The rows of the release, as a Polars frame; see `dp_quantile` of SQL.
        """

    def bounds(
        self,
        *,
        target: str,
        epsilon: Number | None = None,
        failure: Number | None = 0.01,
        by: Names | None = None,
        keys: Keys | None = None,
        other: bool | None = False,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        max_groups_per_unit: Integer | None = None,
        max_rows_per_unit_group: Integer | None = None,
        row_id: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        during: Names | None = None,
    ) -> pl.DataFrame:
        """Draw private bounds that hold the bulk of a column.

        The rows of the release, as a Polars frame; see `dp_bounds` of SQL.
        """

    def covariance(
        self,
        *,
        features: Features | pl.DataFrame | None = None,
        n_features: Integer | None = None,
        names: Iterable[str] | None = None,
        epsilon: Number | None = None,
        delta: Number | None = None,
        lower: Bounds | None = None,
        upper: Bounds | None = None,
        ddof: Number | None = 1,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        row_id: str | None = None,
        value: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        during: Names | None = None,
    ) -> pl.DataFrame:
        """Release the covariance matrix of columns privately.

        The rows of the release, as a Polars frame; see `dp_covariance` of SQL.
        """

    def correlation(
        self,
        *,
        features: Features | pl.DataFrame | None = None,
        n_features: Integer | None = None,
        names: Iterable[str] | None = None,
        epsilon: Number | None = None,
        delta: Number | None = None,
        lower: Bounds | None = None,
        upper: Bounds | None = None,
        sampling: bool | None = False,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        row_id: str | None = None,
        value: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        during: Names | None = None,
    ) -> pl.DataFrame:
        """Release the correlation matrix of columns privately.

        The rows of the release, as a Polars frame; see `dp_correlation` of SQL.
        """

    def regression_metrics(
        self,
        *,
        target: str,
        prediction: str,
        epsilon: Number | None = None,
        lower: Number | None = None,
        upper: Number | None = None,
        error_bound: Number | None = None,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        row_id: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        during: Names | None = None,
    ) -> pl.DataFrame:
        """Measure predictions privately.

        The rows of the release, as a Polars frame; see `dp_regression_metrics` of SQL.
        """

    def roc(
        self,
        *,
        label: str,
        score: str,
        epsilon: Number | None = None,
        delta: Number | None = None,
        thresholds: Literal["recursive", "fixed", "smooth_medians"] | None = "recursive",
        n_thresholds: Integer | None = 15,
        threshold_share: Number | None = 0.2,
        curve: Literal["auto", "identity", "tree", "wavelet", "toeplitz"] | None = "auto",
        cells: Number | None = 4096,
        lower: Number | None = 0,
        upper: Number | None = 1,
        target_levels: Iterable[object] | None = None,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        row_id: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        during: Names | None = None,
    ) -> pl.DataFrame:
        """Release a ROC curve of scores privately.

        The rows of the release, as a Polars frame; see `dp_roc` of SQL.
        """

    def auc(
        self,
        *,
        label: str,
        score: str,
        epsilon: Number | None = None,
        delta: Number | None = None,
        method: Literal["scaled", "smooth"] | None = "scaled",
        noise: Literal["auto", "laplace", "gaussian"] | None = "auto",
        cells: Integer | None = None,
        lower: Number | None = 0,
        upper: Number | None = 1,
        target_levels: Iterable[object] | None = None,
        sampling: bool | None = False,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        row_id: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        during: Names | None = None,
    ) -> pl.DataFrame:
        """Release the area under a ROC curve privately.

        The rows of the release, as a Polars frame; see `dp_auc` of SQL.
        """

    def confusion(
        self,
        *,
        label: str,
        score: str,
        thresholds: Numbers | None = 0.5,
        epsilon: Number | None = None,
        delta: Number | None = None,
        curve: Literal["auto", "identity", "tree", "wavelet", "toeplitz"] | None = "auto",
        lower: Number | None = 0,
        upper: Number | None = 1,
        target_levels: Iterable[object] | None = None,
        neighbours: Literal["add_remove", "replace"] | None = None,
        privacy_unit: str | None = None,
        max_rows_per_unit: Integer | None = None,
        row_id: str | None = None,
        release: str | None = None,
        condition: str | None = None,
        during: Names | None = None,
    ) -> pl.DataFrame:
        """Release confusion matrices at public thresholds privately.

        The rows of the release, as a Polars frame; see `dp_confusion` of SQL.
        """

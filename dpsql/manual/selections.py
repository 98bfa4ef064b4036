"""Selections of features."""

from __future__ import annotations

from dpsql.manual.entry import ALWAYS_SHOWN, SELECTIONS, UNITS, ManualEntry, called

_RANKED = {
    "rank": "the order in which features are given",
    "feature": "the feature's name",
    "score": "its noisy score, where scores are released; NULL otherwise",
    "std_error": "standard deviation of the noise in `score`",
    "verdict": "what is known about the choice: 'clear', 'unclear', or 'not measured' where nothing was spent on it",
}
_SHOWN = ALWAYS_SHOWN + " k, and the number and the names of the features, are public."
_DP_SIS = "DP-SIS: differentially private sure independence screening"
_ONE_SHOT = (
    "R. McKenna, D. Sheldon, Permute-and-flip, NeurIPS 2020; Z. Ding, D. Kifer et al., The permute-and-flip "
    "mechanism is identical "
    "to report-noisy-max with exponential noise, 2021; D. Durfee, R. Rogers, Practical differentially private top-k "
    "selection with "
    "pay-what-you-get composition, NeurIPS 2019"
)
_CLM = (
    "The canonical Lipschitz mechanism of the DP-SIS paper (Algorithm 2) is not private as printed: its classes of "
    "subsets overlap. Here "
    "class (h, t) has C(t - h - 2, k - h - 1) subsets"
)

ENTRIES = (
    ManualEntry(
        name="dp_sis",
        topic=SELECTIONS,
        guarantee="Pure epsilon-DP for the whole call, a private mean of the target and released scores included.",
        neighbours=UNITS,
        sensitivity=(
            "By covariance the score is |sum of x y| with both mapped by their bounds to [-1, 1]. One row moves it "
            "by at most 1, a replaced "
            "one by 2, up or down; so two scores move apart by 2, and by 4 under 'replace'. By rank the score is "
            "Kendall's tau-a times "
            "n / 2; two scores move apart by 5/2, by 2 if the target has two levels, and by 4 under 'replace'. "
            "Multiply by "
            "`max_rows_per_unit`. 'one_shot' adds exponential noise of scale k range / epsilon to each score and "
            "takes the k best."
        ),
        unprotected=_SHOWN,
        missing="NULL and NaN count as the middle of the bounds, and values outside are clipped; by rank they tie "
        "with every value.",
        columns=_RANKED,
        example=called(
            "dp_sis",
            "patients",
            target="days",
            features=["age", "bmi", "pressure", "sugar"],
            k=2,
            epsilon=1.0,
            score="rank",
        ),
        papers=(
            f"{_DP_SIS}. Its Algorithm 1 centres and scales by the mean and the maximum of the data, and claims the "
            "sensitivity 1: "
            "that is not private. One added row moved a score by 9,998 among 10,000 rows. Here bounds are public, "
            "and the mean of the target "
            "is private",
            _CLM,
            _ONE_SHOT,
        ),
    ),
    ManualEntry(
        name="dp_kendall",
        topic=SELECTIONS,
        guarantee="Pure epsilon-DP for the whole call.",
        neighbours=UNITS,
        sensitivity=(
            "The score is |tau| with the target, concordant less discordant pairs over n - 1, less its mean with the "
            "features chosen "
            "before. An added row moves |tau| by -3/2 to 1. So two scores move apart by 5/2 in the first of the k "
            "rounds and by 5 later "
            "(4 and 8 under 'replace'; with `blocks` 3 and 6, under 'replace' 6 and 12). Multiply by "
            "`max_rows_per_unit`."
        ),
        unprotected=_SHOWN,
        missing="NULL and NaN tie with every value.",
        columns=_RANKED | {"rank": "the round in which the feature was chosen"},
        example=called(
            "dp_kendall", "patients", target="days", features=["age", "bmi", "pressure", "sugar"], k=2, epsilon=1.0
        ),
        papers=(
            "Differentially private feature selection by Kendall rank correlation (DPKendall), arXiv:2306.00920. Two "
            "corrections: tau-b, "
            "which divides by the untied pairs, has no bounded sensitivity, so tau-a is used; and blocks are drawn "
            "by a keyed hash of each "
            "row's id, because an added row shifts blocks of consecutive rows",
        ),
    ),
    ManualEntry(
        name="dp_two_stage",
        topic=SELECTIONS,
        guarantee="Pure epsilon-DP for the whole call, a private count of the rows included.",
        neighbours=UNITS
        + " All rows of a person are in one block, so `max_rows_per_unit` does not multiply the noise.",
        sensitivity=(
            "The score is the number of blocks whose Lasso gives the feature one of its k largest coefficients. One "
            "row or person is in "
            "one block, which may exchange one set of k votes for another: two scores move apart by at most 2, and "
            "by 4 under 'replace', where "
            "one block loses a row and another gains one. 'one_shot' adds exponential noise of scale k range / epsilon."
        ),
        unprotected=_SHOWN,
        missing="A row without a target is in no fit; elsewhere NULL and NaN count as the mean of the block.",
        columns=_RANKED,
        example=called(
            "dp_two_stage",
            "patients",
            target="days",
            features=["age", "bmi", "pressure", "sugar"],
            k=2,
            epsilon=1.0,
            blocks=40,
            row_id="patient_id",
        ),
        papers=(
            "K. Nissim, S. Raskhodnikova, A. Smith, Smooth sensitivity and sampling in private data analysis, STOC "
            "2007 (sample and aggregate). "
            "Blocks of consecutive rows are not private: one added row moves the borders of all of them",
            _ONE_SHOT,
        ),
    ),
    ManualEntry(
        name="dp_best_subset",
        topic=SELECTIONS,
        guarantee="Pure epsilon-DP for the whole call.",
        neighbours=UNITS,
        sensitivity=(
            "The score of a subset is the residual sum of squares of least squares with coefficients in a ball of "
            "radius r, on values mapped "
            "by their bounds to [-1, 1]. With s columns (k, and 1 more with `intercept`) a row adds between 0 and (1 "
            "+ r sqrt(s))² to every "
            "score, so that is the range; it doubles under 'replace'. Multiply by `max_rows_per_unit`."
        ),
        unprotected=_SHOWN + " Here running time depends on the rows by far: from milliseconds to minutes.",
        missing="NULL and NaN count as the middle of the bounds; values outside are clipped.",
        columns=_RANKED | {"rank": "only numbers the features; their order says nothing"},
        example=called(
            "dp_best_subset",
            "patients",
            target="days",
            features=["age", "bmi", "pressure", "sugar"],
            k=2,
            epsilon=1.0,
            lower=0,
            upper={"age": 120, "bmi": 60, "pressure": 200, "sugar": 200},
            target_lower=0,
            target_upper=30,
            intercept=True,
        ),
        papers=(
            "Differentially private best subset selection by the exponential mechanism over all k-subsets. The "
            "variant that counts the solver's "
            "mistakes is not private without an assumption of stability, and a sensitivity without the radius is "
            "wrong: without the ball a row "
            "may move the residual sum of squares by any amount",
        ),
    ),
    ManualEntry(
        name="dp_score_filter",
        topic=SELECTIONS,
        guarantee="Pure epsilon-DP without Gaussian noise and with public names; (epsilon, delta)-DP otherwise.",
        neighbours=UNITS,
        sensitivity=(
            "The features of a row count R = `max_features_per_row` rows together at most: of k, more than that, each "
            "counts R / k. Released counts of rows by feature and class "
            "have the L1 sensitivity R (R + 1 with class sizes), doubled under 'replace'; differences have the "
            "squared L2 sensitivity R, "
            "and 4 R under 'replace'. An exact score moves by at most 1 ('information_gain': by a number that `n_max` "
            "bounds), under 'replace' of 'difference_count' and 'purity' by 2. Multiply by `max_rows_per_unit`, and "
            "squares by its square."
        ),
        unprotected=ALWAYS_SHOWN
        + " A list of names must be public: the words that occur in private texts are private. "
        "With `vocabulary := 'private'` a name of one person alone is shown with a chance of at most delta.",
        missing="A missing feature counts as absent; a row whose label is neither level counts as no row.",
        columns=_RANKED | {"score": "the noisy score where it is released, else NULL"},
        example=called(
            "dp_score_filter",
            "words",
            target="spam",
            features="word",
            row_id="message",
            names=["free", "prize", "meeting", "today"],
            score="difference_count",
            k=2,
            epsilon=1.0,
        ),
        papers=(
            "B. Stoddard, Y. Chen, A. Machanavajjhala, Differentially private algorithms for empirical machine "
            "learning, arXiv:1411.5428, 2014. "
            "Not private as printed: private threshold testing, noisycut without a cutoff, and clusters of exact "
            "counts. Its footnote that a "
            "replaced row changes at most 2 R features is false when the label changes. Here counts get noise once, "
            "or the sparse vector "
            "technique stops at `cutoff`",
            "M. Lyu, D. Su, N. Li, Understanding the sparse vector technique for differential privacy, VLDB 2017",
        ),
    ),
)

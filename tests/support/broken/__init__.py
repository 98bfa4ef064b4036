"""Mechanisms that are NOT private, kept so that the checks of `dpsql.testing` have something to catch.

Nothing outside the tests imports this package, and no connection has its functions unless
`install_broken` is called on it. Every item says what is wrong, which check shows it, and the number
of a counter-example.
"""

from support.broken.filters import BROKEN_FILTERS, broken_filter
from support.broken.fits import BROKEN_FITS, broken_fit
from support.broken.functions import BROKEN_FUNCTIONS, BrokenFunctions, install_broken
from support.broken.kendall import (
    install_broken_kendall,
    sensitivity_as_range_law,
    tau_b_law,
    tau_b_scores,
)
from support.broken.logistic import BROKEN_LOGISTIC, broken_logistic
from support.broken.naive_bayes import BROKEN_NAIVE_BAYES, broken_naive_bayes
from support.broken.noise import float_sum, half_scale_laplace, naive_laplace
from support.broken.planting import Fault, planted
from support.broken.rank import exact_verdict_law, present_rows_law, range_of_two_levels_law
from support.broken.roc import BROKEN_ROC, broken_roc
from support.broken.selection import (
    algorithm_1_law,
    algorithm_1_scores,
    half_scale_law,
    printed_canonical_lipschitz,
    printed_canonical_lipschitz_law,
    unclipped_centred_target,
)
from support.broken.selectors import BROKEN_SELECTORS, install_broken_selectors, pruned_by_products

__all__ = [
    "BROKEN_FILTERS",
    "BROKEN_FITS",
    "BROKEN_FUNCTIONS",
    "BROKEN_LOGISTIC",
    "BROKEN_NAIVE_BAYES",
    "BROKEN_ROC",
    "BROKEN_SELECTORS",
    "BrokenFunctions",
    "Fault",
    "algorithm_1_law",
    "algorithm_1_scores",
    "broken_filter",
    "broken_fit",
    "broken_logistic",
    "broken_naive_bayes",
    "broken_roc",
    "exact_verdict_law",
    "float_sum",
    "half_scale_laplace",
    "half_scale_law",
    "install_broken",
    "install_broken_kendall",
    "install_broken_selectors",
    "naive_laplace",
    "planted",
    "present_rows_law",
    "printed_canonical_lipschitz",
    "printed_canonical_lipschitz_law",
    "pruned_by_products",
    "range_of_two_levels_law",
    "sensitivity_as_range_law",
    "tau_b_law",
    "tau_b_scores",
    "unclipped_centred_target",
]

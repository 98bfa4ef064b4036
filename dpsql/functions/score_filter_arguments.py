"""The arguments of dp_score_filter, and the rules for combining them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import NoReturn

from dpsql.contract import parameters
from dpsql.contract.arguments import CLASSES, DELTA, EPSILON, OPTIONAL_DELTA, Argument, integer, rational, share, word
from dpsql.contract.layout import MOST_FEATURES, Layout
from dpsql.contract.selection import selector_arguments
from dpsql.errors import ParameterError
from dpsql.functions.feature_counts import PRESENCE
from dpsql.functions.one_shot import MECHANISMS
from dpsql.statistics.feature_counts import LARGEST_ROWS, SCORES

NOISES = ("gaussian", "laplace")
METHODS = ("auto", *NOISES, "svt", "cluster", *MECHANISMS)
VOCABULARIES = ("public", "private")
_MOST_CUTOFF = 1_000_000
_MOST_CLUSTERS = 1000
_LEAST_FALSE = Fraction(1, 10**12)

SIGNATURE = selector_arguments(
    word("score", "How features are scored; docs/selection.md defines the scores.", SCORES, "difference_count"),
    Argument(
        "threshold",
        "Report the features whose score is at least this, from 0, in rows or in nats times rows. Give it or k.",
        check=partial(
            parameters.number_from_zero, "threshold", hint="Give the score from which features are reported."
        ),
        exact=True,
    ),
    integer(
        "k",
        "Report the k features with the highest scores. Give it or threshold.",
        hint="Give the number of features.",
        most=MOST_FEATURES,
    ),
    EPSILON,
    replace(OPTIONAL_DELTA, doc=f"{DELTA.doc} Needed for Gaussian noise and for a private vocabulary."),
    word("method", "How the features are found; docs/selection.md compares the ways.", METHODS, "auto"),
    *PRESENCE,
    integer(
        "n_max",
        "Public limit on the number of rows that count, for exact information gain.",
        hint="Give a public limit of the rows that count.",
        most=LARGEST_ROWS,
    ),
    integer(
        "cutoff",
        "For 'svt': the largest number of features to report, from 1 to 1000000.",
        hint="Give how many features to report at most.",
        most=_MOST_CUTOFF,
    ),
    rational(
        "false_positives",
        "Largest expected number of reported features that no row has, from 1e-12 to 1e12.",
        1,
        hint="1 is usual.",
    ),
    integer(
        "clusters", "For 'cluster': number of clusters, from 2 to 1000.", 2, hint="2 is usual.", most=_MOST_CLUSTERS
    ),
    word("vocabulary", "Whether feature names of long rows are public, or drawn privately.", VOCABULARIES, "public"),
    share(
        "vocabulary_share",
        "Share of the budget spent on a private vocabulary, between 0 and 1.",
        0.5,
        hint="0.5 is usual.",
    ),
    CLASSES,
)


def refuse_contradictions(own: Mapping[str, object], layout: Layout) -> None:
    """Raise if arguments that are each valid cannot be combined."""
    _check_method(own)
    false = parameters.known(Fraction, own["false_positives"])
    parameters.within("false_positives", false, _LEAST_FALSE, 1 / _LEAST_FALSE, hint="1 is usual.")
    parameters.within("clusters", parameters.known(int, own["clusters"]), 2, None, hint="2 is usual.")
    exact = own["method"] == "svt" or own["method"] in MECHANISMS
    _check_most_rows(own, exact)
    _check_delta(own, exact, layout)


def _check_method(own: Mapping[str, object]) -> None:
    """Raise unless the method has the threshold or the number of features that it needs."""
    method, k, threshold = own["method"], own["k"], own["threshold"]
    if method == "cluster":
        if k is not None or threshold is not None:
            _refuse("method 'cluster' finds the features by itself. Leave out threshold and k.")
    elif k is None and threshold is None:
        _ask("give either threshold, the score from which features are reported, or k, how many.")
    elif k is not None and threshold is not None:
        _refuse("threshold and k exclude each other. Leave out one of them.")
    if method in MECHANISMS and k is None:
        _ask(f"method '{method}' selects k features. Give k in place of threshold, or another method.")
    if method == "svt" and threshold is None:
        _ask("method 'svt' compares with a threshold. Give threshold in place of k, or another method.")
    if method == "svt" and own["cutoff"] is None:
        _ask("method 'svt' needs cutoff, the number of features to report at most. Give cutoff := a number.")
    if method != "svt" and own["cutoff"] is not None:
        _refuse("cutoff is for method 'svt'. Leave it out.")


def _check_most_rows(own: Mapping[str, object], exact: bool) -> None:
    """Raise unless a limit on the rows is given exactly if exact information gain needs it."""
    method, of_information = own["method"], own["score"] == "information_gain"
    if of_information and exact and own["n_max"] is None:
        _ask(
            f"method '{method}' on information_gain needs n_max := a public limit of the rows that count. "
            "Or let noise be added to the counts: method := 'gaussian' or 'laplace'."
        )
    useful = of_information and (exact or (method == "auto" and own["k"] is not None))
    if own["n_max"] is not None and not useful:
        _refuse("n_max is for information_gain with methods that look at exact scores. Leave it out.")


def _check_delta(own: Mapping[str, object], exact: bool, layout: Layout) -> None:
    """Raise unless delta is given exactly if a private vocabulary or Gaussian noise needs it."""
    method, delta = own["method"], own["delta"]
    if own["vocabulary"] == "private":
        if layout.names is not None:
            _refuse("names are public, so vocabulary := 'private' would pay for nothing. Leave one of them out.")
        if delta is None:
            _ask("vocabulary := 'private' needs delta, the chance that a name of one row comes out. Try 1e-6.")
    elif delta is None and method == "gaussian":
        _ask("method 'gaussian' needs delta. Try 1e-6, or method := 'laplace'.")
    elif delta is not None and (exact or method == "laplace"):
        _refuse(f"method '{method}' with a public vocabulary has no use for delta. Leave it out.")


def _refuse(message: str) -> NoReturn:
    """Raise: an argument has no use in this combination."""
    raise ParameterError("P045", message)


def _ask(message: str) -> NoReturn:
    """Raise: this combination needs another argument."""
    raise ParameterError("P046", message)

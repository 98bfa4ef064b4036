"""What others call what a function does, by which `.help`, `dp_help` and the guess at an unknown function find it.

Words are in lower case and in the singular. One word may lead to several functions, the likeliest of which stands first
in the list.
"""

from __future__ import annotations

SYNONYMS: dict[str, tuple[str, ...]] = {
    "dp_count": ("number", "frequency", "count distinct", "distinct", "unique", "how many", "group by", "share"),
    "dp_sum": ("total", "add up"),
    "dp_avg": ("average", "mean", "share", "percentage", "proportion", "rate"),
    "dp_variance": ("var", "dispersion", "spread"),
    "dp_stddev": ("standard deviation", "std", "stdev", "sigma", "spread"),
    "dp_aggregate": ("summary", "summarize", "describe", "group by", "several aggregates"),
    "dp_crosstab": ("contingency", "pivot", "cross tabulation", "two-way table", "chi-square", "marginal", "heatmap"),
    "dp_histogram": ("distribution", "bin", "bucket", "density", "cumulative", "ecdf", "cdf"),
    "dp_quantile": ("median", "percentile", "quartile", "decile", "p90", "box plot", "iqr"),
    "dp_histogram_quantile": ("median", "percentile", "quartile"),
    "dp_bounds": ("min", "max", "minimum", "maximum", "range", "outlier", "limit", "extreme"),
    "dp_covariance": ("cov", "variance matrix", "pca"),
    "dp_correlation": ("corr", "pearson", "association", "relationship", "pca"),
    "dp_sis": ("top", "top k", "screening", "feature selection", "feature importance", "important", "correlation"),
    "dp_kendall": ("rank correlation", "tau", "spearman", "feature selection", "top", "correlation"),
    "dp_two_stage": ("lasso", "sparse", "feature selection"),
    "dp_best_subset": ("subset", "feature selection", "l0"),
    "dp_score_filter": ("chi-square", "mutual information", "information gain", "word", "feature selection", "text"),
    "dp_linear_regression": (
        *("regression", "forecast", "ols", "least squares", "linear model", "ridge", "slope", "trend", "fit", "train"),
        *("significance", "p-value", "coefficient"),
    ),
    "dp_logistic_regression": (
        *("classification", "regression", "classifier", "logit", "odds", "probability", "fit", "train", "churn"),
    ),
    "dp_naive_bayes": ("classifier", "classification", "bayes", "spam", "text", "fit", "train"),
    "dp_pipeline": ("automl", "select and fit", "sparse regression"),
    "dp_roc": ("roc curve", "sensitivity", "specificity", "threshold", "gini", "lift"),
    "dp_auc": ("auroc", "area under", "gini", "c-statistic", "concordance"),
    "dp_precision_recall": ("pr curve", "average precision"),
    "dp_calibration": ("reliability", "brier"),
    "dp_confusion": ("accuracy", "precision", "recall", "f1", "error rate", "false positive"),
    "dp_regression_metrics": ("rmse", "mse", "mae", "r2", "r squared", "residual", "error"),
    "dp_predict": ("score rows", "forecast", "inference", "apply", "predict"),
    "dp_predict_class": ("classify",),
    "dp_predictions": ("score rows", "forecast", "predict"),
    "dp_models": ("list models",),
    "dp_split": ("train", "test", "holdout", "hold out", "cross-validation", "sample"),
    "dp_protect": ("budget", "privacy budget", "set budget", "grant", "restrict", "bounds of columns"),
    "dp_public": ("reference table", "lookup table", "dimension"),
    "dp_derive": ("derived", "copy", "extract"),
    "dp_unplaced": ("undeclared", "b006"),
    "dp_budget": ("remaining", "spent", "left", "epsilon spent", "balance"),
    "dp_policy": ("declared", "stated", "bounds of columns", "who declared", "rules", "settings"),
    "dp_ledger": ("history", "log", "audit", "receipt", "charges"),
    "dp_estimate": ("cost", "price", "how much", "power", "sample size", "accuracy", "preview"),
    "dp_functions": ("list", "catalog"),
    "dp_help": ("documentation", "manual", "explain"),
}


def named_by(word: str) -> list[str]:
    """Return the functions that a word is a synonym of, those that it stands first for before others."""
    forms = {form.replace("_", " ") for form in (word, word.removesuffix("s"))}
    found = [(names.index(one), name) for name, names in SYNONYMS.items() for one in names if one in forms]
    return [name for _, name in sorted(found, key=lambda one: one[0])]

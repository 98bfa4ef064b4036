"""What is read from a released model: it costs nothing."""

from __future__ import annotations

from dpsql.manual.entry import FREE, PREDICTIONS, Example, ManualEntry

_NEIGHBOURS = (
    "The model is public, so the rows that it was fitted to are protected by its own release. The rows that it is "
    "applied to are read as "
    "they are: a prediction for a row is not private for that row."
)
_UNPROTECTED = (
    "The rows that predictions are made for: whoever sees a prediction learns about them. Release metrics "
    "of them, not the predictions."
)
_MISSING = (
    "NULL in a feature gives NULL; where presence counts, as for naive Bayes, it is absence. Values outside "
    "of the model's bounds are clipped."
)
_MODEL = {
    "model": "The model's release: its name, or its number in the ledger.",
    "x": "A row (`patients`), a struct with a field per feature, a vector, or a list of the names of the features "
    "that are present.",
    "dataset": "The budget of the release, where two of them have a release of that name.",
}
_FITTED = (
    "FROM dp_linear_regression('patients', target := 'days',\n"
    "  features := ['age', 'bmi'], epsilon := 1.0, delta := 1e-6,\n"
    "  lower := 0, upper := {age: 120, bmi: 60},\n"
    "  target_lower := 0, target_upper := 30, release := 'stay');",
)
_CLASSIFIER = (
    "FROM dp_logistic_regression('patients', target := 'readmitted',\n"
    "  target_levels := ['no', 'yes'], features := ['age', 'bmi'], epsilon := 1.0,\n"
    "  lower := 0, upper := {age: 120, bmi: 60}, release := 'risk');",
)


def _free(
    name: str, summary: str, signature: str, columns: dict[str, str], example: Example, arguments: dict[str, str]
) -> ManualEntry:
    return ManualEntry(
        name=name,
        topic=PREDICTIONS,
        summary=summary,
        signature=(signature,),
        arguments=arguments,
        guarantee=FREE,
        neighbours=_NEIGHBOURS,
        sensitivity="None: the model is public, and no row of the table that it was fitted to is read.",
        unprotected=_UNPROTECTED,
        missing=_MISSING,
        columns=columns,
        example=example,
        papers=("None: post-processing of a released model.",),
    )


_SPLIT = ManualEntry(
    name="dp_split",
    topic=PREDICTIONS,
    summary="Tell whether a privacy unit is in the test part of a keyed split, for views to fit on and to evaluate on.",
    signature=("SELECT dp_split(id, key, test := 0.25)",),
    arguments={
        "id": "The column of the privacy unit's id.",
        "key": "Any text; the same key gives the same split, another one another split.",
        "test": "Share of the units in the test part, between 0 and 1.",
    },
    guarantee="None needed: it reads one row at a time. A release of a view of one part is charged to its table.",
    neighbours="No unit moves another one from one part to the other, so neighbouring tables have neighbouring parts.",
    sensitivity="That of the call that reads the view: a unit's rows are all in one part.",
    unprotected="Which part a unit is in, for whoever knows its id and the key. Charges of both parts add up.",
    missing="NULL for a row without an id: it is in neither part.",
    columns={"value": "true in the test part, a BOOLEAN"},
    example=Example(
        "SELECT patient_id, dp_split(patient_id, 'spring') AS in_test\nFROM patients ORDER BY patient_id LIMIT 3;",
        frame='train, test = patients.dp.split("patient_id", key="spring")',
    ),
    papers=("None: a keyed hash.",),
)


ENTRIES = (
    _free(
        "dp_predict",
        "Predict for each row from a released model: a number, or the probability of a classifier's positive class.",
        "SELECT dp_predict(model, x, dataset := NULL)",
        {"value": "the prediction, a DOUBLE"},
        Example(
            "SELECT patient_id, dp_predict('stay', patients) AS expected\nFROM patients ORDER BY patient_id LIMIT 3;",
            'ctx.model("stay").predict(patients)',
            'ctx.model("stay").predict(patients)',
            before=_FITTED,
        ),
        _MODEL,
    ),
    _free(
        "dp_predict_class",
        "Predict the likelier class of each row from a released classifier.",
        "SELECT dp_predict_class(model, x, dataset := NULL)",
        {"value": "the class, a VARCHAR"},
        Example(
            "SELECT patient_id, dp_predict_class('risk', {age: age, bmi: bmi}) AS readmitted\nFROM patients ORDER BY "
            "patient_id LIMIT 3;",
            'ctx.model("risk").predict(patients)',
            'ctx.model("risk").predict(patients)',
            before=_CLASSIFIER,
        ),
        _MODEL,
    ),
    _free(
        "dp_predictions",
        "Return the rows of a source with their predictions, by a formula that DuckDB runs: the fastest way to "
        "predict.",
        "FROM dp_predictions(model, source, dataset := NULL)",
        {
            "the columns of the source": "as they are",
            "prediction": "the prediction; of a classifier the likelier class, as text",
            "probability": "of a classifier, that of its positive class",
        },
        Example(
            "SELECT patient_id, days, prediction\nFROM dp_predictions('stay', 'patients') ORDER BY patient_id LIMIT 3;",
            'ctx.dp_predict("stay", "patients")',
            'ctx.dp_predict("stay", patients)',
            before=_FITTED,
        ),
        {
            "model": _MODEL["model"],
            "source": "A table, view, file or registered frame with the columns that the model was fitted to; of a "
            "model of long rows, one row "
            "per row id is returned.",
            "dataset": _MODEL["dataset"],
        },
    ),
    ManualEntry(
        name="dp_models",
        topic=PREDICTIONS,
        summary="List the released models, with JSON to export.",
        signature=("FROM dp_models()",),
        guarantee=FREE,
        neighbours="The models are public.",
        sensitivity="None: it reads the ledger.",
        unprotected="What the releases themselves do not protect.",
        missing="A call that released no model is not listed.",
        columns={
            "model": "the release's name; NULL if it has none",
            "ledger_id": "its number in the ledger, by which it can be named too",
            "dataset": "the budget that it was charged to",
            "function": "the function that fitted it",
            "method": "how",
            "target": "the target's column",
            "features": "the features' names",
            "status": "'released', or 'not released' where the mechanism had no answer",
            "guarantee": "what the release promises",
            "recorded_at": "when it was released, in UTC",
            "json": "reads like scikit-learn's attributes (`coef_`, `intercept_`, `feature_names_in_`); "
            "`dpsql.LinearModel.from_json` reads it back",
        },
        example=Example(
            "SELECT model, dataset, function, target, status FROM dp_models();", "ctx.dp_models()", before=_FITTED
        ),
        papers=("None.",),
    ),
    ManualEntry(
        name="release",
        topic=PREDICTIONS,
        summary="Stand for the features that an earlier release selected: features := release('name').",
        signature=("features := release(name)",),
        arguments={"name": "The name of a selection's release."},
        guarantee="The features were released, so naming them costs nothing; the call that uses them has its own "
        "guarantee.",
        neighbours="As of the call that uses it.",
        sensitivity="None: the features are public.",
        unprotected="The selected features, which are public.",
        missing="A release that is not known, or is not a selection, is refused, and nothing is charged.",
        columns={"value": "a struct that calls read as the features"},
        example=Example(
            "FROM dp_linear_regression('patients', target := 'days',\n"
            "  features := release('two'), epsilon := 1.0, delta := 1e-6);",
            before=(
                "FROM dp_kendall('patients', target := 'days',\n"
                "  features := ['age', 'bmi', 'sugar'], k := 2, epsilon := 0.5,\n"
                "  release := 'two');",
            ),
        ),
        papers=("None.",),
    ),
    _SPLIT,
)

"""The codes of arguments: P."""

from __future__ import annotations

from dpsql.contract.codes.code import Code

ENTRIES = (
    # Numbers, words and names.
    Code(
        "P001",
        "`epsilon` is missing, is not a number, or is outside the range that the function takes.",
        "Give the privacy loss to spend; 1.0 is usual.",
    ),
    Code("P002", "`k` is larger than the number of features.", "Lower `k`."),
    Code(
        "P003",
        "A pair of bounds is incomplete, is not finite, or has a lower bound that is not below the upper one.",
        "Give both bounds from domain knowledge, not from the table.",
    ),
    Code(
        "P004",
        "The target is numeric and has no bounds.",
        "Give `target_lower` and `target_upper` from domain knowledge, or two `target_levels`.",
    ),
    Code("P005", "An argument is not one of the few values that it takes.", "Choose one from the list in the message."),
    Code(
        "P006",
        "A share or a probability is not strictly between 0 and 1.",
        "Leave the argument out to get its usual value, or give a number between 0 and 1.",
    ),
    Code(
        "P009",
        "Only one of `privacy_unit` and `max_rows_per_unit` was given.",
        "Give the column of the id, and how many rows one id may contribute.",
    ),
    Code(
        "P010",
        "An argument belongs to another layout than the one that `features` names.",
        "Leave it out, or give `features` as the layout wants it (docs/calls.md, Layouts).",
    ),
    Code("P011", "One column plays two parts in the call.", "Give a different column for each part."),
    Code(
        "P012",
        "`target_levels` are not two different values of the target's type.",
        "Give the two public levels of the target.",
    ),
    Code(
        "P013",
        "A name is missing, is not text, or is text that cannot be stored.",
        "Give the name of the column, the dataset or the release as text.",
    ),
    Code(
        "P014",
        "The name of a release already holds the result of a call with other arguments.",
        "Give this call another name, or repeat the call with the same arguments.",
    ),
    Code("P015", "A budget has neither `epsilon` nor `rho`, or has both.", "Give one of them."),
    Code(
        "P016", "The function has no such argument.", "Check the spelling; the message or `.help` lists the arguments."
    ),
    Code(
        "P017",
        "A sampler in `dpsql.noise` was given a scale or a size that it does not draw.",
        "Give a scale and a size within the ranges in the docstring.",
    ),
    Code(
        "P018",
        "A Python function below the SQL functions was given an argument that its docstring excludes.",
        "Read the docstring; in SQL this does not happen.",
    ),
    Code(
        "P019",
        "A private table function stands in a correlated subquery or a lateral join.",
        "Name the call once in `WITH r AS MATERIALIZED (...)`, and use `r`.",
    ),
    Code(
        "P020",
        "The source is not a table name with at most a catalog and a schema.",
        "Give `table`, `schema.table` or `catalog.schema.table`, with odd parts in double quotes.",
    ),
    Code("P021", "An argument is not an integer of at least 1.", "Give a public whole number."),
    Code("P023", "An argument is neither true nor false.", "Give `true` or `false`."),
    Code("P024", "An argument is not a finite number of the sign that it needs.", "Give a public number."),
    Code(
        "P026",
        "There are more features than the method takes.",
        "Select some features first, and give `features := release('name')`.",
    ),
    Code(
        "P027",
        "`delta` is missing, is not a number, or is outside its range.",
        "Give a small probability, such as 1e-6.",
    ),
    Code(
        "P029",
        "`quantiles` is not a list of ascending numbers between 0 and 1.",
        "Give the quantiles in ascending order, each one once.",
    ),
    Code(
        "P030",
        "No release of the kind that is needed has this name or number.",
        "Check the name; `dpsql ledger` and `dp_models()` list what was released.",
    ),
    Code(
        "P032",
        "`thresholds` or `bins` is not a list of ascending numbers.",
        "Give the numbers in ascending order, each one once.",
    ),
    Code(
        "P033",
        "`regularization` is outside the range that the mechanism takes at this epsilon.",
        "Leave it out for the usual value, or raise it.",
    ),
    Code("P034", "There are no numbers to draw a picture of.", "Read the release as rows."),
    Code(
        "P035",
        "There are not as many bounds as features.",
        "Give one number for all features, or one number per feature.",
    ),
    Code(
        "P036",
        "Two bounds are so close together, or so far apart, that doubles cannot divide or square the interval.",
        "Widen the bounds, or rescale the column.",
    ),
    Code("P037", "A list or a struct was given where one number is needed.", "Give one number."),
    Code(
        "P038",
        "The budget of the call is so small that its noise would drown any table.",
        "Raise epsilon or delta, or lower the contribution of a privacy unit.",
    ),
    Code(
        "P039",
        "The Tukey mechanism would need more blocks than it takes, because epsilon is small.",
        "Raise epsilon, or use another method.",
    ),
    Code(
        "P040",
        "A selected feature is not a feature of the vector column.",
        "Check the name of the release, and give the `names` with which the features were selected.",
    ),
    Code(
        "P041",
        "`names`, `n_features` and the column's type disagree on the number of features.",
        "Give only one of them.",
    ),
    Code(
        "P042",
        "The names of the features of long rows are missing, and they are private unless you give them.",
        "Give `names := [...]` from a public list, not from the table.",
    ),
    Code("P043", "An argument is not a list of texts.", "Give a list of one or more names."),
    Code(
        "P044",
        "A list holds the same name or key twice, or `by` a column that is called as one of the result.",
        "Give each one once, or rename the column in a view.",
    ),
    Code("P045", "An argument has no effect beside the others.", "Leave it out."),
    Code("P046", "Another argument needs one that is missing.", "Give the argument that the message names."),
    Code(
        "P047",
        "`release` was given to an aggregate with GROUP BY, where each group is a release.",
        "Leave `release` out.",
    ),
    Code(
        "P048",
        "An event of privacy loss is unknown or incomplete, or holds a number out of range.",
        "Give an event as `dpsql.contract.cost` documents it.",
    ),
    Code("P049", "The arguments of a call cannot be written as JSON.", "Give numbers, texts, booleans and lists."),
    Code(
        "P050",
        "A number is beyond the limit of its argument.",
        "Give a number within the limit that the message names.",
    ),
    Code(
        "P051",
        "The shares of the budget leave one part of the call without any use.",
        "Leave the shares out, or lower one of them.",
    ),
    Code("P052", "`n_thresholds` is not one less than a power of two.", "Give 1, 3, 7, 15, 31, 63, 127 or 255."),
    Code(
        "P053",
        "The release holds nothing to use: its test failed, noise hid its target, or it selected no feature.",
        "Release again under another name, as the message says.",
    ),
    Code("P054", "The text is not a model that `to_json` wrote.", "Give the text that `to_json` returned."),
    Code("P055", "Releases of two datasets have this name.", "Give `dataset` as well."),
    Code(
        "P056", "`dp_predict` was given more than one model in one statement.", "Give the model's name as a constant."
    ),
    Code("P057", "`dp_predict_class` was given a model that is not a classifier.", "Use `dp_predict`."),
    Code("P058", "The file of a picture has an unknown ending.", "Give a name that ends in .png, .svg or .pdf."),
    Code("P059", "Pictures need Matplotlib, which is not installed.", "Run `pip install 'dpsql[plot]'`."),
    Code(
        "P060",
        "`present_above` does not tell true from false, and one of the features is boolean.",
        "Give a number of at least 0 and below 1, or compare the numeric columns in a view.",
    ),
    Code(
        "P061",
        "`dp_derive` was not told what only the data's owner can know of how the table was made.",
        "Say `own_rows_only := true`, or `one_row_each := true` where the base has no privacy unit.",
    ),
    Code(
        "P062",
        "`release` was given to an aggregate form whose rows cannot be seen (EXECUTE, a frame, a file).",
        "Leave `release` out, or use the table form.",
    ),
    Code(
        "P063",
        "`keys` does not list the different values that a column may have.",
        "Give `keys := {'ward': ['A', 'B', 'C']}`.",
    ),
    Code(
        "P064",
        "`explain` was given no statement, several, or one that DuckDB runs in several steps, such as PIVOT.",
        "Give one statement, without EXPLAIN or ANALYZE before it.",
    ),
    # Groups.
    Code(
        "P065",
        "`by` names a column whose values are private, and its keys are missing.",
        "Give `keys` from public knowledge, not from the table, or `keys := 'private'` with delta.",
    ),
    Code(
        "P066",
        "`keys` is not a list of values, a struct of lists, or a list of structs; or names other columns than `by`.",
        "Give `keys := ['A', 'B']`, or `{'column': ['A', 'B']}` for several columns.",
    ),
    Code("P067", "A key is not a value of its column's type.", "Give keys of that type, or cast the column in a view."),
    Code("P068", "There are more groups than can have public keys.", "Group by fewer columns, or list fewer keys."),
    Code("P069", "`keys := 'private'` is given without `delta`.", "Give `delta`; 1e-6 is usual."),
    Code(
        "P070",
        "`condition` is not a condition on one row, or it says what no condition may say: a subquery, a position, a "
        "parameter, or a function that is not listed.",
        "Give columns, literals, comparisons and the listed functions; compute anything else in a view.",
    ),
    Code(
        "P071",
        "`keys` names a table that was not declared public, or a view.",
        "Declare the table with `dp_public`, or list the keys.",
    ),
    Code("P072", "There are fewer features than the function needs.", "Name at least two features."),
    Code(
        "P073",
        "A call would have to keep rows one by one, which no engine but DuckDB does.",
        "Use the form that the message names, or copy the rows to DuckDB.",
    ),
    Code(
        "P074",
        "No engine of this name is attached.",
        "Attach it in Python: `dpsql.attach_engine(connection, ...)`.",
    ),
    Code(
        "P079",
        "An engine is attached under a name that is not one word, or what is attached is not an engine.",
        "Give a name such as `lake`, and an engine such as `dpsql.polars.engine({...})`.",
    ),
    Code(
        "P080",
        "A function, an operator or a cast in `condition` does not take the types that it is given.",
        "Cast a value to a type that it takes, or compute it in a view; `docs/calls.md` lists what there is.",
    ),
    Code(
        "P081",
        "Nobody has said whose rows a frame holds.",
        "Name the dataset once, at the source: `frame = frame.dp.of('patients')`.",
    ),
    Code(
        "P082",
        "An argument in `condition` must be a literal from a list: a part of a date, a format, a regular expression.",
        "Write one of those that the message lists, or compute it in a view.",
    ),
    Code(
        "P083",
        "The types of the columns in `condition` are not known before the call, or they changed after it was planned.",
        "Name a table, a view or a frame that is there, with DuckDB's optimizer on; run the call again.",
    ),
    Code(
        "P084",
        "`condition` computes with a column of a type of which it can only ask whether it is NULL.",
        "Cast the column to another type in a view.",
    ),
    Code(
        "P089",
        "The name of a release is NULL: a part that it is put together from is.",
        "Look which part of the name is NULL, or leave `release` out for a call without a name.",
    ),
    Code(
        "P090",
        "A parameter of a job has no value, is not used, or has a value that SQL cannot have.",
        "Give `-p name=value` for each `$name` of the job, and no other.",
    ),
    Code(
        "P091",
        "The example tables cannot be made, because there is a table of such a name.",
        "Name a new file: `dpsql example hospital.duckdb`.",
    ),
    Code(
        "P092",
        "A result was asked for in a form of a library that is not installed.",
        "Install it, as in `pip install pandas`; `release.to_arrow()` needs nothing more.",
    ),
)

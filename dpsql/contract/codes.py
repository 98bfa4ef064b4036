"""Every error code: when it is raised, and what to do. ``docs/errors.md`` is written from this list.

One code stands for one cause. A code never changes its meaning, and the number of a code that is gone is not given
again. ``python -m dpsql.contract.codes`` prints the page.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Code:
    """One error code.

    Attributes
    ----------
    code : str
        A letter and three digits, as in ``[DPSQL-P001]``.
    when : str
        The cause, in one sentence.
    what_to_do : str
        The next step, in one sentence.
    """

    code: str
    when: str
    what_to_do: str

    def __str__(self) -> str:
        return f"DPSQL-{self.code}: {self.when}\n{self.what_to_do}"


# What the first letter of a code says.
KINDS = {
    "P": "An argument is missing, of the wrong type, or out of range. Nothing was charged.",
    "S": "The source, one of its columns, or the type of a column does not fit. Nothing was charged.",
    "B": "The budget does not allow the call. Nothing was charged.",
    "L": "The ledger cannot be opened, read or written. Nothing was released.",
    "I": "The call failed inside dpsql. If it failed after it read the table, its charge stands.",
}

_entries = (
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
    Code("P005", "An argument is not one of the words that it takes.", "Choose a word from the list in the message."),
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
        "Leave it out, or give `features` as the layout wants it (README, Layouts).",
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
        "`thresholds` is not a list of ascending numbers.",
        "Give the thresholds in ascending order, each one once.",
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
        "Two bounds are so close together, or so far apart, that doubles cannot divide the interval.",
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
    Code("P044", "A list holds the same name twice.", "Give each name once."),
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
        "Give an event as `dpsql.ledger.accountant` documents it.",
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
        "The release holds nothing to use: its test failed, or it selected no feature.",
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
    # The source.
    Code("S001", "The source cannot be found.", "Check the source's name."),
    Code("S002", "A column cannot be found.", "Check the column's name."),
    Code(
        "S003", "The type of a column does not fit its part in the call.", "Cast it in a view, or give another column."
    ),
    Code("S005", "The target is text, and its levels are private unless you give them.", "Give `target_levels`."),
    Code(
        "S006",
        "`features` is a list column, and the length of a private list is private.",
        "Give `n_features` or `names`.",
    ),
    Code("S007", "The source has no numeric column beside target and ids.", "Give `features := [...]`."),
    Code(
        "S008",
        "A column has a type that Arrow does not carry.",
        "Run `SET arrow_lossless_conversion = false`.",
    ),
    Code("S009", "In Python, the source is neither a name nor a frame.", "Give a table's name or a data frame."),
    Code(
        "S010",
        "The rows given to a model do not have the form that it was fitted to.",
        "Give rows with the model's features, as the message says.",
    ),
    Code(
        "S011",
        "A feature is not boolean, and the function takes features that are present or absent.",
        "Give `present_above := 0`, or another number above which a value is present.",
    ),
    Code(
        "S012",
        "One row, or one privacy unit, of a protected table may change many rows of the source.",
        "Use a view that filters and computes columns, and keeps the privacy unit in every group, partition and join.",
    ),
    Code(
        "S013",
        "The source reads several protected tables, and only some of them have a privacy unit.",
        "Release from each, or state a privacy unit for all of them.",
    ),
    Code(
        "S014",
        "The source reads a file, a frame or something else that DuckDB's plan does not show.",
        "Name the budget that its rows belong to: `dataset := '...'`.",
    ),
    Code("S015", "`dataset` names a budget that the source would not be charged to.", "Leave `dataset` out."),
    Code(
        "S016", "The source is no table or view of the catalog.", "Make a view of the query, or use the aggregate form."
    ),
    Code(
        "S017",
        "The source does not pass on the column of the privacy unit as it is.",
        "Select that column, once; where it has another name, give `privacy_unit := that name`.",
    ),
    Code(
        "S018",
        "Which table a name without a schema stands for cannot be seen.",
        "Name its schema, such as `main.t`, or `temp.main.t` for a registered frame.",
    ),
    Code("S019", "There is no table of this name to declare.", "Check the spelling; the message has a near one."),
    Code(
        "S020",
        "The types of a protected view's columns follow from the rows of a CSV or JSON file.",
        "Give the reader `columns := {...}`.",
    ),
    Code("S021", "A file was declared by its path.", "Make a view over it, and declare that."),
    Code(
        "S022",
        "An aggregate form stands where each row would be a release: with OVER, or in a correlated subquery.",
        "Put it into a SELECT of its own.",
    ),
    Code(
        "S023",
        "An aggregate form has a GROUP BY, which tells which groups there are.",
        "Aggregate one group at a time, from a public list of groups.",
    ),
    # The budget.
    Code(
        "B001",
        "The call needs more than what remains of the budget.",
        "Lower epsilon as the message says, repeat an earlier release by its name, or ask the data's owner.",
    ),
    Code(
        "B002",
        "The dataset has no budget, and the connection is strict.",
        "Let the owner of the data run `dp_protect`.",
    ),
    Code(
        "B003",
        "The call contradicts what the owner of the data stated.",
        "Leave the argument out. Only the data's owner can restate it.",
    ),
    Code(
        "B004",
        "The call's loss cannot be counted in the unit of the budget.",
        "Use another mechanism, or give the call a delta.",
    ),
    Code(
        "B005",
        "The dataset already has another budget.",
        "Call under it. The data's owner can change it with `replace := true`; what was spent stays spent.",
    ),
    Code(
        "B006",
        "The source reads a table of which nothing is declared, and the ledger protects data.",
        "Run `dp_protect`, `dp_derive` or `dp_public` for it; `dp_unplaced()` lists such tables.",
    ),
    Code("B007", "A declared view was replaced by another one.", "Declare it again."),
    Code("B008", "Something was declared after the statement was prepared.", "Prepare it again."),
    Code(
        "B009",
        "A table cannot be declared so, because it has a budget, or reads one that has, or looks like one.",
        "Follow the line in the message.",
    ),
    Code("B010", "A table is derived from one that has no budget.", "Run `dp_protect` for that one first."),
    Code(
        "B011",
        "The aggregate form protects single rows, and the dataset states a privacy unit.",
        "Use the table form.",
    ),
    # The ledger.
    Code("L001", "The ledger's file cannot be opened.", "Check the path and its permissions."),
    Code("L002", "Another process kept the ledger locked.", "Try again."),
    Code("L003", "This user may not write to the ledger.", "Give this user write access."),
    Code("L004", "The ledger's disk or memory is full or failed.", "Free space, and try again."),
    Code("L005", "The file is damaged, or is not a ledger.", "Give another file, or restore a backup."),
    Code(
        "L006",
        "The ledger's server cannot be reached.",
        "Check host and port in the URL, the service or the environment, and that the server runs.",
    ),
    Code("L007", "The ledger has another schema version.", "Use the dpsql that wrote it, or a newer one."),
    Code(
        "L008",
        "The ledger's place is neither a file nor a sqlite:// or postgresql:// URL.",
        "Give a file, or postgresql://user@host/database.",
    ),
    Code("L009", "A ledger in memory was used after a fork.", "Keep the ledger in a file, which processes can share."),
    Code("L010", "The ledger's database refused for another reason.", "Run `dpsql ledger verify`."),
    Code(
        "L011",
        "The database already uses another ledger.",
        "Leave `ledger` out, or close every connection to the database first.",
    ),
    Code("L012", "The ledger is closed.", "Connect again."),
    Code("L013", "The connection that dpsql was installed on is gone.", "Run `dpsql.install` on this connection."),
    Code("L014", "The driver of the ledger's database is not installed.", "Run `pip install 'dpsql[postgres]'`."),
    Code("L015", "The PostgreSQL server runs with fsync off.", "Set `fsync = on` on the server."),
    Code("L016", "The database has no ledger yet.", "Connect to the database once, or give `--ledger`."),
    Code(
        "L030",
        "An entry of the ledger is not what was written: the file was damaged or changed.",
        "Run `dpsql ledger verify`, and restore a backup with `dpsql ledger restore`.",
    ),
    Code(
        "L031",
        "The ledger's file was deleted, replaced or moved while it was open.",
        "Put the file back, then connect again.",
    ),
    Code(
        "L032",
        "The ledger's file is empty.",
        "Restore a backup with `dpsql ledger restore --set-aside`; delete it only if nothing was released under it.",
    ),
    Code(
        "L033",
        "The database keeps its budgets in another ledger.",
        "Give that `ledger`, or run `dpsql ledger adopt` to change it.",
    ),
    Code(
        "L034",
        "A database is marked with two ledgers.",
        "Drop the schema of the mark that is not its own.",
    ),
    Code(
        "L035",
        "A ledger of the earlier name may belong to two databases.",
        "Give `ledger`, or rename the file as the message says.",
    ),
    Code(
        "L036",
        "The ledger, or the backup, holds entries that the other one does not have.",
        "Give another file, or add `--set-aside` to `dpsql ledger restore`: it renames the ledger's file.",
    ),
    Code(
        "L037",
        "A ledger that is to be copied is damaged.",
        "Give another backup, or add `--set-aside` to `dpsql ledger restore`: it renames the ledger's file.",
    ),
    Code(
        "L040",
        "The port in the ledger's URL is not a number from 1 to 65535.",
        "Write postgresql://user:password@host:port/database, with special characters of the password as %40 (@), "
        "%2F (/) or %3A (:), or leave the password to PGPASSFILE.",
    ),
    Code(
        "L041",
        "The ledger's URL has an option that PostgreSQL's client does not know.",
        "Check how the words after the ? are written.",
    ),
    Code(
        "L042",
        "The ledger's server did not let the user in.",
        "Check the user and the password in the URL, in PGPASSFILE or in the service.",
    ),
    Code(
        "L043",
        "The ledger's server has no database of this name.",
        "Create it with createdb, or correct the name.",
    ),
    Code(
        "L044",
        "The ledger's server has no connection left.",
        "Close other connections, or raise max_connections, and try again.",
    ),
    Code(
        "L045",
        "A time limit of the ledger's server, or its administrator, stopped the work.",
        "Try again, or raise statement_timeout for this user.",
    ),
    Code("L046", "The ledger's server is starting or stopping.", "Try again in a minute."),
    Code(
        "L047",
        "The ledger's server did not answer within the connection timeout.",
        "Check the network, or raise connect_timeout in the URL.",
    ),
    Code(
        "L048",
        "The ledger's server, or the user there, only reads.",
        "Give the URL of the primary server, or a user without default_transaction_read_only.",
    ),
    # What failed inside.
    Code(
        "I001",
        "The call failed after it read the table, which says nothing about the data.",
        "Try again, and report it if it stays; the charge stands.",
    ),
    Code("I002", "The call is no longer running.", "Run the statement again."),
    Code("I003", "The stored release is gone from the ledger.", "Run `dpsql ledger verify`."),
    Code("I004", "A function that is not for direct use was given what it does not take.", "Use the dp_ functions."),
    Code("I005", "DuckDB did not read each batch of rows exactly once.", "Report it."),
    Code("I006", "What a source reads was not asked for before the call was planned.", "Run the statement again."),
    Code("I017", "A sample of noise does not fit 64 bits.", "Run the release again."),
    Code("I018", "A bound of the canonical Lipschitz mechanism does not hold.", "Report it."),
    Code("I019", "A bound of the subset exponential mechanism does not hold.", "Report it."),
    Code("I020", "A sample of noise from a ball is out of range.", "Run the release again."),
    Code("I021", "The table has more rows than a fit takes.", "Fit a sample of the rows."),
    Code("I022", "The fit did not converge.", "Raise `regularization`."),
    Code("I023", "The noise is finer than the calibration covers.", "Lower epsilon or the number of features."),
    Code("I031", "The keys of a private vocabulary are not distinct, or have no count.", "Report it."),
    Code("I032", "A value that the method needs is missing.", "Report it."),
    Code("I033", "More rows were counted than `n_max` allows.", "Report it."),
    Code("I034", "Noise was asked for that is not charged, or was drawn already.", "Report it."),
)

CODES: dict[str, Code] = {entry.code: entry for entry in _entries}


def page() -> str:
    """Return the page of all codes, as Markdown."""
    lines = [
        "# Error codes",
        "",
        "Every error that dpsql raises on purpose starts with a code, such as `[DPSQL-P001]`. The text after it holds",
        "public values only. `dpsql explain P001` prints the entry of a code. This page is written by",
        "`python -m dpsql.contract.codes > docs/errors.md`.",
    ]
    for letter, kind in KINDS.items():
        lines += ["", f"## {letter}", "", kind, "", "| code | when | what to do |", "|---|---|---|"]
        lines += [f"| {c.code} | {c.when} | {c.what_to_do} |" for c in _entries if c.code.startswith(letter)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")

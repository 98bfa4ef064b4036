"""The codes of sources, budgets, ledgers and failures: S, B, L and I."""

from __future__ import annotations

from dpsql.contract.codes.code import Code

ENTRIES = (
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
        "Name the budget that its rows belong to, `dataset := '...'`; make a table of what stands beside a table.",
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
    Code("S024", "An engine has no source of this name.", "Check the name in the engine's catalog."),
    Code(
        "S025",
        "Whose rows a view or a frame of an engine holds cannot be seen, and the ledger protects data.",
        "Name their budget: `dataset`; or read a table of the engine's catalog.",
    ),
    Code(
        "S026",
        "The workers of an engine cannot run dpsql.",
        "Install the same version of dpsql where the engine runs Python.",
    ),
    Code(
        "S030",
        "The server of an engine does not answer.",
        "Check that it runs, and that the session is open; nothing was charged.",
    ),
    Code(
        "S031",
        "A source of an engine draws at random, so that every attempt at a task would read other rows.",
        "Write it to a table, and give that.",
    ),
    Code(
        "S034",
        "An engine would take values from the minimum and maximum of a file, which leave NaN out.",
        "Do as the message says: turn the engine's statistics off, or filter with `condition`.",
    ),
    Code(
        "S037",
        "The source has a column of the name that predictions get.",
        "Rename that column in a view of the engine.",
    ),
    Code(
        "S038",
        "An engine of the command line cannot be opened.",
        "Install its package, and check that its server runs or that its files are there.",
    ),
    Code("S039", "Two columns have names that differ in case alone.", "Rename one of them in a view of the engine."),
    Code(
        "S040",
        "What is declared of an engine is a view or a frame, which may be replaced.",
        "Write it to a table of the engine's catalog; or name a budget in each call: `dataset`.",
    ),
    Code(
        "S041",
        "The text of the source calls a function whose value may follow from other rows, or from what no plan shows.",
        "Write what the message says in its place; docs/budgets.md lists what a source may call.",
    ),
    Code(
        "S042",
        "The text of the source names a type that somebody made, whose values may be made from rows.",
        "Write the type itself, or cast the column to VARCHAR.",
    ),
    Code(
        "S043",
        "The source names a table that has a budget beside a file or a frame, which no plan shows.",
        "Make a table of the file, declare it with `dp_public`, and name that in the view.",
    ),
    Code(
        "S044",
        "The text of the source, or of a macro that it calls, cannot be read.",
        "Write the text itself, and give every argument of a macro.",
    ),
    Code(
        "S045",
        "An aggregate of a privacy unit's rows follows from the order in which they are read.",
        "Add exactly, `sum(CAST(x AS DECIMAL(18, 3)))`; sort a list by itself; or take min, max, median or count.",
    ),
    Code(
        "S052",
        "A source of an engine names a file twice, or a file beside its folder, so that rows would be read twice.",
        "Name each file once.",
    ),
    Code(
        "S053",
        "It cannot be seen what a row of an engine's view or frame comes from, so one row of the data may change many.",
        "Filter and compute columns alone; or collect a frame of Polars, or write a table and declare it with "
        "`dp_derive`; or let the owner state `claims := 'all'`.",
    ),
    Code(
        "S054",
        "The server of an engine answers that it cannot read a source, such as one whose files have several types.",
        "Check that its files are there, and that all of them have the same columns and types; nothing was charged.",
    ),
    Code(
        "S055",
        "The installed version of an engine cannot do what dpsql needs.",
        "Install the version that the message names, or a later one; nothing was charged.",
    ),
    Code(
        "S056",
        "A source of an engine has no column of a type that a call reads.",
        "Check that its files are there, and its columns.",
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
    Code(
        "B015",
        "A call claims that a file, a frame or a view holds rows of a budget whose owner answers no claims.",
        "Read a table or a view that is declared. Only the data's owner can change `claims`.",
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
    Code("L017", "A database in memory is used from dbt without a ledger.", "Give `ledger` in the plugin's config."),
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
    Code(
        "L049",
        "The ledger's server was lost while an entry was written, and does not say whether it stands.",
        "Look at `dpsql ledger` once the server answers, and ask again: a name that has its result costs nothing more.",
    ),
    Code(
        "L050",
        "The ledger does not hold the entry that was noted as its last one: entries were lost in a crash, or an "
        "earlier or another file was put in its place.",
        "Put the right files back, or run `dpsql ledger restore` with a backup; `dpsql ledger accept` goes on without "
        "the lost entries.",
    ),
    Code(
        "L051",
        "The ledger's log was cut short while it was open.",
        "Close the ledger everywhere, and put the log back or run `dpsql ledger restore` with a backup.",
    ),
    Code(
        "L052",
        "The ledger's file has a second name, a hard link.",
        "Remove the other name, or put a copy in the place of the file.",
    ),
    Code(
        "L053",
        "The ledger's file is gone; the note beside it says that it had entries.",
        "Put it back, or run `dpsql ledger restore` with a backup. If nothing was released under it, delete the note, "
        "whose name ends in .head.",
    ),
    Code(
        "L054",
        "The ledger holds nothing about a database that is marked as its own: its entries were lost.",
        "Run `dpsql ledger restore` with a backup; `dpsql ledger adopt` goes on without them.",
    ),
    Code(
        "L055",
        "The database that the command line names is not there; a new one would begin with an empty ledger.",
        "Correct the name, or give `--create`.",
    ),
    Code(
        "L056",
        "The ledger was not closed, and the note of its last entry is gone.",
        "Put the note back, whose name ends in .head, or run `dpsql ledger accept`.",
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
    Code(
        "I008",
        "An engine did not return every record of a job exactly once.",
        "Run the call again; if it stays, look at what stands between you and the engine's server.",
    ),
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
    Code("I035", "An entry of the ledger does not reserve the call that is to be released.", "Report it."),
)

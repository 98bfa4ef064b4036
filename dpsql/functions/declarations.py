"""What data owners declare: the arguments of dp_protect, dp_public and dp_derive after the table."""

from __future__ import annotations

from dpsql.contract.arguments import (
    LOWER,
    MAX_ROWS_PER_UNIT,
    NEIGHBOUR_RELATION,
    PRIVACY_UNIT,
    TARGET_LEVELS,
    TARGET_LOWER,
    TARGET_UPPER,
    UPPER,
    Argument,
    Signature,
    stated,
)

DECLARATIONS: dict[str, Signature] = {
    "dp_protect": Signature(
        Argument("epsilon", "Privacy loss that all calls may cost together, above 0. Give it or rho."),
        Argument("delta", "Chance that the guarantees of all calls may fail with together, at least 0 and below 1."),
        Argument("rho", "Budget in zero-concentrated privacy loss, above 0, in place of epsilon and delta."),
        *map(stated, (NEIGHBOUR_RELATION, PRIVACY_UNIT, MAX_ROWS_PER_UNIT)),
        *map(stated, (LOWER, UPPER, TARGET_LOWER, TARGET_UPPER, TARGET_LEVELS)),
        Argument("keys", "The values that columns may have, by the column's name: {'ward': ['A', 'B']}."),
        Argument(
            "accountant",
            "How charges add up: 'basic', or 'rdp' for many small calls.",
            shown="'basic'",
            choices=("basic", "rdp"),
        ),
        Argument("public", "Names of tables that tell of nobody, which are declared in the same breath."),
        Argument("mark", "Mark the table's database, so that it is used with this ledger only.", True),
        Argument("source", "Whether the name is a table or view; false for rows that are in no catalog.", True),
        Argument("replace", "Replace a budget that stands already. What is left out stays as it was.", False),
    ),
    "dp_public": Signature(Argument("force", "Declare it though its name was declared otherwise before.", False)),
    "dp_derive": Signature(
        Argument("privacy_unit", "Name of the column of the person's id in the derived table."),
        Argument(
            "own_rows_only",
            "Whether each row is made of rows of its own person and of public tables alone.",
            False,
        ),
        Argument("one_row_each", "Whether one row of the base gives at most one row, made of it alone.", False),
    ),
}

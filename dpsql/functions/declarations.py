"""Declarations by data owners: the arguments of dp_protect and its kin, except the table."""

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

_WHOSE = "Name of the attached engine whose table it is; DuckDB's by default."
_ENGINE = Argument(
    "engine", f"{_WHOSE} On an engine the declaration holds for the session, and for no view or frame.", kind="str"
)

DECLARATIONS: dict[str, Signature] = {
    "dp_protect": Signature(
        Argument(
            "epsilon", "Total epsilon that all calls together may spend, above 0. Give either it or rho.", kind="Number"
        ),
        Argument("delta", "Total delta that all calls together may spend, at least 0 and below 1.", kind="Number"),
        Argument(
            "rho",
            "Budget under zero-concentrated differential privacy, above 0, in place of epsilon and delta.",
            kind="Number",
        ),
        *map(stated, (NEIGHBOUR_RELATION, PRIVACY_UNIT, MAX_ROWS_PER_UNIT)),
        *map(stated, (LOWER, UPPER, TARGET_LOWER, TARGET_UPPER, TARGET_LEVELS)),
        Argument(
            "keys",
            "Public values that a column may have, by column name: {'ward': ['A', 'B']}.",
            kind="Mapping[str, Iterable[object]]",
        ),
        Argument(
            "accountant",
            "How charges add up: 'basic', or 'rdp' for many small calls.",
            shown="'basic'",
            choices=("basic", "rdp"),
        ),
        Argument("public", "Names of tables without personal data, which the same call declares public.", kind="Names"),
        Argument("mark", "Mark the table's database, so that it can only be used with this ledger.", True),
        Argument("source", "Whether the name is a table or view; false for rows outside every catalog.", True),
        Argument("replace", "Replace an existing budget. Arguments that are left out keep their values.", False),
        Argument("engine", _WHOSE, kind="str"),
        Argument(
            "claims",
            "Whether calls may claim that a file or a frame holds rows of this budget: 'none', or 'all'. By default "
            "they may, where an engine shows that each row of its view or frame comes from one row.",
            shown="'rows'",
            choices=("rows", "none", "all"),
        ),
    ),
    "dp_public": Signature(
        Argument("force", "Declare the table public even if it has the columns of a protected one.", False), _ENGINE
    ),
    "dp_derive": Signature(
        Argument("privacy_unit", "Name of the column in the derived table that holds the person's id.", kind="str"),
        Argument(
            "own_rows_only",
            "Whether each row is derived only from rows of its own person and from public tables.",
            False,
        ),
        Argument("one_row_each", "Whether each base row yields at most one row, derived from it alone.", False),
        _ENGINE,
    ),
    "dp_unplaced": Signature(
        Argument("engine", "Name of the attached engine whose catalog is listed; DuckDB's by default.", kind="str")
    ),
}

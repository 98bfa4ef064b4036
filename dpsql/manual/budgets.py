"""Budgets, what owners declare, receipts and estimates."""

from __future__ import annotations

from dpsql.manual.demonstration import BUDGETS as STATED
from dpsql.manual.entry import BUDGETS, NO_ROWS, Example, ManualEntry

_TRUST = (
    "dpsql believes what is declared. Whoever can call this function can change it, so give analysts results, "
    "and not this connection."
)
_PUBLIC = "Its answer holds public values only: what was declared, spent and released."


def _entry(
    name: str,
    summary: str,
    signature: str,
    guarantee: str,
    columns: dict[str, str],
    example: Example,
    *,
    unprotected: str = _PUBLIC,
    arguments: dict[str, str] | None = None,
    neighbours: str = NO_ROWS,
    sensitivity: str = "None: it charges nothing, because it reads no row.",
) -> ManualEntry:
    return ManualEntry(
        name=name,
        topic=BUDGETS,
        summary=summary,
        signature=(signature,) if signature else (),
        arguments=arguments or {},
        guarantee=guarantee,
        neighbours=neighbours,
        sensitivity=sensitivity,
        unprotected=unprotected,
        missing="It reads no values of a table.",
        columns=columns,
        example=example,
        papers=("None.",),
    )


_ONE_LINE = {"value": "one line that says what now holds"}
_TABLE = {"source": "The table or view."}
ENTRIES = (
    _entry(
        "dp_protect",
        "Set the budget of a table, and what must hold for every call on it.",
        "",
        "From then on all releases on the table together stay within epsilon and delta (or rho), under the stated "
        "relation and privacy unit. A "
        "call that does not fit is refused before it reads a row, and charges nothing.",
        _ONE_LINE,
        Example(
            "SELECT dp_protect('admissions', epsilon := 3.0, delta := 1e-6, lower := 0,\n  upper := {age: 120});",
            'ctx.dp_protect("admissions", epsilon=3.0, delta=1e-6, lower=0, upper={"age": 120})',
            before=("CREATE OR REPLACE TABLE admissions AS SELECT age, days FROM patients;",),
        ),
        unprotected=_TRUST,
        arguments={"dataset": "The table or view; or a name for rows that are in no catalog, with source := false."},
        neighbours="`neighbours`, `privacy_unit` and `max_rows_per_unit` that are stated here hold for every call, "
        "so that charges add up to one guarantee.",
    ),
    _entry(
        "dp_public",
        "Declare that a table holds nothing about any privacy unit, so that views of protected tables may join it.",
        "",
        "None of its own: a call on a view that joins the table is charged to the protected tables alone.",
        _ONE_LINE,
        Example(
            "SELECT dp_public('wards');",
            'ctx.dp_public("wards")',
            before=(
                "CREATE OR REPLACE TABLE wards AS SELECT unnest(['A', 'B', 'C']) AS ward,\n"
                "  unnest([20, 30, 25]) AS beds;",
            ),
        ),
        unprotected=_TRUST + " A table that was computed from rows about people is not public.",
        arguments=_TABLE,
    ),
    _entry(
        "dp_derive",
        "Declare that a table was made from a protected one, so that calls on it are charged to that one.",
        "",
        "Calls on the table are charged to the base's budget, as far as a privacy unit reaches: with `own_rows_only` "
        "each row is made of rows of its own "
        "person and of public tables; with `one_row_each` each row of the base gives at most one row.",
        _ONE_LINE,
        Example(
            "SELECT dp_derive('costly', 'visits', own_rows_only := true,\n  privacy_unit := 'patient_id');",
            'ctx.dp_derive("costly", "visits", own_rows_only=True, privacy_unit="patient_id")',
            before=(STATED[1], "CREATE OR REPLACE TABLE costly AS SELECT * FROM visits WHERE cost > 500;"),
        ),
        unprotected=_TRUST,
        arguments={**_TABLE, "base": "The protected table that it was made from."},
        neighbours="Those of the base: one unit of the base reaches the rows that it has in the derived table.",
    ),
    _entry(
        "dp_unplaced",
        "List the tables of which nothing is declared, with the statements that declare them.",
        "",
        "None needed: it reads names of tables.",
        {
            "table_name": "the table",
            "if_public": "the statement that declares it public",
            "if_derived": "the statement that declares it derived from a protected table",
            "if_protected": "the statement that gives it a budget of its own",
        },
        Example(
            "FROM dp_unplaced();",
            "ctx.dp_unplaced()",
            before=("CREATE OR REPLACE TABLE unknown_rows AS SELECT 1 AS x;",),
        ),
    ),
    _entry(
        "dp_budget",
        "Show what each dataset may spend, has spent and has left.",
        "FROM dp_budget(details := false)",
        "All releases so far together are (epsilon_spent, delta_spent)-DP, or rho_spent-zCDP for a budget in rho, "
        "under the budget's accountant.",
        {
            "dataset": "the budget's name",
            "spent": "what all releases together cost, in words",
            "budget": "what was granted, in words",
            "releases": "how many were charged",
            "epsilon_spent": "epsilon of all releases together; NULL where there is no finite one",
            "epsilon_remaining": "what is left of it; NULL for a budget in rho, or none",
            "delta_spent": "delta of all releases together",
            "delta_remaining": "what is left of it",
            "rho_spent": "with `details`: under zero-concentrated DP; NULL where there is no finite one",
            "rho_remaining": "with `details`: what is left of it; NULL for a budget in epsilon",
            "accountant": "with `details`: 'basic', 'rdp of order …', or 'zcdp'",
            "renyi_spent": "with `details`, under 'rdp': Rényi losses since the accountant was stated",
            "renyi_remaining": "with `details`, under 'rdp': what is left for them",
            "epsilon_zcdp": "with `details`: the same releases under zCDP at `zcdp_delta`: a report, never a reason to "
            "allow more",
            "zcdp_delta": "with `details`: the delta of `epsilon_zcdp`",
            "remaining": "what is left, in words",
        },
        Example(
            "SELECT dataset, budget, spent, remaining FROM dp_budget()\nWHERE dataset = 'visits';",
            "ctx.dp_budget()",
            before=(STATED[1],),
        ),
        arguments={"details": "Whether the columns about accounting are in the result, too."},
    ),
    _entry(
        "dp_policy",
        "Show what owners stated: limits, privacy units, bounds, keys and levels; public and derived tables.",
        "FROM dp_policy()",
        "None needed: it reads what was declared, and no row.",
        {
            "dataset": "the budget, or the table that is public or derived",
            "declaration": "'dp_protect', 'dp_public' or 'dp_derive'",
            "argument": "the argument that was stated",
            "column_name": "the column that it was stated for; NULL if it is for all",
            "value": "as SQL; NULL where nothing was stated, so that a call may choose",
            "entry": "the entry of the ledger that holds it; NULL for what holds for this session alone",
            "recorded_at": "when it was stated, in UTC",
        },
        Example(
            "SELECT argument, column_name, value FROM dp_policy() WHERE dataset = 'visits';",
            'ctx.dp_policy("visits")',
            before=(STATED[1],),
        ),
    ),
    _entry(
        "dp_ledger",
        "Show every entry of the ledger: budgets, declarations, charges and replays, in the order of its hash chain.",
        "FROM dp_ledger()",
        "Each entry has the guarantee of one release; `dp_budget()` adds them up.",
        {
            "sequence": "the number of the entry",
            "recorded_at": "when, in UTC",
            "kind": "a charge, a replay, a budget or a declaration",
            "dataset": "the budget",
            "function": "what was called",
            "release": "the release's name; NULL if it has none",
            "epsilon": "this entry's charge; NULL where there is no finite one",
            "delta": "the same of delta",
            "rho": "the same under zero-concentrated DP",
            "guarantee": "what the release promises, on which source",
            "status": "what became of it, such as 'released' or 'replay of entry 12'",
            "event": "the mechanisms that spent the charge, with their parameters, as JSON",
            "hash": "the link of the chain, which `dpsql ledger verify` checks",
        },
        Example("SELECT sequence, kind, dataset, function, status FROM dp_ledger() LIMIT 4;", "ctx.dp_ledger()"),
    ),
    _entry(
        "dp_estimate",
        "Tell what a call would cost and how noisy it would be, without reading a table.",
        "",
        "None needed: it computes from public numbers alone.",
        {"quantity": "what is told", "value": "its number or text", "meaning": "in one sentence"},
        Example(
            "FROM dp_estimate('dp_sis', n_features := 100, k := 5, epsilon := 0.5,\n"
            "  n_rows := 1000, score := 'rank');",
            'ctx.dp_estimate("dp_sis", n_features=100, k=5, epsilon=0.5, n_rows=1000, score="rank")',
        ),
        arguments={"function": "A function that spends, such as 'dp_sis'."},
    ),
)

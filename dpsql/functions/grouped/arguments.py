"""The arguments of functions that group: by which columns, over which keys, and what one unit contributes to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial

from dpsql.contract import parameters
from dpsql.contract.arguments import (
    MAX_ROWS_PER_UNIT,
    NEIGHBOUR_RELATION,
    OPTIONAL_DELTA,
    PRIVACY_UNIT,
    Argument,
    integer,
    word,
)
from dpsql.errors import ParameterError


def _confidence(given: object) -> Fraction:
    number = parameters.open_unit_interval("confidence", given, hint="0.95 is usual.")
    parameters.within("confidence", number, Fraction(1, 100), 1 - Fraction(1, 10**6), hint="0.95 is usual.")
    return number


def _ddof(given: object) -> int:
    number = parameters.number_from_zero("ddof", given, hint="1 is usual.")
    parameters.within("ddof", number, 0, 1, hint="1 is usual.")
    return int(number)


BY = Argument(
    "by",
    "Names of the columns to group by: one name, or a list. All groups are one release.",
    names_column=True,
    table_only=True,
)
KEYS = Argument(
    "keys",
    "The groups, from public knowledge: a list of values, a struct of lists by column (all combinations), or a list "
    "of structs. BOOLEAN columns need none, nor ENUMs with declared labels. 'private' releases keys that many units "
    "have, and needs delta.",
    shown="stated by the owner, or by the column's type",
    table_only=True,
    kind="Keys",
)
OTHER = Argument(
    "other",
    "Whether rows of all other keys form one group more, in which the column other is true.",
    False,
    check=partial(parameters.boolean, "other"),
    table_only=True,
)
MAX_GROUPS_PER_UNIT = integer(
    "max_groups_per_unit",
    "Groups in which one person may have rows. A random choice of them counts.",
    hint="Give the groups in which one privacy unit may have rows.",
    shown="max_rows_per_unit",
    table_only=True,
)
MAX_ROWS_PER_UNIT_GROUP = integer(
    "max_rows_per_unit_group",
    "Rows that one person may contribute to a group. A random choice of them counts.",
    hint="Give the rows that one privacy unit may contribute to a group.",
    shown="max_rows_per_unit",
    table_only=True,
)
UNIT_VALUE = Argument(
    "unit_value",
    "What a person contributes to a group: its 'rows', or the 'sum' of its values as one row, whose bounds are lower "
    "and upper.",
    "rows",
    check=partial(parameters.choice, "unit_value", options=("rows", "sum")),
    choices=("rows", "sum"),
    table_only=True,
)
AUTO = "auto"
NOISE = word("noise", "The law of the noise; 'auto' takes what is smaller.", (AUTO, "laplace", "gaussian"), AUTO)
CONFIDENCE = Argument(
    "confidence",
    "Chance, from 0.01 to 0.999999, that an interval holds the exact answer over the rows that count, each by itself.",
    0.95,
    check=_confidence,
    exact=True,
)
DDOF = Argument(
    "ddof", "What variances subtract from the number of rows: 1 as var_samp does, or 0 as var_pop does.", 1, check=_ddof
)
COUNT_DELTA = replace(
    OPTIONAL_DELTA,
    doc="Chance that the guarantee fails, from 1e-300 to 0.1. Without it pure DP; with it noise may be Gaussian.",
)
GROUP_LIMITS = (MAX_GROUPS_PER_UNIT, MAX_ROWS_PER_UNIT_GROUP)
GROUPS = (BY, KEYS, OTHER)
UNIT = (NEIGHBOUR_RELATION, PRIVACY_UNIT, MAX_ROWS_PER_UNIT, *GROUP_LIMITS)


def refuse_without_by(given: Mapping[str, object], arguments: Iterable[Argument]) -> None:
    """Raise if an argument about groups is given where there are none."""
    for argument in arguments:
        value = given.get(argument.name)
        if value is not None and value is not argument.default:
            raise ParameterError("P046", f"{argument.name} needs by. Name the columns to group by, or leave it out.")


def read_noise(given: Mapping[str, object], delta: Argument) -> dict[str, object]:
    """Return the checked delta, the law of the noise that was asked for, and the confidence of intervals."""
    law, chance = NOISE.read(given), delta.read(given)
    if law == "gaussian" and chance is None:
        raise ParameterError("P046", "noise := 'gaussian' needs delta. Give delta, or leave noise out.")
    return {"delta": chance, "law": law, "confidence": CONFIDENCE.read(given)}

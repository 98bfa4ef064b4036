"""Public arguments of a call: name, meaning, valid values and default of each argument.

Every function has one ordered list of arguments, its `Signature`. These lists define the SQL macros, the methods of
`dpsql.Context`, `dp_estimate`, the shell's help and completion, and the stored form of a plan.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial

from dpsql.contract import parameters
from dpsql.contract.json import Json
from dpsql.contract.layout import MOST_FEATURES
from dpsql.contract.query import condition
from dpsql.contract.relation import NEIGHBOURS
from dpsql.dataclass import dataclass

REQUIRED = "required"


@dataclass(frozen=True)
class Argument:
    """One public argument.

    Attributes
    ----------
    name : str
    doc : str
        The meaning for users, with unit and interval, in one or more sentences.
    default : object
        Value when a call leaves the argument out.
    default_text : str
        Text that help shows for a default that is not a constant, such as `REQUIRED`.
    check : callable, optional
        Returns the checked value or raises. None if the plan checks the value with other arguments.
    choices : tuple of str
        The allowed words.
    exact : bool
        Whether the checked value is a `Fraction`, which is stored as text.
    statistic : bool
        Whether the exact statistic depends on the argument, so that the function's ``exact_*`` form has it too.
    column : str
        Column that replaces the argument in the aggregate form: ``x``, ``y`` or ``p``.
    names_column : bool
        Whether the value is one or more names of columns of the table.
    table_only : bool
        Whether the argument describes columns of a table, so that the aggregate form does not have it.
    stand_in : object
        Value that `dp_estimate` uses if the noise does not depend on the argument.
    earlier : tuple
        Defaults of earlier versions, for the lookup of named releases; None for versions without the argument.
    null_is_wrong : bool
        Whether SQL refuses NULL: a concatenated name is NULL if a part is NULL. The SQL default is false.
    kind : str
        Type of a value in Python, in the words of a stub (`dpsql.generate`). Optional if `choices`, the default,
        `exact` or `names_column` determine the type.
    """

    name: str
    doc: str
    default: object = None
    default_text: str = ""
    check: Callable[[object], object] | None = None
    choices: tuple[str, ...] = ()
    exact: bool = False
    statistic: bool = False
    column: str = ""
    names_column: bool = False
    table_only: bool = False
    stand_in: object = None
    earlier: tuple[object, ...] = ()
    null_is_wrong: bool = False
    kind: str = ""

    @property
    def annotation(self) -> str:
        """The type of a value in Python, as a stub writes it."""
        if self.kind:
            return self.kind
        if self.choices:
            return f"Literal[{', '.join(map(json.dumps, self.choices))}]"
        if isinstance(self.default, bool):
            return "bool"
        if self.exact or isinstance(self.default, (int, float)):
            return "Number"
        return "Names" if self.names_column else "object"

    @property
    def required(self) -> bool:
        """Whether the argument is required."""
        return self.default_text == REQUIRED

    @property
    def shown_default(self) -> str:
        """Text that help shows for the default: a constant as SQL, or words; may be empty."""
        if self.default_text or self.default is None:
            return self.default_text
        if isinstance(self.default, bool):
            return str(self.default).lower()
        return repr(self.default)

    @property
    def meaning(self) -> str:
        """Text that help shows: the meaning, and the allowed words."""
        return f"{self.doc} One of {', '.join(map(repr, self.choices))}." if self.choices else self.doc

    def read(self, arguments: Mapping[str, object]) -> object:
        """Return the checked value; None if a call leaves out an optional argument.

        Raises
        ------
        ParameterError
            The code, and the valid form of the argument.
        """
        value = arguments[self.name]
        if self.check is None or (value is None and not self.required):
            return value
        return self.check(value)

    def restore(self, stored: Json) -> object:
        """Return the checked value from its form in a plan's JSON."""
        if not self.exact or stored is None:
            return hashable(stored)
        return Fraction(parameters.narrow(str, stored))


class Signature(Mapping[str, Argument]):
    """The arguments of one function by name, in the order of its SQL form.

    Parameters
    ----------
    *arguments : Argument
    """

    def __init__(self, *arguments: Argument) -> None:
        self._arguments = {argument.name: argument for argument in arguments}
        if len(self._arguments) < len(arguments):
            raise TypeError("an argument stands twice in a signature")

    def __getitem__(self, name: str) -> Argument:
        return self._arguments[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arguments)

    def __len__(self) -> int:
        return len(self._arguments)

    @property
    def stand_ins(self) -> dict[str, object]:
        """Values, by name, for required arguments that do not affect the noise."""
        return {name: argument.stand_in for name, argument in self.items() if argument.stand_in is not None}

    def fill(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Return the value of every argument by name: the given value, else the default."""
        return {
            name: argument.default if arguments.get(name) is None else arguments[name]
            for name, argument in self.items()
        }


def hashable(value: object) -> object:
    """Restore a JSON list as a tuple and a JSON object as a mapping, recursively."""
    if isinstance(value, dict):
        return parameters.FrozenMapping({name: hashable(item) for name, item in value.items()})
    if not isinstance(value, list):
        return value
    return tuple(map(hashable, value)) if any(isinstance(item, (list, dict)) for item in value) else tuple(value)


# Kinds of arguments that many functions share.


def word(
    name: str, doc: str, options: tuple[str, ...], default: str, *, earlier: tuple[str | None, ...] = ()
) -> Argument:
    """Return an argument that is one of a few words."""
    check = partial(parameters.choice, name, options=options)
    return Argument(name, doc, default, check=check, choices=options, earlier=earlier)


def share(
    name: str,
    doc: str,
    default: float | None,
    *,
    hint: str,
    default_text: str = "",
    earlier: tuple[float | None, ...] = (),
) -> Argument:
    """Return an argument that is an exact number strictly between 0 and 1."""
    check = partial(parameters.open_unit_interval, name, hint=hint)
    return Argument(name, doc, default, default_text=default_text, check=check, exact=True, earlier=earlier)


def optional_share(
    name: str,
    doc: str,
    default: float | None,
    *,
    hint: str,
    default_text: str = "",
    earlier: tuple[float | None, ...] = (),
    table_only: bool = False,
) -> Argument:
    """Return an argument that is an exact number from 0 to below 1; 0 means None, a share without cost."""

    def check(number: object) -> Fraction | None:
        if parameters.as_double(number) == 0.0:
            return None
        return parameters.open_unit_interval(name, number, hint=hint)

    return Argument(
        name, doc, default, default_text=default_text, check=check, exact=True, earlier=earlier, table_only=table_only
    )


def integer(
    name: str,
    doc: str,
    default: int | None = None,
    *,
    hint: str,
    most: int = parameters.MOST,
    default_text: str = "",
    table_only: bool = False,
) -> Argument:
    """Return an argument that is an integer from 1 to `most`."""
    check = partial(parameters.positive_integer, name, hint=hint, most=most)
    return Argument(name, doc, default, check=check, default_text=default_text, table_only=table_only, kind="Integer")


def rational(name: str, doc: str, default: float | None = None, *, hint: str) -> Argument:
    """Return an argument that is an exact number above 0."""
    return Argument(name, doc, default, check=partial(parameters.positive_number, name, hint=hint), exact=True)


def double(name: str, doc: str, default: float | None = None, *, hint: str, default_text: str = "") -> Argument:
    """Return an argument that is a finite double above 0."""
    check = partial(parameters.positive_float, name, hint=hint)
    return Argument(name, doc, default, check=check, default_text=default_text, kind="Number")


def flag(name: str, doc: str, default: bool, *, earlier: tuple[bool | None, ...] = ()) -> Argument:
    """Return an argument that is true or false."""
    return Argument(name, doc, default, check=partial(parameters.boolean, name), earlier=earlier)


def row_column(name: str, doc: str, *, column: str, hint: str) -> Argument:
    """Return the argument for a column that every call names; `column` is its name in the aggregate form."""
    return Argument(
        name,
        doc,
        default_text=REQUIRED,
        check=partial(parameters.text, name, hint=hint),
        names_column=True,
        column=column,
        stand_in=name,
        kind="str",
    )


# Location of the rows.
TARGET = Argument(
    "target",
    "Name of the target's column: numeric, text or boolean.",
    default_text=REQUIRED,
    names_column=True,
    statistic=True,
    column="y",
    stand_in="target",
    kind="str",
)
FEATURES = Argument(
    "features",
    "Names of the feature columns, the name of one vector column, or in long rows the column that names the feature. "
    "release('name') uses the features that an earlier release selected.",
    default_text="every numeric column",
    names_column=True,
    statistic=True,
    column="x",
    stand_in="features",
    kind="Features",
)
N_FEATURES = Argument(
    "n_features",
    "Length of the vectors of a list column, from 1 to 1000000. It is public.",
    statistic=True,
    kind="Integer",
)
NAMES = Argument(
    "names",
    "Public names of the features: one per element of a vector, or the names that count in long rows.",
    statistic=True,
    kind="Iterable[str]",
)
COLUMNS = (TARGET, FEATURES, N_FEATURES, NAMES)

# Spending.
K = integer(
    "k",
    "Number of features to select, from 1 to the number of features.",
    hint="Give the number of features to select.",
    most=MOST_FEATURES,
    default_text=REQUIRED,
)
EPSILON = Argument(
    "epsilon",
    "Privacy loss of the whole call, from 1e-15 to 1e12. 1.0 is usual.",
    default_text="required where the owner states no default_epsilon",
    check=parameters.epsilon,
    exact=True,
)
DELTA = Argument(
    "delta",
    "Chance that the guarantee fails, from 1e-300 to 0.1. Keep it far below 1 / number of rows.",
    default_text=REQUIRED,
    check=parameters.delta,
    exact=True,
)
OPTIONAL_DELTA = replace(
    DELTA,
    doc="Chance that the guarantee fails, from 1e-300 to 0.1. With it the noise is Gaussian; without it, pure DP.",
    default_text="",
)

# Public bounds of values.
LOWER = Argument(
    "lower",
    "Public lower bound of the features, in their own units: one number, a list with one per feature, or a struct by "
    "name. Values are clipped to it.",
    default_text="required, or stated by the owner",
    statistic=True,
    stand_in=0,
    kind="Bounds",
)
UPPER = Argument(
    "upper",
    "Public upper bound of the features, in the same form as lower and above it. Values are clipped to it.",
    default_text="required, or stated by the owner",
    statistic=True,
    stand_in=1,
    kind="Bounds",
)
TARGET_LOWER = Argument(
    "target_lower",
    "Public lower bound of a numeric target, one number in its own unit.",
    default_text="required for a numeric target",
    statistic=True,
    kind="Number",
)
TARGET_UPPER = Argument(
    "target_upper",
    "Public upper bound of a numeric target, above target_lower.",
    default_text="required for a numeric target",
    statistic=True,
    kind="Number",
)
TARGET_LEVELS = Argument(
    "target_levels",
    "The two public levels of a text target: the first is coded -1, the second +1, and any other value as 0.",
    default_text="required for a text target",
    statistic=True,
    kind="Iterable[object]",
)
CLASSES = replace(
    TARGET_LEVELS,
    doc="The negative and the positive class of the label. Rows of neither class are ignored.",
    default_text="[false, true], or [0, 1]",
)
BOUNDS = (LOWER, UPPER, TARGET_LOWER, TARGET_UPPER, TARGET_LEVELS)
# Bounds of one column, or of two columns that share an interval.
COLUMN_BOUNDS = (
    replace(LOWER, doc="Public lower bound of the values, one number. Values are clipped to it.", kind="Number"),
    replace(UPPER, doc="Public upper bound of the values, one number. Values are clipped to it.", kind="Number"),
)
# Bounds of functions that choose private bounds if these are missing.
FEATURE_BOUNDS = tuple(replace(argument, default_text="drawn privately", stand_in=None) for argument in (LOWER, UPPER))
OPTIONAL_BOUNDS = (
    *FEATURE_BOUNDS,
    *(replace(argument, default_text="drawn privately") for argument in (TARGET_LOWER, TARGET_UPPER)),
    TARGET_LEVELS,
)

# Privacy unit and budget.
NEIGHBOUR_RELATION = Argument(
    "neighbours",
    "The neighbouring relation: tables that differ by adding or removing one row or person ('add_remove'), or by "
    "replacing one ('replace').",
    default_text="'add_remove', or stated by the owner",
    check=partial(parameters.choice, "neighbours", options=NEIGHBOURS),
    choices=NEIGHBOURS,
)
PRIVACY_UNIT = Argument(
    "privacy_unit",
    "Name of the column of the id of the person to protect. Without it one row is protected.",
    names_column=True,
    statistic=True,
    table_only=True,
    kind="str",
)
MAX_ROWS_PER_UNIT = Argument(
    "max_rows_per_unit",
    "Rows that one person may contribute, from 1 to 1000000000. A random choice of them counts.",
    default_text="required with privacy_unit",
    statistic=True,
    table_only=True,
    kind="Integer",
)
ROW_ID = Argument(
    "row_id",
    "Name of the column of the row's id in long rows, or of a stored unique id.",
    names_column=True,
    statistic=True,
    table_only=True,
    kind="str",
)
VALUE = Argument(
    "value",
    "Name of the column that holds the value in long rows. Without it, every listed feature has the value 1.",
    names_column=True,
    statistic=True,
    table_only=True,
    kind="str",
)
DATASET = Argument("dataset", "Name of the budget that is charged.", default_text="the source's name", kind="str")
RELEASE = Argument(
    "release",
    "Name of this release. The same call with the same name returns the stored result and costs nothing.",
    null_is_wrong=True,
    kind="str",
)
CONDITION = Argument(
    "condition",
    "A condition on one row as text, such as 'age >= 18': only rows that meet it count. Rows for which it is NULL "
    "or an error do not.",
    check=condition.check,
    statistic=True,
    table_only=True,
    kind="str",
)
ENGINE = Argument(
    "engine",
    "Name of the attached engine that holds the source, see `dpsql.attach_engine`.",
    default_text="DuckDB itself",
    table_only=True,
    kind="str",
)
DURING = Argument(
    "during",
    "Periods whose rows count, and whose budgets are charged: '2026-10', a list of names, or '2026-01/2026-12' from "
    "the first to the last.",
    default_text="required where the owner stated periods",
    table_only=True,
    kind="Names",
)
# Last arguments of every function.
BUDGET = (DATASET, RELEASE, CONDITION, ENGINE, DURING)
# For wide and array layouts; the long layout also has a value.
COLUMN_PROTECTION = (NEIGHBOUR_RELATION, PRIVACY_UNIT, MAX_ROWS_PER_UNIT, ROW_ID, *BUDGET)
PROTECTION = (NEIGHBOUR_RELATION, PRIVACY_UNIT, MAX_ROWS_PER_UNIT, ROW_ID, VALUE, *BUDGET)


def owner_argument(argument: Argument) -> Argument:
    """Return the argument as a data owner declares it: the default if a call omits it."""
    return Argument(
        argument.name,
        f"For calls that leave it out: {argument.doc}",
        choices=argument.choices,
        names_column=argument.names_column,
        kind=argument.kind,
    )

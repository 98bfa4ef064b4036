"""The public arguments of a call: what each is called, means, may be, and is where it is left out.

Every function has one ordered list of them, its `Signature`. The SQL macros, the methods of `dpsql.Context`,
`dp_estimate`, the shell's help and completion, and the stored form of a plan are all made of these lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

from dpsql.contract import parameters
from dpsql.contract.json import Json
from dpsql.contract.layout import MOST_FEATURES
from dpsql.contract.relation import NEIGHBOURS

REQUIRED = "required"


@dataclass(frozen=True)
class Argument:
    """One public argument.

    Attributes
    ----------
    name : str
    doc : str
        One or more sentences for users: the meaning, with unit and interval.
    default : object
        What it is where a call leaves it out.
    shown : str
        How help shows a default that is not a constant, such as `REQUIRED`.
    check : callable, optional
        Takes what was given, returns the checked value or raises. None: the plan judges it together with others.
    choices : tuple of str
        The words that it may be.
    exact : bool
        The checked value is a `Fraction`, which is stored as text.
    statistic : bool
        The exact statistic depends on it, so the function's ``exact_*`` form takes it too.
    column : str
        The column of the aggregate form that stands in its place: ``x``, ``y`` or ``p``.
    names_column : bool
        Its value is the name of a column of the table, or several.
    table_only : bool
        It says something about the columns of a table, so the aggregate form does not take it.
    stand_in : object
        What `dp_estimate` takes in its place where the noise does not depend on it.
    """

    name: str
    doc: str
    default: object = None
    shown: str = ""
    check: Callable[[object], object] | None = None
    choices: tuple[str, ...] = ()
    exact: bool = False
    statistic: bool = False
    column: str = ""
    names_column: bool = False
    table_only: bool = False
    stand_in: object = None

    @property
    def required(self) -> bool:
        """Whether every call must give it."""
        return self.shown == REQUIRED

    @property
    def shown_default(self) -> str:
        """What help shows of the default: a constant as SQL, or words; empty for none."""
        if self.shown or self.default is None:
            return self.shown
        if isinstance(self.default, bool):
            return str(self.default).lower()
        return repr(self.default)

    @property
    def meaning(self) -> str:
        """What help says: the meaning, and the words that it may be."""
        return f"{self.doc} One of {', '.join(map(repr, self.choices))}." if self.choices else self.doc

    def read(self, given: Mapping[str, object]) -> object:
        """Return the checked value of a call; None where an optional argument was left out.

        Raises
        ------
        ParameterError
            With the code and the legal form of the argument.
        """
        value = given[self.name]
        if self.check is None or (value is None and not self.required):
            return value
        return self.check(value)

    def restore(self, stored: Json) -> object:
        """Return the checked value that a plan's JSON holds."""
        if not self.exact or stored is None:
            return as_tuple(stored)
        return Fraction(parameters.known(str, stored))


class Signature(Mapping[str, Argument]):
    """The arguments of one function by their names, in the order of its SQL form.

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
        """What stands for the arguments that a call needs but its noise does not depend on."""
        return {name: argument.stand_in for name, argument in self.items() if argument.stand_in is not None}

    def fill(self, given: Mapping[str, object]) -> dict[str, object]:
        """Return every argument by its name: what was given, else the default."""
        return {name: argument.default if given.get(name) is None else given[name] for name, argument in self.items()}


def as_tuple(value: object) -> object:
    """Return a list of JSON as the tuple that was written."""
    return tuple(value) if isinstance(value, list) else value


# The kinds of arguments that many functions have.


def word(name: str, doc: str, options: tuple[str, ...], default: str) -> Argument:
    """Return an argument that is one of a few words."""
    return Argument(name, doc, default, check=partial(parameters.choice, name, options=options), choices=options)


def share(name: str, doc: str, default: float, *, hint: str) -> Argument:
    """Return an argument that is an exact number strictly between 0 and 1."""
    check = partial(parameters.open_unit_interval, name, hint=hint)
    return Argument(name, doc, default, check=check, exact=True)


def integer(
    name: str,
    doc: str,
    default: int | None = None,
    *,
    hint: str,
    most: int = parameters.MOST,
    shown: str = "",
    table_only: bool = False,
) -> Argument:
    """Return an argument that is an integer from 1 to `most`."""
    check = partial(parameters.positive_integer, name, hint=hint, most=most)
    return Argument(name, doc, default, check=check, shown=shown, table_only=table_only)


def rational(name: str, doc: str, default: float | None = None, *, hint: str) -> Argument:
    """Return an argument that is an exact number above 0."""
    return Argument(name, doc, default, check=partial(parameters.positive_number, name, hint=hint), exact=True)


def double(name: str, doc: str, default: float | None = None, *, hint: str, shown: str = "") -> Argument:
    """Return an argument that is a finite double above 0."""
    return Argument(name, doc, default, check=partial(parameters.positive_float, name, hint=hint), shown=shown)


def flag(name: str, doc: str, default: bool) -> Argument:
    """Return an argument that is true or false."""
    return Argument(name, doc, default, check=partial(parameters.boolean, name))


# Where the rows are.
TARGET = Argument(
    "target",
    "Name of the target's column: numeric, text or boolean.",
    shown=REQUIRED,
    names_column=True,
    statistic=True,
    column="y",
    stand_in="target",
)
FEATURES = Argument(
    "features",
    "Names of the feature columns, the name of one vector column, or in long rows the column that names the feature. "
    "release('name') takes what an earlier selection chose.",
    shown="every numeric column",
    names_column=True,
    statistic=True,
    column="x",
    stand_in="features",
)
N_FEATURES = Argument(
    "n_features", "Length of the vectors of a list column, from 1 to 1000000. It is public.", statistic=True
)
NAMES = Argument(
    "names",
    "Public names of the features, one per element of a vector; of long rows, the names that count.",
    statistic=True,
)
COLUMNS = (TARGET, FEATURES, N_FEATURES, NAMES)

# What is spent.
K = integer(
    "k",
    "Number of features to select, at least 1 and at most as many as there are.",
    hint="Give the number of features to select.",
    most=MOST_FEATURES,
    shown=REQUIRED,
)
EPSILON = Argument(
    "epsilon",
    "Privacy loss of the whole call, from 1e-15 to 1e12. 1.0 is usual.",
    shown=REQUIRED,
    check=parameters.epsilon,
    exact=True,
)
DELTA = Argument(
    "delta",
    "Chance that the guarantee fails, from 1e-300 to 0.1. Keep it far below one over the number of rows.",
    shown=REQUIRED,
    check=parameters.delta,
    exact=True,
)
OPTIONAL_DELTA = replace(
    DELTA,
    doc="Chance that the guarantee fails, from 1e-300 to 0.1. With it the noise is Gaussian, without it epsilon-DP.",
    shown="",
)

# Public bounds where values count.
LOWER = Argument(
    "lower",
    "Public lower bound of the features, in their own units: one number, a list with one per feature, or a struct by "
    "name. Smaller values count as the bound.",
    shown="required, or stated by the owner",
    statistic=True,
    stand_in=0,
)
UPPER = Argument(
    "upper",
    "Public upper bound of the features, given like lower and above it. Larger values count as the bound.",
    shown="required, or stated by the owner",
    statistic=True,
    stand_in=1,
)
TARGET_LOWER = Argument(
    "target_lower",
    "Public lower bound of a numeric target, one number in its own unit.",
    shown="required for a numeric target",
    statistic=True,
)
TARGET_UPPER = Argument(
    "target_upper",
    "Public upper bound of a numeric target, above target_lower.",
    shown="required for a numeric target",
    statistic=True,
)
TARGET_LEVELS = Argument(
    "target_levels",
    "The two public levels of a text target: the first is coded -1, the second +1, and any other value is neutral.",
    shown="required for a text target",
    statistic=True,
)
CLASSES = replace(
    TARGET_LEVELS,
    doc="The negative and the positive class of the label. Rows of neither count for nothing.",
    shown="[false, true], or [0, 1]",
)
BOUNDS = (LOWER, UPPER, TARGET_LOWER, TARGET_UPPER, TARGET_LEVELS)
# Of one column, or of two that share an interval.
COLUMN_BOUNDS = (
    replace(LOWER, doc="Public lower bound of the values, one number. Smaller values count as the bound."),
    replace(UPPER, doc="Public upper bound of the values, one number. Larger values count as the bound."),
)
# Of functions that draw private bounds where these are missing.
OPTIONAL_BOUNDS = (
    *(replace(one, shown="drawn privately", stand_in=None) for one in (LOWER, UPPER)),
    *(replace(one, shown="drawn privately") for one in (TARGET_LOWER, TARGET_UPPER)),
    TARGET_LEVELS,
)

# Whom the call protects, and what is charged.
NEIGHBOUR_RELATION = Argument(
    "neighbours",
    "The tables that must look alike: those that differ by one row (or one person) more, 'add_remove', or by one "
    "exchanged for another, 'replace'.",
    shown="'add_remove', or stated by the owner",
    check=partial(parameters.choice, "neighbours", options=NEIGHBOURS),
    choices=NEIGHBOURS,
)
PRIVACY_UNIT = Argument(
    "privacy_unit",
    "Name of the column of the id of the person to protect. Without it one row is protected.",
    names_column=True,
    statistic=True,
    table_only=True,
)
MAX_ROWS_PER_UNIT = Argument(
    "max_rows_per_unit",
    "Rows that one person may contribute, from 1 to 1000000000. A random choice of them counts.",
    shown="required with privacy_unit",
    statistic=True,
    table_only=True,
)
ROW_ID = Argument(
    "row_id",
    "Name of the column of the row's id in long rows, or of a stored unique id.",
    names_column=True,
    statistic=True,
    table_only=True,
)
VALUE = Argument(
    "value",
    "Name of the column of the value in long rows. Without it presence counts as 1.",
    names_column=True,
    statistic=True,
    table_only=True,
)
DATASET = Argument("dataset", "Name of the budget that is charged.", shown="the source's name")
RELEASE = Argument(
    "release",
    "Name of this release. The same call with the same name returns the stored result and costs nothing.",
)
# In a table whose rows stand side by side; long rows have a value besides.
COLUMN_PROTECTION = (NEIGHBOUR_RELATION, PRIVACY_UNIT, MAX_ROWS_PER_UNIT, ROW_ID, DATASET, RELEASE)
PROTECTION = (NEIGHBOUR_RELATION, PRIVACY_UNIT, MAX_ROWS_PER_UNIT, ROW_ID, VALUE, DATASET, RELEASE)


def stated(argument: Argument) -> Argument:
    """Return what a data owner states of an argument, for every call that does not give it."""
    return Argument(
        argument.name,
        f"For calls that leave it out: {argument.doc}",
        choices=argument.choices,
        names_column=argument.names_column,
    )

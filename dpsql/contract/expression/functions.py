"""Functions that SQL may call, by place: the one list for all SQL readers; and the arguments of functions on rows.

`functions.toml` has every function of DuckDB, with its places and the reason. A reader of SQL refuses a function
outside the places on the list.

An expression over one row calls functions with the place ``row``. Their entries here list the kinds of each argument
after DuckDB has typed the call; `Literal` marks arguments that must be literals from a list. Each entry has a reason:
why its arguments alone determine its result, and why a row can raise no error that DuckDB's TRY does not catch. TRY
does not catch "not implemented" errors of DuckDB: a date part that a type lacks, or ``%Z`` in `strptime`; so parts and
formats are literals from a list for each type. A generator tests the entries on extreme values on every version of
DuckDB (`tests/conformance/test_expressions.py`): a new entry needs no new test.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache
from importlib.resources import files

from dpsql.contract.expression.kinds import FLOATS, NUMBERS, SIGNED, TEXT, TIMES, TIMESTAMPS, UNSIGNED, ZONED_TIME, Type
from dpsql.dataclass import dataclass

Kinds = frozenset[str]
ROW, VIEW, POST, STRANGER = PLACES = ("row", "view", "post", "stranger")
_TYPES, _EVERYWHERE, _NOWHERE = "types", "everywhere", "nowhere"


@dataclass(frozen=True)
class ListedFunction:
    """A function of DuckDB, or of dpsql that a source may call.

    Attributes
    ----------
    group : str
        Group of functions with one rule and one reason.
    places : frozenset of str
        Places that may call it: ``row``, an expression over one row; ``view``, the text of a source; ``post``, over
        released and public rows; ``stranger``, a text that comes through the gateway.
    reason : str
    instead : str
        Replacement to write.
    """

    group: str
    places: frozenset[str]
    reason: str
    instead: str = ""


@cache
def _entries() -> Mapping[str, Mapping[str, object]]:
    return tomllib.loads(files(__package__).joinpath("functions.toml").read_text(encoding="utf-8"))


def _lists(entry: Mapping[str, object], newer: bool | None) -> Iterator[tuple[str, list[str]]]:
    """Yield an entry's lists for a version: True for DuckDB 2.0 and later, False for earlier, None for any."""
    for key, names in entry.items():
        prefix, _, only = key.partition("_only_")
        if isinstance(names, list) and (not only or newer is None or newer == (only == "2_0")):
            yield prefix, names


@cache
def listed(newer: bool | None = None) -> Mapping[str, ListedFunction]:
    """Return every function of the list, by its name in lower case.

    Parameters
    ----------
    newer : bool or None
        Only functions of DuckDB 2.0 and later, or only functions before; by default those of any version.
    """
    functions: dict[str, ListedFunction] = {}
    for group, entry in _entries().items():
        for key, names in _lists(entry, newer) if group != _TYPES else ():
            scopes = PLACES if key == _EVERYWHERE else () if key == _NOWHERE else key.split("_")
            function = ListedFunction(group, frozenset(scopes), str(entry["reason"]), str(entry.get("instead", "")))
            functions.update(dict.fromkeys(map(str.lower, names), function))
    return functions


def called_in(scope: str) -> frozenset[str]:
    """Return the functions that a place may call, on any version of DuckDB."""
    return frozenset(name for name, function in listed().items() if scope in function.places)


@cache
def types_of(newer: bool) -> frozenset[str]:
    """Return the names of DuckDB's types, from 2.0 on or before."""
    return frozenset(name for _, names in _lists(_entries()[_TYPES], newer) for name in names)


@dataclass(frozen=True)
class Literal:
    """An argument that must be a literal.

    Attributes
    ----------
    what : str
        Name of the argument in a message.
    words : mapping of str to frozenset of str
        Allowed words, in lower case, by the kind of the argument that they refer to.
    pattern : str
        Or a regular expression for the whole literal.
    examples : tuple of str
        Allowed literals for a pattern, for tests.
    kinds : frozenset of str
        Allowed kinds: text, or whole numbers, as SQL writes them.
    """

    what: str
    words: Mapping[str, frozenset[str]] = field(default_factory=dict)
    pattern: str = ""
    examples: tuple[str, ...] = ()
    kinds: Kinds = TEXT

    def takes(self, literal: object, others: Sequence[Type]) -> bool:
        """Return whether a literal is allowed; `others` are the types of the other arguments."""
        if not isinstance(literal, str):
            return False
        if self.pattern:
            return re.fullmatch(self.pattern, literal, re.S) is not None
        return any(literal.lower() in self.words.get(other.kind, ()) for other in others)

    def listed(self, others: Sequence[Type]) -> list[str]:
        """Return the allowed words next to arguments of these types."""
        return sorted({word for other in others for word in self.words.get(other.kind, ())})


@dataclass(frozen=True)
class Allowed:
    """Functions that accept the same arguments for the same reason.

    Attributes
    ----------
    names : tuple of str
    takes : tuple of frozenset of str or Literal
        Allowed kinds of each argument.
    because : str
        Why the functions are pure, total and local.
    alike : bool
        Whether all arguments but literals have one type.
    more : bool
        Whether the last argument may repeat.
    template : str
        SQL to write if a DuckDB setting could change the result: ``{call}`` is the call, ``{0}`` its first argument,
        ``{type0}`` the type of that argument.
    newer : str
        SQL from DuckDB 2.0 on, if different; else ``''``.
    """

    names: tuple[str, ...]
    takes: tuple[Kinds | Literal, ...]
    because: str
    alike: bool = False
    more: bool = False
    template: str = "{call}"
    newer: str = ""

    def fits(self, types: Sequence[Type]) -> bool:
        """Return whether the arguments' types fit; ignores literal values."""
        takes = self.takes
        if self.more and len(types) > len(takes):
            takes = (*takes, *takes[-1:] * (len(types) - len(takes)))
        if len(takes) != len(types) or not all(kind.known for kind in types):
            return False
        pairs = list(zip(takes, types, strict=True))
        values = {(kind.kind, kind.fields) for parameter, kind in pairs if not isinstance(parameter, Literal)}
        return all(
            kind.kind in (parameter.kinds if isinstance(parameter, Literal) else parameter) for parameter, kind in pairs
        ) and (not self.alike or len(values) <= 1)


def _words(*lines: str) -> frozenset[str]:
    return frozenset(" ".join(lines).split())


_INTEGER, _DOUBLE, _LARGE = frozenset(("INTEGER",)), frozenset(("DOUBLE",)), frozenset(("BIGINT",))
_DATES = frozenset(("DATE", "TIMESTAMP"))
_INTERVAL = frozenset(("INTERVAL",))
_LISTS = frozenset(("LIST",))
_ANY = frozenset((*NUMBERS, *TEXT, *TIMES, *TIMESTAMPS, "BOOLEAN", "BLOB", "BIT", "UUID", "DATE", "INTERVAL"))

# Date parts by type. TRY catches no error about a part that a type lacks.
_CLOCK = _words(
    "hour hours hr hrs h minute minutes min mins m second seconds sec secs s millisecond milliseconds ms msec msecs",
    "msecond mseconds microsecond microseconds us usec usecs usecond useconds epoch",
)
_CALENDAR = _words(
    "year years yr yrs y month months mon mons day days d dayofmonth decade decades dec decs century centuries cent c",
    "millennium millennia mil mils quarter quarters",
)
_WEEKS = _words("week weeks w weekofyear dow dayofweek weekday isodow doy dayofyear isoyear yearweek")
_OF_DATE = _CLOCK | _CALENDAR | _WEEKS | {"julian"}
_PART = Literal(
    "date part",
    {
        **dict.fromkeys(("DATE", "TIMESTAMP"), _OF_DATE | {"era"}),
        **dict.fromkeys(sorted(TIMES), _CLOCK),
        "INTERVAL": _CLOCK | _CALENDAR,
    },
)
_UNIT = Literal("date part", {**dict.fromkeys(("DATE", "TIMESTAMP", "INTERVAL"), _OF_DATE), "TIME": _CLOCK})
_FORMATTED = ("%Y-%m-%d", "%d.%m.%y %H:%M:%S.%f", "%-d/%-m/%Y %-I:%M %p", "%a %A %b %B %j %U %W %u %V %G %%")
_FORMAT = Literal("format", pattern=r"(?:[^%]|%-?[aAwdbBmyYHIpMSfgnjUWcxXzGVu]|%%)*", examples=_FORMATTED)
_PARSED = Literal("format", pattern=_FORMAT.pattern, examples=_FORMATTED[:3])
_PATTERN = Literal("regular expression", pattern=r".*", examples=("^[a-c]+", "(a|b)*c?", r"\d{2}:\d{2}", ""))
_WHOLE = Literal("text that is replaced", pattern=r".+", examples=(" ", "abc", "é", "%"))
_REPLACED = Literal("replacement: a text of at most 1000 characters", pattern=r".{0,1000}", examples=("", "_", "é" * 9))
_REFERENCE = Literal(
    "replacement: a text of at most 1000 characters without backslashes, or one group such as \\1",
    pattern=r"\\\d|[^\\]{0,1000}",
    examples=("", "\\0", "\\1", "é" * 9),
)
_LIKE = Literal("pattern beside ESCAPE", pattern=r".*", examples=("a!%%", "_b%", ""))
_ESCAPE = Literal("escape: one ASCII character", pattern=r"[\x01-\x7f]", examples=("!", "\\"))
_WIDTH = Literal("number of characters", pattern=r"\d{1,3}", examples=("0", "5", "999"), kinds=_INTEGER)
_GROUP = Literal("number of a group", pattern=r"\d", examples=("0", "1", "9"), kinds=_INTEGER)
_HOW = Literal("option of a regular expression", pattern="[cgilmnps]*", examples=("g", "gi", ""))
_OPTIONS = Literal("option of a regular expression", pattern="[cilmnps]*", examples=("i", "s", ""))

_DIGITS = "Arithmetic of one value; out of range is an error that TRY catches."
_SUM = "Arithmetic of two values; an overflow is an error that TRY catches."
_CALENDRICAL = "Computed from the Gregorian calendar alone; infinities give NULL."
_UNICODE = "By DuckDB's own tables of Unicode, which follow no locale."
_BYTES = "Compares or counts bytes and characters; no collation has a part in it."
_SEARCH = "RE2 takes time and memory in proportion to the text, and has no locale; a literal is compiled once."
_GROWTH = "A text that may be longer than 65,536 bytes is NULL, so that no number of such calls makes one too long."
_DOMAIN = (
    "Outside of its domain it is NaN or infinite, or an error that TRY catches: by DuckDB's version, not by a setting."
)


# With `ieee_floating_point_ops` off, DuckDB divides by zero, and takes undefined roots and logarithms, in other ways;
# from 2.0 on, `error_on_division_by_zero` is a setting, too. The written SQL computes DuckDB's default result.
def _divided(value: str, by: str, kind: str) -> str:
    """Return the quotient of doubles by IEEE 754, also by zero; the product with 1 or infinity is exact."""
    infinite = f"CASE WHEN system.main.signbit({by}) THEN '-inf'::{kind} ELSE 'inf'::{kind} END"
    return (
        f'system.main."*"(system.main."/"({value}, CASE WHEN {by} = 0 THEN 1::{kind} ELSE {by} END), '
        f"CASE WHEN {by} = 0 THEN {infinite} ELSE 1::{kind} END)"
    )


def _logarithm(value: str) -> str:
    return (
        f"(CASE WHEN {value} > 0 THEN system.main.ln({value}) WHEN {value} = 0 THEN '-inf'::DOUBLE "
        f"WHEN {value} < 0 THEN 'nan'::DOUBLE END)"
    )


_NULL_BY_ZERO = "CASE WHEN {1} <> 0 THEN {call} END"
_ERROR_BY_ZERO = (
    "CASE WHEN {1} <> 0 THEN {call} WHEN {1} = 0 AND {0} IS NOT NULL THEN CAST('division by zero' AS {type0}) END"
)
_NAN_BY_ZERO = """CASE WHEN {1} <> 0 THEN {call} ELSE system.main."*"(system.main."*"({0}, {1}), 'nan'::{type1}) END"""

FUNCTIONS: tuple[Allowed, ...] = (
    # Dates and times.
    Allowed(
        ("century", "day", "dayofmonth", "decade", "millennium", "month", "quarter", "year"),
        (_DATES | _INTERVAL,),
        _CALENDRICAL,
    ),
    Allowed(
        (
            *(
                "dayname",
                "dayofweek",
                "dayofyear",
                "era",
                "isodow",
                "isoyear",
                "julian",
                "last_day",
                "monthname",
                "week",
            ),
            *("weekday", "weekofyear", "yearweek"),
        ),
        (_DATES,),
        f"{_CALENDRICAL} Names are English. An INTERVAL has no such part, which TRY would not catch.",
    ),
    Allowed(
        ("epoch", "epoch_ms", "hour", "microsecond", "millisecond", "minute", "second"),
        (_DATES | TIMES | _INTERVAL,),
        _CALENDRICAL,
    ),
    Allowed(("epoch_ms",), (_LARGE,), _CALENDRICAL),
    Allowed(("date_part",), (_PART, _DATES | TIMES | _INTERVAL), f"{_CALENDRICAL} The part is one that its type has."),
    Allowed(("date_trunc",), (_UNIT, _DATES | _INTERVAL), f"{_CALENDRICAL} The part is one that its type has."),
    Allowed(
        ("date_diff", "date_sub"),
        (_UNIT, _DATES | {"TIME"}, _DATES | {"TIME"}),
        f"{_CALENDRICAL} The part is one that its type has.",
        alike=True,
    ),
    Allowed(
        ("strftime",), (_DATES | {"TIMESTAMP_NS"}, _FORMAT), "Names are English, and no format asks for a zone's name."
    ),
    Allowed(
        ("strftime",), (_FORMAT, _DATES | {"TIMESTAMP_NS"}), "Names are English, and no format asks for a zone's name."
    ),
    Allowed(
        ("strptime", "try_strptime"),
        (TEXT, _PARSED),
        "Text of another form is an error that TRY catches; of a zone's name (%Z) it would not be.",
    ),
    Allowed(
        ("age",),
        (frozenset(("TIMESTAMP",)), frozenset(("TIMESTAMP",))),
        f"{_CALENDRICAL} The difference in years, months, days and time.",
    ),
    Allowed(("make_date",), (_LARGE,) * 3, _CALENDRICAL, alike=True),
    Allowed(("make_date",), (_INTEGER,), _CALENDRICAL),
    Allowed(("make_timestamp",), (_LARGE,), _CALENDRICAL),
    Allowed(("make_timestamp",), (*(_LARGE,) * 5, _DOUBLE), _CALENDRICAL),
    # Numbers.
    Allowed(("abs", "sign"), (NUMBERS,), _DIGITS),
    Allowed(("-",), (NUMBERS | _INTERVAL,), _DIGITS),
    Allowed(("cbrt", "exp"), (_DOUBLE,), _DIGITS),
    Allowed(("ceil", "ceiling", "floor"), (FLOATS | {"DECIMAL"},), _DIGITS),
    Allowed(("round", "trunc"), (SIGNED | UNSIGNED | FLOATS | {"DECIMAL"},), _DIGITS),
    Allowed(("round", "trunc"), (SIGNED | UNSIGNED | FLOATS | {"DECIMAL"}, _INTEGER), _DIGITS),
    Allowed(("sqrt",), (_DOUBLE,), _DOMAIN, newer="CASE WHEN {0} >= 0 THEN {call} WHEN {0} < 0 THEN 'nan'::DOUBLE END"),
    Allowed(
        ("ln", "log", "log10", "log2"),
        (_DOUBLE,),
        _DOMAIN,
        newer="CASE WHEN {0} > 0 THEN {call} ELSE " + _logarithm("{0}") + " END",
    ),
    Allowed(
        ("log",),
        (_DOUBLE, _DOUBLE),
        _DOMAIN,
        newer="CASE WHEN {0} > 0 AND {0} <> 1 AND {1} > 0 THEN {call} ELSE "
        + _divided(_logarithm("{1}"), _logarithm("{0}"), "DOUBLE")
        + " END",
    ),
    Allowed(
        ("pow", "power"),
        (_DOUBLE, _DOUBLE),
        _DOMAIN,
        newer="CASE WHEN {0} = 0 AND {1} < 0 THEN "
        + _divided("1::DOUBLE", 'system.main.pow({0}, system.main."-"({1}))', "DOUBLE")
        + " ELSE {call} END",
    ),
    Allowed(("isfinite", "isinf"), (FLOATS | _DATES,), "Asks for one value."),
    Allowed(("isnan",), (FLOATS,), "Asks for one value."),
    Allowed(("+", "-", "*"), (NUMBERS, NUMBERS), _SUM),
    Allowed(
        ("/",),
        (FLOATS, FLOATS),
        f"{_SUM} Division by zero gives an infinity or NaN under every setting.",
        alike=True,
        template=_divided("{0}", "{1}", "{type1}"),
    ),
    Allowed(
        ("/",),
        (_INTERVAL, _DOUBLE),
        f"{_SUM} Division by zero is NULL or an error: by DuckDB's version, not by a setting.",
        template=_NULL_BY_ZERO,
        newer=_ERROR_BY_ZERO,
    ),
    Allowed(("%",), (FLOATS, FLOATS), f"{_SUM} Division by zero is NaN under every setting.", template=_NAN_BY_ZERO),
    Allowed(
        ("//", "%"),
        (NUMBERS, NUMBERS),
        f"{_SUM} Division by zero is NULL or an error: by DuckDB's version, not by a setting.",
        template=_NULL_BY_ZERO,
        newer=_ERROR_BY_ZERO,
    ),
    Allowed(("to_days", "to_months", "to_weeks", "to_years"), (_INTEGER,), _SUM),
    Allowed(("to_hours", "to_minutes"), (_LARGE,), _SUM),
    Allowed(("+",), (frozenset(("DATE",)), _INTEGER | _INTERVAL | {"TIME"}), _SUM),
    Allowed(("+",), (_INTEGER | _INTERVAL | {"TIME"}, frozenset(("DATE",))), _SUM),
    Allowed(("+",), (frozenset(("TIMESTAMP", "TIME", ZONED_TIME, "INTERVAL")), _INTERVAL), _SUM),
    Allowed(("+",), (_INTERVAL, frozenset(("TIMESTAMP", "TIME", ZONED_TIME))), _SUM),
    Allowed(("-",), (frozenset(("DATE",)), _INTEGER | _INTERVAL | {"DATE"}), _SUM),
    Allowed(("-",), (frozenset(("TIMESTAMP", "TIME", ZONED_TIME, "INTERVAL")), _INTERVAL), _SUM),
    Allowed(("-",), (frozenset(("TIMESTAMP",)), frozenset(("TIMESTAMP",))), _SUM),
    Allowed(
        ("normalized_interval",),
        (_INTERVAL,),
        "Days of 24 hours, months of 30 days: DuckDB calls it where intervals are compared.",
    ),
    Allowed(("*",), (_INTERVAL, _LARGE | _DOUBLE), _SUM),
    Allowed(("*",), (_LARGE | _DOUBLE, _INTERVAL), _SUM),
    Allowed(
        ("greatest", "least"), (_ANY,), "Picks one of its values by bytes, numbers or dates.", alike=True, more=True
    ),
    # Text, bytes and bits.
    Allowed(("lower", "upper", "strip_accents", "nfc_normalize"), (TEXT,), _UNICODE),
    Allowed(("ascii", "strlen", "ltrim", "rtrim", "trim"), (TEXT,), _BYTES),
    Allowed(("ltrim", "rtrim", "trim"), (TEXT, TEXT), _BYTES),
    Allowed(("len", "length"), (TEXT | _LISTS | {"BIT"},), _BYTES),
    Allowed(("left", "right", "substr", "substring"), (TEXT, _LARGE), _BYTES),
    Allowed(("substr", "substring"), (TEXT, _LARGE, _LARGE), _BYTES),
    Allowed(("contains", "ends_with", "instr", "prefix", "starts_with", "strpos", "suffix"), (TEXT, TEXT), _BYTES),
    Allowed(("~~", "~~*"), (TEXT, TEXT), "LIKE knows % and _ and no escapes, so every text is a pattern."),
    Allowed(
        ("like_escape", "not_like_escape", "ilike_escape", "not_ilike_escape"),
        (TEXT, _LIKE, _ESCAPE),
        "As LIKE; a pattern that ends in its escape is an error that TRY catches.",
    ),
    Allowed(("regexp_full_match", "regexp_matches"), (TEXT, _PATTERN), _SEARCH),
    Allowed(("regexp_full_match", "regexp_matches"), (TEXT, _PATTERN, _OPTIONS), _SEARCH),
    Allowed(("regexp_extract",), (TEXT, _PATTERN), f"{_SEARCH} A part of the text."),
    Allowed(("regexp_extract",), (TEXT, _PATTERN, _GROUP), f"{_SEARCH} A part of the text; a group is one of ten."),
    Allowed(("regexp_replace",), (TEXT, _PATTERN, _REFERENCE), f"{_SEARCH} {_GROWTH}"),
    Allowed(("regexp_replace",), (TEXT, _PATTERN, _REFERENCE, _HOW), f"{_SEARCH} {_GROWTH}"),
    Allowed(("replace",), (TEXT, _WHOLE, _REPLACED), f"{_BYTES} {_GROWTH}"),
    Allowed(("lpad", "rpad"), (TEXT, _WIDTH, TEXT), f"{_BYTES} As long as a literal says."),
    Allowed(("reverse",), (TEXT,), _UNICODE),
    Allowed(("||",), (TEXT | {"BLOB", "BIT", "LIST"},) * 2, "As long as its parts together.", alike=True),
    Allowed(("contains", "list_contains"), (_LISTS, _ANY), "Compares elements by their bytes or values."),
)
_NAMED: dict[str, list[Allowed]] = {}
for _function in FUNCTIONS:
    for _name in _function.names:
        _NAMED.setdefault(_name, []).append(_function)

# Functions that an expression calls after name replacement; AT TIME ZONE is read before typing.
CALLED = frozenset((*_NAMED, "timezone")) - {"normalized_interval"}
# Functions whose names are not signs.
KNOWN = frozenset(name for name in CALLED if name.isidentifier()) - {"timezone"}


def function_of(name: str, types: Sequence[Type]) -> Allowed | None:
    """Return the entry of a function for arguments of these types; None if no entry accepts them."""
    return next((entry for entry in _NAMED.get(name, ()) if entry.fits(types)), None)

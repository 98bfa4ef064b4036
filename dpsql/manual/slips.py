"""Find the next step after a refused statement, from its text and from public names.

DuckDB refuses most mistakes before a function of dpsql runs, in its own words. The shell, the commands and
`dpsql.Context` add the next step. A plain DuckDB connection raises DuckDB's error unchanged: nothing can change it
there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from dpsql.contract.names import ELSEWHERE, IN_SELECT, MEANT, OTHER_NAMES, did_you_mean, meant_argument
from dpsql.contract.parameters import fold, near_names
from dpsql.dataclass import dataclass
from dpsql.errors import DpsqlError, original
from dpsql.functions.registry import FUNCTIONS, QUERY
from dpsql.manual.catalogue import MANUAL, nearest

# A refused statement often has no syntax tree, and DuckDB 1.5 joins tokens where a quote is not closed.
_TOKEN = re.compile(r"""'(?:[^']|'')*'?|"(?:[^"]|"")*"?|--[^\n]*|:=|=>|::|\w+|\S""")
_NO_FUNCTION = re.compile(r'(?:Function|Table) with name "?(?P<name>\w+)"? does not exist')
_OTHER_KIND = re.compile(r'[Ff]unction "?(?P<name>\w+)"? is a (?:table|scalar|aggregate) function')
_NO_SUCH_FORM = re.compile(r"Macro (?P<name>\w+)\(\) does not support the supplied arguments")
_NO_COLUMN = re.compile(r"column '(?P<name>(?:[^']|'')+)'|'(?P<named>(?:[^']|'')+)' is not a column of the source")
_SUGGESTION = re.compile(
    r'\s*Did you mean "[^\n]*|\s*Candidate (?:macros|functions|bindings):.*?(?=\n\nLINE |\Z)', re.DOTALL
)
# A number, a list, a struct, or a call is not a name.
_NAME = re.compile(r"[A-Za-z_]\w*\Z")
_CONSTANTS = frozenset(("null", "true", "false"))

# Refusals of calls in the wrong form, or under another name.
_OF_FORM = ("DPSQL-P013", "DPSQL-P120")
# A query in dp_query whose quotes end it, or that has none; and SELECT of one call over one table.
_QUOTED_QUERY = re.compile(
    r"(?P<head>.*?\bdp_query\(\s*)(?P<quote>'?)(?P<query>\(?\s*(?:SELECT|FROM|WITH)\b.*?)(?P=quote)"
    r"(?P<rest>\s*(?:,\s*\w+\s*(?::=|=>)[^']*(?:'[^']*'[^']*)*)?\)\s*;?)",
    re.IGNORECASE | re.DOTALL,
)
_FILTERED = re.compile(
    r"(?:SELECT\s+\*\s+)?(?P<call>FROM\s+dp_\w+\((?:[^()]|\([^()]*\))*)\)\s+WHERE\s+(?P<where>.*?)\s*;?",
    re.IGNORECASE | re.DOTALL,
)
_SELECTED = re.compile(
    r"SELECT\s+(?:\w+\s*,\s*)?(?P<call>dp_\w+\(.*\))(?:\s+AS\s+\w+)?(?:\s+FROM\s+(?P<table>[\w.]+)"
    r"(?:\s+WHERE\s+(?P<where>.*?))?(?:\s+GROUP\s+BY\s+(?P<group>\w+))?)?\s*;?",
    re.IGNORECASE | re.DOTALL,
)
_PAIR = re.compile(r"[\[(]([^,\[\](){}]+),([^,\[\](){}]+)[\])]")  # both bounds in one list
_VIEW = "CREATE TEMP VIEW chosen AS "
_LONGEST_LINE = 400

# Number of columns of a source that a message lists, and characters of a call that it shows with all arguments.
_MOST_LISTED = 12
_LONGEST_FORM = 80
# The column by which people choose rows of a list.
_LISTS = {"dp_budget": "dataset", "dp_ledger": "dataset", "dp_models": "model"}
_QUERY = re.compile(r"'\s*\(?\s*(SELECT|FROM|WITH)\b", re.IGNORECASE)
_KEYS = (
    "keys is a list, such as keys := ['A', 'B'], or the name of a table that was declared public: "
    "SELECT dp_public('wards'), then keys := 'wards'."
)

Columns = Callable[[str], Iterable[str]]


@dataclass(frozen=True)
class _Argument:
    """One argument of a call: its name and sign, if any, the tokens of its value, and where these are."""

    name: str
    sign: str
    value: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]  # of the name and the sign, if any, and of the value

    @property
    def is_bare(self) -> bool:
        """Whether the value begins with an unquoted name that is not a call."""
        first = self.value[0] if self.value else ""
        return bool(_NAME.match(first)) and fold(first) not in _CONSTANTS and self.value[1:2] != ("(",)


@dataclass(frozen=True)
class _Called:
    """A call in a statement; `is_table` if it is in FROM, `is_closed` if its bracket is closed."""

    function: str
    arguments: tuple[_Argument, ...]
    is_table: bool
    is_closed: bool
    span: tuple[int, int]  # from the function's name to the closing bracket

    def value(self, name: str) -> _Argument | None:
        """Return the argument with a name."""
        return next(
            (argument for argument in self.arguments if argument.name == name and argument.sign in (":=", "=>")), None
        )


def mended(error: Exception, statement: str, columns: Columns | None = None) -> Exception:
    """Return the error to raise for a statement: dpsql's own error unwrapped, with the next step if known.

    Parameters
    ----------
    error : Exception
        An error of DuckDB or of dpsql.
    statement : str
        The SQL that ran.
    columns : callable, optional
        Maps a source to the names of its columns.
    """
    ours = error if isinstance(error, DpsqlError) else original(error)
    if ours is not None:
        return _with_column(ours, statement, columns)
    step = next_step(str(error), statement)
    if step is None:
        return error
    step += _line_to_write(statement)
    text = str(error)
    if _NO_SUCH_FORM.search(text) or _NO_FUNCTION.search(text):
        text = _SUGGESTION.sub("", text)  # similar names, or all arguments
    return type(error)(f"{text.rstrip()}\n\n{step}")


def slip_in(statement: str) -> str:
    """Return the next step that a statement's own text shows, for an error whose text may quote rows; else nothing."""
    step = next_step("", statement)
    return "" if step is None else f" {step}{_line_to_write(statement)}"


def next_step(message: str, statement: str) -> str | None:
    """Return the sentence that says how to fix a statement; None if unknown."""
    calls = tuple(_calls(statement))
    return next((step for look in _LOOKS if (step := look(message, calls, statement)) is not None), None)


def _with_column(error: DpsqlError, statement: str, columns: Columns | None) -> DpsqlError:
    """Return an error with the mistake that the calls show, or the intended column of a misspelt name."""
    calls = tuple(_calls(statement))
    step = next((step for look in _LOOKS_AT_CALLS if (step := look(str(error), calls, statement)) is not None), None)
    if step is not None:
        return error.saying(f"{error.message} {step}{_line_to_write(statement)}")
    if error.code in _OF_FORM and "'...'" in error.message:
        line = _line_to_write(statement)
        return error.saying(f"{error.message.partition(' Write ')[0] if line else error.message}{line}")
    sources = [
        call.arguments[0].value
        for call in calls
        if call.arguments and not call.arguments[0].name and call.arguments[0].value
    ]
    if columns is None or len(sources) != 1 or len(sources[0]) != 1:
        return error
    return with_column(error, lambda: columns(sources[0][0].strip("'")))


def with_column(error: DpsqlError, columns: Callable[[], Iterable[str]]) -> DpsqlError:
    """Return an error about a missing column, with similar names."""
    match = _NO_COLUMN.search(error.message)
    if error.code != "DPSQL-S002" or match is None or not re.search("Check the name|Compute it", error.message):
        return error
    word = (match["name"] or match["named"]).replace("''", "'")
    names = list(columns())
    if not names:
        return error
    listed = f"It has: {', '.join(names)}." if len(names) <= _MOST_LISTED else "Check the name."
    if error.message.startswith("condition's"):
        listed += " A text in a condition has quotes of its own: condition := 'ward = ''A'''."
    step = did_you_mean(word, names, listed)
    return error.saying(f"{error.message.partition('Check the name.')[0].rstrip()} {step}")


def no_method(on: str, name: str, methods: Collection[str]) -> str:
    """Return the message about a missing method, with similar methods.

    Parameters
    ----------
    on : str
        The object with the methods, such as ``'ctx'``.
    name : str
        The method as written, with or without ``dp_``.
    methods : collection of str
        The functions with methods.
    """
    meant = [function for function in nearest(name) if function in methods]
    suggestions = [f"{on}.{function if on == 'ctx' else function.removeprefix('dp_')}" for function in meant]
    return f"{on} has no {name}. " + (
        f"Did you mean {' or '.join(suggestions)}?" if suggestions else "help(dpsql.Context) lists what there is."
    )


def _calls(statement: str) -> Iterator[_Called]:
    """Yield the calls of the manual's functions in a statement, in order."""
    tokens = [token for token in _TOKEN.finditer(statement) if not token[0].startswith("--")]
    for index, token in enumerate(tokens):
        if index + 1 < len(tokens) and tokens[index + 1][0] == "(" and fold(token[0]).startswith(("dp_", "exact_")):
            parts, end = _split(tokens[index + 2 :])
            is_table = index > 0 and fold(tokens[index - 1][0]) in ("from", "join", ",", "call")
            span = token.start(), len(statement) if end is None else end
            yield _Called(fold(token[0]), tuple(map(_argument, parts)), is_table, end is not None, span)


def _split(tokens: Sequence[re.Match[str]]) -> tuple[list[list[re.Match[str]]], int | None]:
    """Return the tokens of each argument up to the end of a call, and where the call ends, if it does."""
    parts: list[list[re.Match[str]]] = [[]]
    depth = 0
    for token in tokens:
        sign = token[0]
        if sign == ")" and depth == 0:
            return [part for part in parts if part], token.end()
        depth += (sign in ("(", "[", "{")) - (sign in (")", "]", "}"))
        if sign == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part], None


def _argument(part: list[re.Match[str]]) -> _Argument:
    texts = tuple(token[0] for token in part)
    has_name = len(part) > 1 and texts[1] in (":=", "=>", "=", ":") and _NAME.match(texts[0].strip('"'))
    value = part[2:] if has_name else part
    end = (value[0].start(), value[-1].end()) if value else (part[-1].end(), part[-1].end())
    if not has_name:
        return _Argument("", "", texts, (end,))
    return _Argument(fold(texts[0].strip('"')), texts[1], texts[2:], (part[0].span(), part[1].span(), end))


def _line_to_write(statement: str) -> str:
    """Return the whole statement to write, after a space, where the slips in it have one remedy; else nothing."""
    line = rewritten(statement)
    return "" if line is None or len(line) > _LONGEST_LINE else f" Write {line.rstrip().rstrip(';')};"


def rewritten(statement: str) -> str | None:
    """Return a statement with its slips mended in the user's own words; None if no slip has one remedy."""
    quoted = _QUOTED_QUERY.fullmatch(statement.strip())
    if quoted is not None and (not quoted["quote"] or ("'" in quoted["query"] and "''" not in quoted["query"][:-1])):
        query = re.sub(r"\A\((.*)\)\Z", r"\1", quoted["query"].strip(), flags=re.DOTALL)
        return f"{quoted['head']}$${query.strip()}$${quoted['rest']}"
    edits = [edit for call in _calls(statement) for edit in _edits(call, statement)]
    if any(not text for _, text in edits):
        return None
    mended_text, views = statement, ""
    for (start, end), text in sorted(edits, reverse=True):
        if text.startswith(_VIEW):
            text, views = "'chosen'", f"{text} "
        mended_text = f"{mended_text[:start]}{text}{mended_text[end:]}"
    selected = _SELECTED.fullmatch(mended_text.strip())
    if selected is not None:
        return _as_table(selected) or (mended_text if edits else None)
    return f"{views}{mended_text}" if edits else None


def _edits(call: _Called, statement: str) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield the places of a call to write otherwise, with what to write there."""
    function = call.function
    if function not in MANUAL:
        close = [OTHER_NAMES[function].function] if function in OTHER_NAMES else nearest(function)
        if len(close) != 1 or not call.is_closed or function in ELSEWHERE:
            return
        function = close[0]
        yield (call.span[0], call.span[0] + len(call.function)), function
        needed = OTHER_NAMES[call.function].needed if call.function in OTHER_NAMES else {}
        for name in needed.keys() - {argument.name for argument in call.arguments}:
            yield (call.span[1] - 1, call.span[1] - 1), f", {name} := {needed[name]}"
    parameters = [*MANUAL[function].arguments]
    for position, argument in enumerate(call.arguments):
        span = argument.spans[-1]
        value = statement[slice(*span)]
        meant = [argument.name] if argument.name in parameters else [*MEANT.get(argument.name, ())]
        meant = meant if set(meant) <= set(parameters) else []
        meant = meant or near_names(argument.name, parameters, 1)
        ends = _PAIR.fullmatch(value)
        if len(meant) == 2 and ends is not None:
            yield (argument.spans[0][0], span[1]), f"{meant[0]} := {ends[1].strip()}, {meant[1]} := {ends[2].strip()}"
            continue
        if argument.name and argument.name not in parameters:
            yield argument.spans[0], meant[0] if len(meant) == 1 else ""  # none, or several: no remedy is the only one
        if argument.sign in ("=", ":"):
            yield (argument.spans[0][1], span[0]), " := "
        if meant == ["condition"] and argument.is_bare:
            yield span, _quoted(value)
        if position == 0 and not argument.name and value.startswith("(") and function != QUERY:
            yield span, f"{_VIEW}{value[1:-1].strip()};"
        if function in IN_SELECT and argument.is_bare and len(argument.value) == 1:
            yield span, _quoted(value)


def _quoted(sql: str) -> str:
    return "'{}'".format(sql.replace("'", "''"))


def _as_table(selected: re.Match[str]) -> str | None:
    """Return ``SELECT dp_avg(x) FROM t WHERE …`` as the call of a table; None if it is no such call."""
    (call,) = [*_calls(selected["call"])] or (None,)
    if call is None or call.function not in FUNCTIONS or not call.arguments or call.arguments[0].name:
        return None
    table, value = selected["table"], selected["call"][slice(*call.arguments[0].spans[-1])]
    rest = [selected["call"][argument.spans[0][0] : argument.spans[-1][1]] for argument in call.arguments[1:]]
    if not table:
        return f"FROM {selected['call']}" if value.startswith("'") else None
    distinct = re.fullmatch(r"DISTINCT\s+(\w+)", value, re.IGNORECASE) if call.function == "dp_count" else None
    if not (_NAME.match(value) or value == "*" or distinct):
        return None
    target = [] if call.function == "dp_count" else [f"target := '{value}'"]
    target += [f"distinct_of := '{distinct[1]}'"] if distinct else []
    more = {"condition": selected["where"], "by": selected["group"]}
    rest += [f"{name} := {_quoted(text.strip())}" for name, text in more.items() if text]
    rest += ["epsilon := 1.0"] * all(argument.name != "epsilon" for argument in call.arguments)
    return f"FROM {call.function}({', '.join([_quoted(table), *target, *rest])})"


def _unknown_function(message: str, calls: Sequence[_Called], statement: str) -> str | None:
    match = _NO_FUNCTION.search(message) or _OTHER_KIND.search(message)
    if match is None or not fold(match["name"]).startswith(("dp_", "exact_")):
        return None
    name = fold(match["name"])
    if name in MANUAL:
        return f"{name} is called as {_form(name)}."
    if name in ELSEWHERE:
        return ELSEWHERE[name]
    close = nearest(name)
    if not close:
        return "FROM dp_functions() lists the functions."
    return f"Did you mean {' or '.join(close)}? FROM dp_help('{close[0]}') explains it."


def _form(name: str) -> str:
    """Return the first form of a function's call, with its required arguments."""
    call = MANUAL[name].calls[0]
    if len(call) <= _LONGEST_FORM:
        return call
    head, _, rest = call.partition("(")
    needed = [part for part in rest.rstrip(")").split(", ") if ":=" not in part or part.endswith("…")]
    return f"{head}({', '.join([*needed, '...'])})"


def _filtered_list(call: _Called) -> str:
    """Return how to choose rows of a list of budgets, entries or models, from the arguments of a call."""
    [argument, *_] = call.arguments
    name = argument.name or _LISTS[call.function]
    return f"Write FROM {call.function}() WHERE {name} = {_join(argument.value)};"


def _unknown_argument(message: str, calls: Sequence[_Called], statement: str) -> str | None:
    refused = _NO_SUCH_FORM.search(message)
    reserved = re.search(r'syntax error at or near "(\w+)"', message)
    for call in calls:
        if call.function not in MANUAL or (refused is not None and call.function != fold(refused["name"])):
            continue
        parameters = list(MANUAL[call.function].arguments)
        first = call.arguments[0].name if call.arguments else ""
        if refused is not None and call.function in _LISTS and first in ("", *MANUAL[call.function].columns):
            return f"{call.function} has no such argument. {_filtered_list(call)}"
        for argument in call.arguments:
            is_reserved = reserved is not None and fold(reserved[1]) == argument.name
            is_meant = is_reserved or (refused is not None and argument.sign != "=")
            if is_meant and argument.name and argument.name not in parameters:
                return f"{call.function} has no argument {argument.name}. {meant_argument(argument.name, parameters)}"
    if refused is None or fold(refused["name"]) not in MANUAL:
        return None
    return f"{fold(refused['name'])} is called as {_form(fold(refused['name']))}."


def _equals(message: str, calls: Sequence[_Called], statement: str) -> str | None:
    for call in calls:
        parameters = MANUAL[call.function].arguments if call.function in MANUAL else ()
        for argument in call.arguments:
            if argument.sign in ("=", ":") and argument.value and (argument.name in parameters or not parameters):
                return f"An argument is given with := as in {argument.name} := {_join(argument.value)}."
    return None


def _positional(message: str, calls: Sequence[_Called], statement: str) -> str | None:
    for call in calls:
        if call.is_table and call.function in FUNCTIONS and len(call.arguments) > 1 and not call.arguments[1].name:
            return "Every argument but the source is given by name, as in epsilon := 0.5."
    return None


def _join(value: Sequence[str]) -> str:
    """Return a value as written, if it is short."""
    joined = "".join(value)
    return joined if len(value) <= 3 and len(joined) <= 40 else "..."


def _no_sign(message: str, calls: Sequence[_Called], statement: str) -> str | None:
    """Find an argument without its sign, or without the comma before it."""
    if "syntax error" not in message:
        return None
    for call in calls:
        parameters = MANUAL[call.function].arguments if call.function in MANUAL else ()
        for argument in call.arguments:
            first, *rest = argument.value or ("",)
            if not argument.name and rest and fold(first) in parameters and rest[0] not in "([.+-*/<>":
                return f"An argument is given with := as in {first} := {_join(rest)}."
            later = [index for index, token in enumerate(argument.value) if token in (":=", "=>") and index > 1]
            if later and fold(argument.value[later[0] - 1]) in parameters:
                return f"A comma is missing before {argument.value[later[0] - 1]}."
            if call.is_closed is False and any("'" in token and not _closed(token) for token in argument.value):
                return "A text is not closed: it begins and ends with a single quote, as in 'patients'."
    if any(not call.is_closed for call in calls):
        return "A bracket is not closed. A call ends with ), and a list with ]."
    return None


def _closed(token: str) -> bool:
    return len(token) > 1 and token.endswith("'") and token.count("'") % 2 == 0


def _unterminated(message: str, calls: Sequence[_Called], statement: str) -> str | None:
    if "unterminated quoted" not in message and "unterminated string" not in message:
        return None
    return "A text is not closed: it begins and ends with a single quote, as in 'patients'."


def _keys_of_a_query(message: str, calls: Sequence[_Called], statement: str) -> str | None:
    for call in calls:
        keys = call.value("keys")
        if keys is not None and _QUERY.match("".join(keys.value[:1])):
            return _KEYS
    return None


def _subquery(message: str, calls: Sequence[_Called], statement: str) -> str | None:
    for call in calls:
        for position, argument in enumerate(call.arguments):
            words = [fold(token) for token in argument.value[:2]]
            if words[:1] == ["select"] or words == ["(", "select"] or words == ["(", "from"]:
                if argument.name == "keys":
                    return _KEYS
                if position == 0 and not argument.name:
                    return (
                        f"A source is the name of a table or view. Make a view: CREATE TEMP VIEW chosen AS SELECT ..., "
                        f"then {call.function}('chosen', ...); or choose rows with condition := 'age > 40'."
                    )
                return f"{argument.name or 'An argument'} is a constant, not a subquery."
    return None


def _unquoted(message: str, calls: Sequence[_Called], statement: str) -> str | None:
    for call in calls:
        condition = call.value("condition")
        if condition is not None and condition.is_bare:
            return "A condition is a text in single quotes, as in condition := 'age > 40'."
        for position, argument in enumerate(call.arguments if call.function in MANUAL else ()):
            if not (argument.is_bare and len(argument.value) == 1 and f'"{argument.value[0]}"' in message):
                continue
            if argument.name:
                return f"A name is a text in single quotes: {argument.name} := '{argument.value[0]}'."
            if position == 0:
                return f"A name is a text in single quotes: {call.function}('{argument.value[0]}', ...)."
    return None


def _distinct(message: str, calls: Sequence[_Called], statement: str) -> str | None:
    if "is a Macro Function" not in message or not calls or calls[0].function not in MANUAL:
        return None
    return f"{calls[0].function} is called as {_form(calls[0].function)}."


def _result_column(message: str, calls: Sequence[_Called], statement: str) -> str | None:
    if "not found in FROM clause" not in message or not calls or calls[0].function not in MANUAL:
        return None
    name = calls[0].function
    parameters = MANUAL[name].arguments
    returned = f"{name} returns {', '.join(column for column in MANUAL[name].columns if ' ' not in column)}"
    if "details" in parameters:
        return f"{returned}, some of them with details := true alone."
    if "condition" not in parameters:
        return f"{returned}."
    filtered = _FILTERED.fullmatch(statement.strip())
    line = (
        f" Write {filtered['call']}, condition := {_quoted(filtered['where'].strip())});"
        if filtered is not None
        else ""
    )
    return (
        f"{returned}, and the columns of by. WHERE chooses rows of that result; condition := '...' chooses rows of the "
        f"source.{line}"
    )


def _setting(message: str, calls: Sequence[_Called], statement: str) -> str | None:
    match = re.search(r'unrecognized configuration parameter "(epsilon|delta|dataset)"', message)
    if match is None:
        return None
    return f"{match[1]} is an argument of each call. Write FROM dp_count('...', {match[1]} := ...);"


def _bare_word(message: str, calls: Sequence[_Called], statement: str) -> str | None:
    word = statement.strip().rstrip(";").strip()
    if "syntax error" not in message or not _NAME.match(word) or f"dp_{fold(word)}" not in MANUAL:
        return None
    return f"dp_{fold(word)} is called as {_form(f'dp_{fold(word)}')}."


def _query_in_quotes(message: str, calls: Sequence[_Called], statement: str) -> str | None:
    line = rewritten(statement)
    if line is None or f"{QUERY}($$" not in line or f"{QUERY}($$" in statement:
        return None
    return f"{QUERY} takes its SQL as one text. Between $$ and $$ a text may have quotes."


_LOOKS_AT_CALLS = (_equals, _positional, _keys_of_a_query)
_LOOKS = (
    _query_in_quotes,
    _unknown_function,
    _equals,
    _unknown_argument,
    _subquery,
    _unquoted,
    _unterminated,
    _no_sign,
    _result_column,
    _distinct,
    _bare_word,
    _setting,
)

"""Read an untrusted statement into private calls and SQL over their answers.

`read` turns the statement's tree into `dpsql.contract.query.nodes`. ``released_i`` replaces each call in FROM. A
statement that names tables is one call of `dp_query`, which carries its tree and none of its text. The SQL over the
answers is written anew from the nodes (`dpsql.contract.query.nodes`): the text itself never runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from decimal import Decimal, InvalidOperation

from dpsql.contract.parameters import fold, show
from dpsql.contract.query import condition
from dpsql.contract.query.cores import is_empty
from dpsql.contract.query.nodes import (
    Derived,
    Expr,
    From,
    Join,
    Nothing,
    Query,
    Select,
    SetOperation,
    Show,
    TableFunction,
    TableRef,
    query_sql,
)
from dpsql.contract.query.privacy_options import CALL, without_options
from dpsql.contract.query.tree import is_catalog, read_tree
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.functions.registry import QUERY
from dpsql.gateway.functions import CALLS, MOST_CALLS
from dpsql.gateway.problems import GatewayError
from dpsql.gateway.shape import check_shape, check_text, settings_of
from dpsql.rendering import identifier

MOST_ITEMS, DEEPEST_ARGUMENT, MOST_DIGITS = 10_000, 4, 40
# Arguments that the door sets itself, or does not offer.
_STATED = {
    "engine": "Ask the dataset by its name.",
    "release": "Equal questions are one release anyway.",
    "dataset": "Write SET dataset = '…'.",
}
# SQL over the answer of a statement that is one call. The schema keeps a WITH query from replacing the table.
WHOLE = 'SELECT * FROM "main"."released_0"'
SHOW_TABLES, DESCRIBE = "show_tables", "describe"
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)?", re.IGNORECASE | re.ASCII)
# No dataset has one of these schemas.
_OWN_SCHEMAS = frozenset(("main", "information_schema", "pg_catalog", "system", "temp"))


@dataclass(frozen=True)
class PrivateCall:
    """One private call.

    Attributes
    ----------
    function : str
        A private function, ``dp_budget``, ``dp_estimate``, ``dp_synthetic_rows``, ``show_tables`` or ``describe``.
    source : str or None
        Name of the dataset, as written.
    arguments : mapping
        JSON values by parameter: text, true, false, null and lists as they are, ``{"number": "0.5"}`` in decimals,
        ``{"struct": {…}}`` and ``{"release": "name"}``; a condition as ``{"condition": "…"}``, the tree of its text.
        ``dp_query`` has ``tree`` for `read_tree`, and no ``sql``; ``free`` if it can return no row.
    """

    function: str
    source: str | None
    arguments: Mapping[str, object]

    def to_json(self) -> dict[str, object]:
        """Return the call as a JSON object."""
        return {"function": self.function, "source": self.source, "arguments": dict(self.arguments)}


@dataclass(frozen=True)
class Statement:
    """One untrusted statement.

    Attributes
    ----------
    calls : tuple of PrivateCall
        Their answers are ``released_0``, ``released_1`` and so on.
    settings : mapping
        Session settings that a SET changes, by name; otherwise empty.
    post : str
        SQL over the answers, written anew; empty for a SET.
    """

    calls: tuple[PrivateCall, ...] = ()
    settings: Mapping[str, object] = field(default_factory=dict)
    post: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether its one call's answer is its result."""
        return self.post == WHOLE


def read(text: str, parse: Callable[[str], str]) -> Statement:
    """Read a statement.

    Parameters
    ----------
    text : str
    parse : callable
        Returns a text's tree as ``json_serialize_sql`` does.

    Raises
    ------
    GatewayError
        G001 to G016: the statement is refused.
    """
    check_text(text)
    settings = settings_of(text)
    if settings is not None:
        return Statement(settings=settings)
    tree = parse(text)
    walk = _Walk(parse)
    call = _catalog_call(tree)
    if call is not None:
        return Statement((call,), post=WHOLE)
    try:
        aggregates = check_shape(tree)
    except GatewayError as error:
        if error.position is not None:
            error.position = _characters(text.encode(), error.position)
        raise
    query = _nodes(tree)
    rest = walk.query(query, frozenset())
    post = _query_text(rest)
    if not walk.tables:
        return Statement(tuple(walk.calls), post=WHOLE if _is_whole(rest) else post)
    if walk.calls:
        raise GatewayError(
            "G006", f"{show(walk.tables[0])} stands beside a private call. Ask one of both, or dp_query in FROM."
        )
    return Statement((_plain(_lean(tree, text), query, aggregates, walk.tables[0]),), post=WHOLE)


def _plain(tree: str, query: Query, aggregates: bool, table: str) -> PrivateCall:
    free = is_empty(query)
    if not (free or aggregates or _groups(query)):
        raise GatewayError(
            "G006",
            f"the statement returns rows of {show(table)}. Ask an aggregate.",
            hint=f"SELECT count(*) FROM {table if _PLAIN.fullmatch(table) else identifier(table)}",
        )
    return PrivateCall(QUERY, None, {"tree": tree, **_options(query, tree), **({"free": True} if free else {})})


def _options(query: Query, tree: str) -> dict[str, object]:
    """Return the arguments that the statement's privacy options state; they go before the session's settings."""
    if CALL not in tree:
        return {}
    try:
        _, options = without_options(query)
    except ParameterError as error:
        raise GatewayError("G012", error.message) from None
    return {name: {"number": _decimal(str(number), name)} for name, number in options.arguments.items()}


def _lean(tree: str, text: str) -> str:
    """Return a tree without NULLs, with text positions in characters instead of bytes."""
    content, ascii = text.encode(), text.isascii()

    def compact(record: dict[str, object]) -> dict[str, object]:
        fields = {
            name: value for name, value in record.items() if value is not None and name != "query_location_length"
        }
        offset = fields.pop("query_location", None)
        if type(offset) is int and 0 <= offset < len(content):
            fields["query_location"] = offset if ascii else _characters(content, offset)
        return fields

    return json.dumps(json.loads(tree, object_hook=compact), separators=(",", ":"))


def _characters(content: bytes, offset: int) -> int:
    """Return the number of characters before a byte offset of a text."""
    return len(content[:offset].decode(errors="ignore"))


def _query_text(query: Query) -> str:
    try:
        return query_sql(query)
    except ParameterError as error:
        raise GatewayError("G008", f"the statement is not written whole: {error.message}") from None


def _groups(query: Query) -> bool:
    if isinstance(query, SetOperation):
        return any(map(_groups, query.parts))
    return isinstance(query, Select) and bool(query.groups or query.group_all or query.modifiers.distinct)


def _released(number: int, alias: str, columns: tuple[str, ...] = ()) -> TableRef:
    # The schema keeps a WITH query from replacing the table.
    return TableRef(("", "main", f"released_{number}"), alias or f"released_{number}", columns)


def _is_whole(query: Query) -> bool:
    """Return whether a query is all of a released table, under any alias."""
    source = query.source if isinstance(query, Select) else None
    if not isinstance(source, TableRef):
        return False
    return query == Select(items=(Expr("star"),), source=_released(0, source.alias))


def _nodes(tree: str) -> Query:
    try:
        return read_tree(tree)
    except ParameterError as error:
        if "nested too deeply" in error.message or "of more than" in error.message:
            raise GatewayError("G003", "the statement is too large. Ask a shorter one.") from None
        raise GatewayError("G008", f"the statement is not read whole: {error.message}") from None


def _catalog_call(tree: str) -> PrivateCall | None:
    """Return the call of SHOW TABLES or of DESCRIBE, if this is the statement."""
    if '"SHOW_REF"' not in tree:  # no other statement is read twice
        return None
    try:
        query = read_tree(tree)
    except ParameterError:
        return None
    if query != Select(items=(Expr("star"),), source=query.source if isinstance(query, Select) else Nothing()):
        return None
    source = query.source
    if not isinstance(source, Show):
        return None
    if source.query is None and source.name == "tables" and source.kind != "SHOW_FROM":
        return PrivateCall(SHOW_TABLES, None, {})
    inner = source.query
    if isinstance(inner, Select) and isinstance(inner.source, TableRef):
        name = _table_name(inner.source.names)
        if inner == Select(items=(Expr("star"),), source=TableRef(inner.source.names)) and name is not None:
            return PrivateCall(DESCRIBE, name, {})
    return None


def _table_name(names: tuple[str, str, str]) -> str | None:
    """Return a table's name in grants; None for a name with a catalog or with a DuckDB schema."""
    catalog, schema, name = names
    if catalog or fold(schema) in _OWN_SCHEMAS:
        return None
    return f"{schema}.{name}" if schema else name


class _Walk:
    """Checks the nodes of a statement, and extracts its calls.

    Parameters
    ----------
    parse : callable
        Returns the tree of a text.
    """

    def __init__(self, parse: Callable[[str], str]) -> None:
        self._parse = parse
        self.calls: list[PrivateCall] = []
        self.tables: list[str] = []

    def query(self, query: Query, withs: frozenset[str]) -> Query:
        """Return a query with released tables for its calls.

        Parameters
        ----------
        query : Query
        withs : frozenset of str
            Folded names of the WITH queries before it.
        """
        own = []
        for with_query in query.withs:
            own.append(replace(with_query, query=self.query(with_query.query, withs)))
            withs = withs | {fold(with_query.name)}
        modifiers = replace(
            query.modifiers,
            distinct_on=tuple(self._expr(expression, withs) for expression in query.modifiers.distinct_on),
            orders=tuple(
                replace(order, expression=self._expr(order.expression, withs)) for order in query.modifiers.orders
            ),
            limit=self._maybe(query.modifiers.limit, withs),
            offset=self._maybe(query.modifiers.offset, withs),
        )
        if isinstance(query, SetOperation):
            parts = tuple(self.query(part, withs) for part in query.parts)
            return replace(query, withs=tuple(own), modifiers=modifiers, parts=parts)
        if not isinstance(query, Select):
            raise GatewayError("G008", "the statement is of an unknown kind. Ask one SELECT.")
        return replace(
            query,
            withs=tuple(own),
            modifiers=modifiers,
            items=tuple(self._expr(item, withs) for item in query.items),
            source=self._source(query.source, withs),
            where=self._maybe(query.where, withs),
            groups=tuple(self._expr(group, withs) for group in query.groups),
            having=self._maybe(query.having, withs),
            qualify=self._maybe(query.qualify, withs),
        )

    def _maybe(self, expr: Expr | None, withs: frozenset[str]) -> Expr | None:
        return None if expr is None else self._expr(expr, withs)

    def _expr(self, expr: Expr, withs: frozenset[str]) -> Expr:
        if expr.what in ("lambda", "collate"):
            raise GatewayError("G008", f"{expr.what} is not taken here. Write the statement without it.")
        changed = expr.mapped(lambda part: self._expr(part, withs))
        return changed if expr.query is None else replace(changed, query=self.query(expr.query, withs))

    def _source(self, source: From, withs: frozenset[str]) -> From:
        if isinstance(source, Nothing):
            return source
        if isinstance(source, Join):
            left, right = (self._source(side, withs) for side in (source.left, source.right))
            return replace(source, left=left, right=right, condition=self._maybe(source.condition, withs))
        if isinstance(source, Derived):
            return replace(source, query=self.query(source.query, withs))
        if isinstance(source, TableFunction):
            return self._call(source)
        if isinstance(source, TableRef):
            return self._table(source, withs)
        raise GatewayError("G005", "this is not taken in FROM. Write SHOW TABLES or DESCRIBE alone.")

    def _table(self, source: TableRef, withs: frozenset[str]) -> From:
        name = _table_name(source.names)
        if name is None:
            spelling = ".".join(filter(None, source.names))
            raise GatewayError(
                "G014", f"{show(spelling)} is not the name of a dataset. Write one that SHOW TABLES shows."
            )
        if source.names[1] or fold(name) not in withs:
            if is_catalog(source.names):
                raise GatewayError("G006", f"{show(name)} is a view of the catalog. Write SHOW TABLES or DESCRIBE.")
            self.tables.append(name)
        return source

    def _call(self, source: TableFunction) -> From:
        function = source.call.name
        call = self._read_call(function, self._arguments(source.call))
        if call not in self.calls:
            self.calls.append(call)
        if len(self.calls) > MOST_CALLS:
            raise GatewayError("G003", f"there are more than {MOST_CALLS} private calls. Ask some of them apart.")
        return _released(self.calls.index(call), source.alias or function, source.columns)

    def _arguments(self, call: Expr) -> dict[str, Expr]:
        """Return the arguments of a call by parameter."""
        if call.flag or call.filter is not None or call.orders:
            raise GatewayError("G012", f"{call.name} takes arguments alone. Leave DISTINCT, FILTER and ORDER BY out.")
        parameters = CALLS[call.name]
        arguments: dict[str, Expr] = {}
        names = call.names or tuple(argument.alias for argument in call.parts)  # DuckDB 1.5 has them as aliases
        for index, (name, part) in enumerate(zip(names, call.parts, strict=True)):
            parameter = fold(name) if name else (parameters[index] if index < len(parameters) else "")
            if parameter not in parameters:
                label = show(name) if name else f"argument {index + 1}"
                step = f"Its arguments: {', '.join(parameters)}." if parameters else "It takes none."
                raise GatewayError("G012", f"{call.name} has no {label}. {step}")
            if parameter in arguments:
                raise GatewayError("G012", f"{call.name} has {parameter} twice. State it once.")
            arguments[parameter] = part
        return arguments

    def _read_call(self, function: str, expressions: Mapping[str, Expr]) -> PrivateCall:
        for name, instead in _STATED.items():
            if name in expressions and name not in CALLS[function][:1]:
                raise GatewayError("G016", f"{name} is not stated in a call here. {instead}")
        arguments = {name: _literal(part, name) for name, part in expressions.items()}
        if isinstance(text := arguments.get("condition"), str):
            arguments["condition"] = {"condition": _lean(self._parse(condition.QUERY + text), "")}
        if "source" in CALLS[function]:
            source = arguments.pop("source", None)
            if not isinstance(source, str):
                raise GatewayError("G014", f"{function} needs the name of one dataset in quotes. Write SHOW TABLES.")
            return PrivateCall(function, source, arguments)
        if function == QUERY:
            return PrivateCall(function, None, self._query_arguments(arguments))
        return PrivateCall(function, None, arguments)

    def _query_arguments(self, arguments: dict[str, object]) -> dict[str, object]:
        """Return the arguments of dp_query with a tree for the text."""
        text = arguments.pop("sql", None)
        if not isinstance(text, str):
            raise GatewayError("G012", "dp_query takes one SELECT as a text. Write it in quotes.")
        tree = self._parse(text)
        try:
            aggregates = check_shape(tree)
        except GatewayError as error:
            error.position = None  # it is in the text of an argument
            raise
        query = _nodes(tree)
        inner = _Walk(self._parse)
        _query_text(inner.query(query, frozenset()))
        if inner.calls or not inner.tables:
            raise GatewayError("G012", "dp_query takes a SELECT of tables. Ask private calls in FROM, outside of it.")
        options = _plain(_lean(tree, ""), query, aggregates, inner.tables[0]).arguments
        for name in options.keys() & arguments.keys():
            if arguments[name] != options[name]:
                raise GatewayError("G012", f"{name} differs in OPTIONS and in the call. State one of them.")
        return {**arguments, **options}


def _literal(expr: Expr, name: str, deep: int = 0) -> object:
    if deep > DEEPEST_ARGUMENT:
        raise GatewayError("G003", f"{name} is nested deeper than {DEEPEST_ARGUMENT} levels. State it flatter.")
    if expr.what == "constant":
        if expr.name == "number":
            return {"number": _decimal(str(expr.value), name)}
        return {"string": expr.value, "boolean": expr.value == "true"}.get(expr.name)
    if expr.what == "call" and not (expr.flag or expr.filter or expr.orders):
        if expr.name in ("-", "+") and len(expr.parts) == 1:
            inner = _literal(expr.parts[0], name, deep)
            if isinstance(inner, dict) and "number" in inner and not str(inner["number"]).startswith("-"):
                return {"number": f"-{inner['number']}"} if expr.name == "-" else inner
        if expr.name == "list_value" and not expr.names:
            if len(expr.parts) > MOST_ITEMS:
                raise GatewayError("G003", f"{name} has more than {MOST_ITEMS} items. State fewer.")
            return [_literal(part, name, deep + 1) for part in expr.parts]
        if expr.name == "struct_pack" and len(expr.names) == len(expr.parts):
            pairs = zip(expr.names, expr.parts, strict=True)
            return {"struct": {label: _literal(part, name, deep + 1) for label, part in pairs}}
        if expr.name == "release" and [(part.what, part.name) for part in expr.parts] == [("constant", "string")]:
            return {"release": expr.parts[0].value}
    raise GatewayError("G012", f"{name} is no literal. Write a number, a text, true, NULL, or a list of them.")


def _decimal(text: str, name: str) -> str:
    """Return a number in decimals, one spelling for equal numbers."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise GatewayError("G012", f"{name} is no number. Write it in decimals.") from None
    sign, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int) or len(digits) > MOST_DIGITS or abs(number.adjusted()) > 400:
        raise GatewayError("G003", f"{name} has more than {MOST_DIGITS} digits. Write it shorter.")
    while len(digits) > 1 and digits[-1] == 0:
        digits, exponent = digits[:-1], exponent + 1
    if digits == (0,):
        return "0"
    return (
        format(Decimal((sign, digits, exponent)), "f")
        if -40 <= exponent <= 40
        else str(Decimal((sign, digits, exponent)))
    )

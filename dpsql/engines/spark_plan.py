"""The origin of rows in a plan of Spark: from a client of Spark Connect, or from the driver's JVM.

A client has its own plan, as it sends the plan. The client does not see the plans of the server's views and of SQL
queries. The JVM shows its analysed plan, which includes views and queries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from dpsql.contract.names import parts_of
from dpsql.contract.parameters import fold
from dpsql.contract.query.condition import columns_of
from dpsql.dataclass import dataclass
from dpsql.engines.provenance import Passed, Provenance, Scan, UnseenError, scan_of_files, union
from dpsql.errors import ParameterError

# Functions whose value in a row follows from their arguments in that row, by a client's names.
_FUNCTIONS = frozenset(
    (
        *("+", "-", "*", "/", "%", "=", "==", "<=>", "!=", "<>", "<", "<=", ">", ">=", "and", "or", "not", "!", "in"),
        *("abs", "between", "ceil", "char_length", "coalesce", "concat", "contains", "date_add", "date_sub"),
        *("datediff", "day", "dayofmonth", "dayofweek", "dayofyear", "endswith", "exp", "floor", "greatest", "hour"),
        *("ifnull", "ilike", "isnan", "isnotnull", "isnull", "least", "length", "like", "ln", "log", "log10", "log2"),
        *("lower", "ltrim", "minute", "month", "nanvl", "negative", "nullif", "nvl", "pow", "power", "quarter"),
        *("rlike", "round", "rtrim", "second", "sign", "signum", "sqrt", "startswith", "substr", "substring", "trim"),
        *("upper", "when", "year"),
    )
)
# The same for the JVM, as classes of expressions in Spark's own package.
_PACKAGE = "org.apache.spark.sql.catalyst.expressions."
_CLASSES = frozenset(
    (
        *("Abs", "Add", "Alias", "And", "AttributeReference", "Between", "CaseWhen", "Cast", "Ceil", "Coalesce"),
        *("CommonExpressionDef", "CommonExpressionRef", "Concat", "Contains", "DateAdd", "DateDiff", "DateSub"),
        *("DayOfMonth", "DayOfWeek", "DayOfYear", "Divide", "EndsWith", "EqualNullSafe", "EqualTo", "Exp", "Floor"),
        *("GreaterThan", "GreaterThanOrEqual", "Greatest", "Hour", "If", "In", "InSet", "IsNaN", "IsNotNull", "IsNull"),
        *("Least", "Length", "LessThan", "LessThanOrEqual", "Like", "Literal", "Log", "Log10", "Log2", "Logarithm"),
        *("Lower", "Minute", "Month", "Multiply", "NaNvl", "Not", "Or", "Pow", "Quarter", "RLike", "Remainder"),
        *("Round", "Second", "Signum", "Sqrt", "StartsWith", "StringTrim", "StringTrimLeft", "StringTrimRight"),
        *("Substring", "Subtract", "UnaryMinus", "Upper", "With", "Year"),
    )
)
# File formats whose rows Spark reads once.
_FORMATS = frozenset(("avro", "csv", "json", "orc", "parquet"))
# Relations that read each row of a catalog table once; a relation of changes, such as Delta's, does not.
_READERS = frozenset(("HadoopFsRelation", "JDBCRelation"))
# Words of a condition that may precede a bracket.
_BEFORE_BRACKETS = frozenset(("and", "or", "not", "in", "between", "like", "ilike", "when", "then", "else", "case"))
# Strings of a condition that Spark and DuckDB read alike, and the characters allowed outside strings.
_STRINGS = re.compile(r"(?<![\w\"`$])'[^'\\]*'", re.ASCII)
_PLAIN = re.compile(r"(?:[\w\s<>=!|/:+*%(),.-]|'')*", re.ASCII)
_PATTERN = re.compile(r"[*?\[\]{}]")
Names: TypeAlias = Callable[[Any], Sequence[str]]
Table: TypeAlias = Callable[[str], "tuple[str, ...] | None"]


def files_of(paths: Iterable[str]) -> Scan:
    """Return a scan of paths.

    Raises
    ------
    UnseenError
        A pattern next to other paths may match the same files.
    SourceError
        S052: the paths name a file twice.
    """
    plain = [re.sub(r"(?<!:)/+", "/", re.sub("^file:/+", "/", path)).rstrip("/") for path in paths]
    if len(plain) > 1 and any(map(_PATTERN.search, plain)):
        raise UnseenError("a pattern of file names beside another path")
    if not plain:
        raise UnseenError("a read without files")
    return scan_of_files(plain)


@dataclass(frozen=True)
class ConnectReader:
    """A reader of plans from a client of Spark Connect.

    Parameters
    ----------
    table : callable
        Returns the full name of a catalog table; None for a view.
    names : callable
        Returns the column names of a relation of a plan.
    """

    table: Table
    names: Names

    def rows(self, relation: Any) -> Provenance:
        """Return the origin of a relation's rows; this reads no row.

        Raises
        ------
        UnseenError
            It has an operator or a function outside the list.
        SourceError
            S052: it reads a file twice.
        """
        kind = relation.WhichOneof("rel_type")
        rule = getattr(self, f"_{kind}", None)
        if kind is None or rule is None:
            raise UnseenError(str(kind))
        origin: Provenance = rule(getattr(relation, kind), relation)
        return origin

    def _read(self, read: Any, relation: Any) -> Provenance:
        if read.is_streaming:
            raise UnseenError("a stream")
        if read.WhichOneof("read_type") == "named_table":
            if read.named_table.options:  # such as Delta's readChangeFeed, which gives a row per change of a row
                raise UnseenError("a table with options")
            path = self.table(read.named_table.unparsed_identifier)
            if path is None:
                raise UnseenError("a view by its name")
            return Provenance.of(Scan(path), self.names(relation))
        source = read.data_source
        if source.format not in _FORMATS or source.predicates:
            raise UnseenError(f"a read of format {source.format}")
        if {"path", "paths"} & {name.lower() for name in source.options}:
            raise UnseenError("a path among the options of a read")
        return Provenance.of(files_of(source.paths), self.names(relation))

    def _local_relation(self, _: Any, relation: Any) -> Provenance:
        return Provenance.of(Scan(), self.names(relation))

    _cached_local_relation = _chunked_cached_local_relation = _range = _local_relation

    def _filter(self, filtered: Any, _: Any) -> Provenance:
        below = self.rows(filtered.input)
        if filtered.condition.WhichOneof("expr_type") == "expression_string":
            _refuse_text(filtered.condition.expression_string.expression, below)
        else:
            self._refuse(filtered.condition, below)
        return below

    def _project(self, projected: Any, _: Any) -> Provenance:
        below = self.rows(projected.input)
        columns: list[Passed] = []
        for expression in projected.expressions:
            if expression.WhichOneof("expr_type") == "unresolved_star":
                if expression.unresolved_star.unparsed_target:
                    raise UnseenError("a star of another relation")
                columns += below.columns
            else:
                columns.append(self._passed(expression, below))
        return below.select(columns)

    def _with_columns(self, changed: Any, _: Any) -> Provenance:
        below = self.rows(changed.input)
        columns = [self._aliased(alias, below) for alias in changed.aliases]
        return below.select(_replaced(below.columns, columns))

    def _with_columns_renamed(self, changed: Any, _: Any) -> Provenance:
        below = self.rows(changed.input)
        pairs = [(rename.col_name, rename.new_col_name) for rename in changed.renames]
        names = {fold(old): new for old, new in [*changed.rename_columns_map.items(), *pairs]}
        if len(names) < len(pairs) or {*map(fold, names.values())} & names.keys():
            raise UnseenError("a chain of new names")
        return below.select((names.get(fold(name), name), passed) for name, passed in below.columns)

    def _to_df(self, renaming: Any, _: Any) -> Provenance:
        below = self.rows(renaming.input)
        if len(renaming.column_names) != len(below.columns):
            raise UnseenError("other numbers of names")
        return below.select(
            (name, column[1]) for name, column in zip(renaming.column_names, below.columns, strict=True)
        )

    def _drop(self, dropped: Any, _: Any) -> Provenance:
        below = self.rows(dropped.input)
        gone = {fold(name) for name in dropped.column_names}
        for column in dropped.columns:
            gone.add(fold(self._passed(column, below)[0]))
        return below.select(passed for passed in below.columns if fold(passed[0]) not in gone)

    def _same_rows(self, same: Any, _: Any) -> Provenance:
        return self.rows(same.input)

    _subquery_alias = _repartition = _sort = _same_rows

    def _set_op(self, union: Any, _: Any) -> Provenance:
        plain = union.is_all and not union.by_name and not union.allow_missing_columns
        if not plain or union.set_op_type != type(union).SET_OP_TYPE_UNION:
            raise UnseenError("a set operation other than the union of all rows")
        return self.rows(union.left_input).together(self.rows(union.right_input))

    def _aliased(self, alias: Any, below: Provenance) -> Passed:
        if len(alias.name) != 1:
            raise UnseenError("an expression of several columns")
        return alias.name[0], self._passed(alias.expr, below)[1]

    def _passed(self, expression: Any, below: Provenance) -> Passed:
        """Return an expression's name, and its source column or None."""
        kind = expression.WhichOneof("expr_type")
        if kind == "alias":
            return self._aliased(expression.alias, below)
        if kind in ("unresolved_attribute", "expression_string"):
            name = _column(expression, kind, below)
            attribute = next((column for column in below.columns if fold(column[0]) == fold(name[-1])), None)
            is_whole = attribute is not None and len(name) == 1
            return (attribute[0] if attribute and is_whole else name[-1]), below.column(name[0]) if is_whole else None
        self._refuse(expression, below)
        return "", None

    def _refuse(self, expression: Any, below: Provenance) -> None:
        """Raise unless an expression's value in a row follows from that row."""
        kind = expression.WhichOneof("expr_type")
        if kind in ("unresolved_attribute", "expression_string"):
            _column(expression, kind, below)
        elif kind == "unresolved_function":
            function = expression.unresolved_function
            if function.function_name.lower() not in _FUNCTIONS or function.is_distinct:
                raise UnseenError(f"{function.function_name}()")
            for argument in function.arguments:
                self._refuse(argument, below)
        elif kind == "alias":
            self._refuse(expression.alias.expr, below)
        elif kind == "cast":
            self._refuse(expression.cast.expr, below)
        elif kind != "literal":
            raise UnseenError(str(kind))


def _refuse_text(text: str, below: Provenance) -> None:
    """Raise unless a text is a condition that calls accept, of a relation's columns and listed functions.

    Spark reads the text, and DuckDB reads it here. So the text may only have words, numbers, strings and signs that
    both read alike: no backslashes, comments, other quotes or prefixes of strings.
    """
    plain = _STRINGS.sub(" '' ", text)
    try:
        if _PLAIN.fullmatch(plain) is None or "--" in plain or "/*" in plain:
            raise UnseenError("an expression in SQL")
        columns = columns_of(text)
    except ParameterError:
        raise UnseenError("an expression in SQL") from None
    called = re.findall(r"(\w+)\s*\(", plain)
    unknown = [name for name in called if fold(name) not in _FUNCTIONS | _BEFORE_BRACKETS]
    if unknown or not all(map(below.has, columns)):
        raise UnseenError(f"{unknown[0]}()" if unknown else "an expression in SQL")


def _column(expression: Any, kind: str, below: Provenance) -> list[str]:
    """Return the parts of the name of a relation's column: the column, then fields in it.

    A name that matches no column may be a function without brackets, or the place of a row in a file.
    """
    text = (
        expression.expression_string.expression
        if kind == "expression_string"
        else expression.unresolved_attribute.unparsed_identifier
    )
    if kind == "unresolved_attribute" and expression.unresolved_attribute.is_metadata_column:
        raise UnseenError(text)
    if kind == "expression_string" and re.fullmatch(r"[A-Za-z_]\w*|`[^`]+`", text) is None:
        raise UnseenError("an expression in SQL")
    try:
        parts = parts_of(text.replace("`", '"'), most=None)
    except ParameterError:
        raise UnseenError("a name of a column") from None
    if len(parts) > 1 and not below.has(parts[0]):  # the first part is the relation's name
        parts = parts[1:]
    if not below.has(parts[0]):
        raise UnseenError(f"column {parts[0]}, which the relation does not list")
    return parts


def _replaced(columns: Iterable[Passed], additions: Sequence[Passed]) -> list[Passed]:
    """Return columns with new ones, which replace columns of the same names or follow."""
    new = {fold(name): (name, passed) for name, passed in additions}
    replacements = [new.pop(fold(column[0]), column) for column in columns]
    return [*replacements, *new.values()]


@dataclass(frozen=True)
class JvmReader:
    """A reader of Spark's analysed plans in the driver's own JVM; for the parameter see `ConnectReader`."""

    table: Table

    def rows(self, node: Any) -> Provenance:
        """Return the origin of a plan's rows; for errors see `ConnectReader.rows`."""
        passed = self._scans_and_columns(node)
        columns = [(str(item.name()), passed[1].get(_number(item))) for item in _items(node.output())]
        return Provenance(passed[0], tuple(columns))

    def _scans_and_columns(self, node: Any) -> tuple[tuple[Scan, ...], dict[int, tuple[str, ...] | None]]:
        """Return a plan's scans, and each attribute's column in them, by the attribute's number."""
        kind = str(node.getClass().getSimpleName())
        below = _items(node.children())
        if not below:
            origin = Provenance.of(self._scan(kind, node), [str(item.name()) for item in _items(node.output())])
            pairs = zip(_items(node.output()), origin.columns, strict=True)
            return origin.scans, {_number(attribute): passed for attribute, (_, passed) in pairs}
        if kind == "Union":
            origin = union([self.rows(branch) for branch in below])
            pairs = zip(_items(node.output()), origin.columns, strict=True)
            return origin.scans, {_number(attribute): passed for attribute, (_, passed) in pairs}
        if len(below) != 1 or kind not in ("Project", "Filter", "SubqueryAlias", "View", "Repartition", "Sort"):
            raise UnseenError(kind)
        scans, columns = self._scans_and_columns(below[0])
        if kind == "Filter":
            _refuse_class(node.condition())
        elif kind == "Project":
            columns = {_number(expression): self._of(expression, columns) for expression in _items(node.projectList())}
        return scans, columns

    def _of(self, expression: Any, columns: dict[int, tuple[str, ...] | None]) -> tuple[str, ...] | None:
        while str(expression.getClass().getSimpleName()) == "Alias" or _changes_nothing(expression):
            expression = expression.child()
        if str(expression.getClass().getSimpleName()) == "AttributeReference":
            return columns.get(_number(expression))
        _refuse_class(expression)
        return None

    def _scan(self, kind: str, node: Any) -> Scan:
        if kind in ("LocalRelation", "Range", "LogicalRDD"):
            return Scan()
        if kind == "LogicalRelation":
            relation = node.relation()
            reader = str(relation.getClass().getSimpleName())
            if node.catalogTable().isDefined() and reader in _READERS:
                return Scan(self._table_name(str(node.catalogTable().get().qualifiedName())))
            if reader == "HadoopFsRelation":
                return files_of(str(path.toString()) for path in _items(relation.location().rootPaths()))
        if kind == "HiveTableRelation":
            return Scan(self._table_name(str(node.tableMeta().qualifiedName())))
        raise UnseenError(kind)

    def _table_name(self, name: str) -> tuple[str, ...]:
        path = self.table(name)
        if path is None:
            raise UnseenError("a table outside of the catalog")
        return path


def _changes_nothing(expression: Any) -> bool:
    """Whether an expression casts to its existing type, as a view casts every column."""
    is_cast = str(expression.getClass().getSimpleName()) == "Cast"
    return is_cast and bool(expression.dataType().equals(expression.child().dataType()))


def _number(attribute: Any) -> int:
    return int(attribute.exprId().id())


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(number) for number in range(int(sequence.size()))]


def _refuse_class(expression: Any) -> None:
    """Raise unless a JVM expression is of a listed class."""
    kind = expression.getClass()
    if str(kind.getName()) != _PACKAGE + str(kind.getSimpleName()) or str(kind.getSimpleName()) not in _CLASSES:
        raise UnseenError(str(kind.getSimpleName()))
    for below in _items(expression.children()):
        _refuse_class(below)

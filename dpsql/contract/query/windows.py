"""Windows over one person's rows, as they are written: the order of their rows is total where it chooses.

The caller's order comes first. Behind it stands all that is read of the rows (`spellings.contents`), so that rows which
still tie are the same, and it does not matter which of them DuckDB takes first: neither other people's rows nor its
threads decide it. `rank`, `dense_rank` and frames of RANGE and GROUPS go by peers, which the caller's order alone
makes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpsql.contract.expression.kinds import FLOATS, Type
from dpsql.contract.query.nodes import Expr
from dpsql.contract.query.relations import Column
from dpsql.contract.query.spellings import ENDS, contents, has_one_spelling, in_order, is_plain
from dpsql.contract.query.writer import frame_sql
from dpsql.errors import ParameterError
from dpsql.rendering import identifier

# These number rows, whatever the frame is; first and last values are those of a frame's rows.
_NUMBERING = frozenset(("row_number", "lag", "lead"))
_CHOOSING = frozenset(("first_value", "last_value"))
_OF_PEERS = frozenset(("rank", "dense_rank"))
WINDOWS = _NUMBERING | _CHOOSING | _OF_PEERS | {"count", "count_star", *ENDS}
_WHOLE = " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
# What a frame may exclude whichever rows tie.
_ALONE = frozenset(("NO_OTHER", "CURRENT_ROW"))


@dataclass(frozen=True)
class Window:
    """A window over rows whose columns are known once all windows of a query are read.

    Attributes
    ----------
    expr : Expr
    given : sequence of str
        Its arguments.
    kind : Type or None
        The type of the first of them.
    partitions : sequence of str
    orders : sequence of (str, str)
        What the caller orders by, and the direction.
    stub : str
        Its SQL over no rows.
    """

    expr: Expr
    given: Sequence[str]
    kind: Type | None
    partitions: Sequence[str]
    orders: Sequence[tuple[str, str]]
    stub: str

    @property
    def is_end(self) -> bool:
        """Whether it returns the least or the largest value."""
        return self.expr.name in ENDS

    def sql(self, columns: Sequence[Column]) -> str:
        """Return its SQL over rows of these columns."""
        name, frame = self.expr.name, self._frame
        orders = [f"{sql} {words}".rstrip() for sql, words in self.orders]
        if name in _OF_PEERS:
            return self._over(orders)
        ties = [
            f"{sql} ASC NULLS LAST"
            for one in columns
            if not self._is_decided(one)
            for sql in contents(identifier(one.sql), one.type)
        ]
        if name in _NUMBERING or self._goes_by_rows:
            return self._over([*orders, *ties], frame, inside=self._by_value)
        if not (name in _CHOOSING or self._by_value):
            return self._over(orders, frame)
        if not frame and not orders:
            frame = _WHOLE  # all rows are peers
        if frame == _WHOLE:
            return self._over([*orders, *ties], frame, inside=self._by_value)
        if self._by_value or frame:
            return self._over(orders, frame, inside=self._by_value or [*orders, *ties])
        # The frame of all rows up to the last peer.
        if name == "first_value":
            nulls = [f"({self.given[0]} IS NULL) ASC"] if self.expr.value else []
            return self._over([*orders, *nulls, *ties])
        if self.expr.value:
            return self._over(orders, inside=[*orders, *ties])
        return self._over(ties, _WHOLE, among=[sql for sql, _ in self.orders])

    @property
    def earlier(self) -> str | None:
        """Its SQL as before decision 65, in the order that the caller wrote; None where it was refused."""
        frame, words = self.expr.frame, ""
        if frame is not None and (frame.start, frame.end) != ("UNBOUNDED_PRECEDING", "CURRENT_ROW_RANGE"):
            if "RANGE" in frame.start or (frame.end != "CURRENT_ROW_RANGE" and "RANGE" in frame.end):
                return None
            words = f" {frame_sql(self.expr)}"
        over = f"PARTITION BY {', '.join(self.partitions)}"
        if self.orders:
            over += f" ORDER BY {', '.join(f'{sql} {order}'.strip() for sql, order in self.orders)}"
        nulls = f" {self.expr.value}" if self.expr.value else ""
        return f"system.main.{self.expr.name}({', '.join(self.given)}{nulls}) OVER ({over}{words})"

    def _is_decided(self, column: Column) -> bool:
        """Whether rows of a partition that the caller's order does not tell apart have one value of a column."""
        if column.owner:  # of text too: a collation that made one of two people would be seen in the plan, and refused
            return has_one_spelling(column.type)
        compared = (*self.partitions, *(sql for sql, _ in self.orders))
        return identifier(column.sql) in compared and is_plain(column.type)

    @property
    def _by_value(self) -> list[str]:
        """The order in which the least or largest value comes first, where equal values have several spellings."""
        if not self.is_end or self.kind is None or self.kind.kind in FLOATS or has_one_spelling(self.kind):
            return []
        return [in_order(self.given[0], self.kind, ENDS[self.expr.name])]

    def _over(
        self, orders: Sequence[str], frame: str = "", *, inside: Sequence[str] = (), among: Sequence[str] = ()
    ) -> str:
        """Return it over rows in an order; it looks at a frame's rows in the order `inside`, if that is another."""
        name = "first_value" if self._by_value else self.expr.name
        arguments = ", ".join(self.given)
        arguments += f" ORDER BY {', '.join(inside)}" if inside else ""
        arguments += f" {self.expr.value}" if self.expr.value else ""
        over = f"PARTITION BY {', '.join([*self.partitions, *among])}"
        over += f" ORDER BY {', '.join(orders)}" if orders else ""
        return f"system.main.{name}({arguments}) OVER ({over}{frame})"

    @property
    def _goes_by_rows(self) -> bool:
        """Whether the frame counts rows, not peers."""
        frame = self.expr.frame
        if frame is None or not any(end.endswith("_ROWS") for end in (frame.start, frame.end)):
            return False
        if frame.exclude not in _ALONE:
            raise ParameterError(
                "P104",
                "sql: a frame of ROWS that leaves out what ties is not computed of one person's rows. Write GROUPS, or "
                "leave EXCLUDE out.",
            )
        return True

    @property
    def _frame(self) -> str:
        """The SQL of the frame; nothing for that of all rows up to the last peer, and where it has no part."""
        frame = self.expr.frame
        if frame is None or self.expr.name in _NUMBERING:
            return ""
        if (frame.start, frame.end, frame.exclude) == ("UNBOUNDED_PRECEDING", "CURRENT_ROW_RANGE", "NO_OTHER"):
            return ""
        if "RANGE" in frame.start or (frame.end != "CURRENT_ROW_RANGE" and "RANGE" in frame.end):
            raise ParameterError("P104", "sql: a frame of RANGE is not computed of one person's rows. Write ROWS.")
        return f" {frame_sql(self.expr)}"

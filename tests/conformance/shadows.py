"""Every name that the package's statements use, found in their syntax trees, and macros that take such a name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import duckdb
from calls import CALLS, Call
from seam import Watch

from dpsql.engines.duckdb.session import Session
from support.broken.planting import planted

PLACES = ("temporary", "in the database", "in a file")


@dataclass
class Names:
    """What the statements of all calls name.

    Attributes
    ----------
    functions : dict
        By name of a function, the numbers of arguments that it is given.
    users : dict
        By name of a function, the calls in whose statements it stands.
    relations : set of str
        Common table expressions and aliases.
    """

    functions: dict[str, set[int]] = field(default_factory=dict)
    users: dict[str, list[Call]] = field(default_factory=dict)
    relations: set[str] = field(default_factory=set)

    def take(self, call: Call, tree: Any) -> None:
        """Add what a statement names."""
        for node in _nodes(tree):
            name = node.get("function_name") or ""
            if name and not name.startswith(("dp_", "exact_")):
                self.functions.setdefault(name, set()).add(len(node.get("children") or node.get("arguments") or ()))
                users = self.users.setdefault(name, [])
                if call not in users:
                    users.append(call)
            self.relations |= {entry["key"] for entry in (node.get("cte_map") or {}).get("map", ())}
            if node.get("type") in ("SUBQUERY", "BASE_TABLE", "TABLE_FUNCTION") and node.get("alias"):
                self.relations.add(node["alias"])


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        yield tree
        tree = list(tree.values())
    if isinstance(tree, list):
        for part in tree:
            yield from _nodes(part)


def names_used(watch: Watch, connection: Any) -> Names:
    """Return what the calls' own statements, and the bodies of the macros that they go through, name."""
    found = Names()
    texts: list[str] = []
    function = Session.function

    def kept(session: Session, name: str, bind: Any) -> Any:
        run = function(session, name, bind)
        if name != "dpsql_plan":
            return run

        def planning(*arguments: Any) -> Any:
            texts.append(run(*arguments))
            raise RuntimeError("the text is all that is asked for")

        return planning

    bodies = connection.execute(
        "SELECT function_name, function_type, macro_definition FROM duckdb_functions() "
        "WHERE macro_definition IS NOT NULL AND database_name = 'temp'"
    ).fetchall()
    forms = [body if kind == "table_macro" else f"SELECT {body}" for _, kind, body in bodies]
    with planted((Session, "function", kept)), duckdb.connect() as plain:
        for number, call in enumerate(CALLS):
            texts.clear()
            watch.ask(connection, f"EXPLAIN {call.sql.format(source=call.table)}", number)
            texts += [body for (name, _, _), body in zip(bodies, forms, strict=True) if name == call.function]
            if any("exact_fixed_point" in text for text in texts):
                texts += [body for (name, _, _), body in zip(bodies, forms, strict=True) if name == "exact_fixed_point"]
            for text in texts:
                found.take(call, _tree(plain, text))
    return found


def _tree(connection: Any, text: str) -> Any:
    tree = json.loads(connection.execute("SELECT json_serialize_sql(?)", [text]).fetchall()[0][0])
    assert not tree["error"], tree
    return tree


def macros(name: str, arities: set[int], place: str) -> list[str]:
    """Return statements that define a macro of a name which answers with its last argument; as a table, with 42."""
    scope = "TEMP MACRO" if place == "temporary" else "MACRO"
    quoted = '"' + name.replace('"', '""') + '"'
    lists = [", ".join(f"p{number}" for number in range(count)) for count in sorted(arities | {1, 2})]
    scalar = ", ".join(f"({names}) AS {names.rpartition(' ')[2] or '42'}" for names in lists)
    tables = ", ".join(f"({names}) AS TABLE (SELECT 42 AS {quoted})" for names in lists)
    return [f"CREATE OR REPLACE {scope} {quoted}{scalar}", f"CREATE OR REPLACE {scope} {quoted}{tables}"]

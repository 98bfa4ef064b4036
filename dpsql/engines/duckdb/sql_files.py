"""The SQL files of the macros, as they are installed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files

_EXACT = ("exact/fixed_point.sql", "exact/xty.sql", "exact/discordant.sql", "exact/gram.sql")
_BY_HAND = ("dp/lineage.sql", "dp/models.sql", "dp/dp_split.sql", "dp/budget.sql", "dp/manual.sql")


def sql_texts() -> Iterator[str]:
    """Yield the text of every file of macros."""
    root = files("dpsql.sql")
    for folder in ("dp", "exact"):
        for entry in sorted(root.joinpath(folder).iterdir(), key=lambda entry: entry.name):
            if entry.name.endswith(".sql"):
                yield entry.read_text(encoding="utf-8")


def macros_sql(scope: str, catalog: str) -> str:
    """Return the SQL that creates every macro, with `scope` before its name."""
    from dpsql.functions.registry import EXACT, FUNCTIONS

    names = (*_EXACT, *_BY_HAND, *(f"dp/{name}.sql" for name in (*EXACT, *FUNCTIONS)))
    sql = "\n".join(files("dpsql.sql").joinpath(name).read_text(encoding="utf-8") for name in names)
    sql = re.sub(
        r"(?<![\w.])(?<!MACRO )"
        r"(exact_double|exact_fixed_point|dpsql_lineage|dpsql_typed|dpsql_reads|dpsql_tables|dpsql_texts)\(",
        rf"{catalog}.main.\1(",
        sql,
    )
    return re.sub(r"CREATE OR REPLACE (TEMP )?MACRO ", f"CREATE OR REPLACE {scope}", sql)

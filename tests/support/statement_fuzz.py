"""Statements of strangers at random: forms of queries, of FROM and of expressions, spliced; many reach for `patients`."""

from __future__ import annotations

from random import Random

NAMES = (
    "patients",
    "main.patients",
    "memory.main.patients",
    "c",
    "d",
    "released_0",
    "main.released_1",
    "PATIENTS",
    '"patients"',
)
CALLS = (
    *("dp_count('visits')", "dp_count('visits', by := 'ward')", "DP_COUNT('visits', epsilon := -1.50)", "dp_budget()"),
    *("query('FROM patients')", "query_table('patients')", "read_text('/etc/passwd')", "range(3)", "duckdb_tables()"),
    *("dp_count((SELECT 'x'))", "dp_query('SELECT count(*) FROM patients')", "seq_scan('patients')", "repeat_row(1)"),
)
FUNCTIONS = (
    "sum",
    "max",
    "count",
    "upper",
    "abs",
    "round",
    "getenv",
    "current_setting",
    "list_transform",
    "concat",
    "list",
)
LEAVES = (
    "n",
    "key",
    "c.n",
    "x.n",
    "1",
    "1.5",
    "'a'",
    "NULL",
    "true",
    "*",
    "x.*",
    "CURRENT_DATE",
    "patients",
    "rowid",
    "name",
)
TYPES = ("INTEGER", "VARCHAR", "DECIMAL(9, 2)", "ENUM ('a')", "INTEGER[]", "evil")


class Fuzzer:
    """Makes statements.

    Parameters
    ----------
    seed : int
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def statement(self) -> str:
        """Return a statement."""
        out = self._query(3)
        if self._random.random() < 0.02:
            out += "; " + self._query(1)
        if self._random.random() < 0.05:
            place = self._random.randrange(len(out))
            out = out[:place] + self._random.choice("()'\",;*-") + out[place + self._random.randrange(2) :]
        return out

    def _any(self, *given: str) -> str:
        return self._random.choice(given)

    def _query(self, deep: int) -> str:
        out = ""
        if deep > 0 and self._random.random() < 0.3:
            recursive = "RECURSIVE " if self._random.random() < 0.1 else ""
            withs = [
                f"{self._any('c', 'd', 'patients', 'released_0')} AS ({self._query(deep - 1)})"
                for _ in range(self._random.randrange(1, 3))
            ]
            out = f"WITH {recursive}{', '.join(withs)} "
        out += self._select(deep)
        if deep > 0 and self._random.random() < 0.15:
            out += (
                f" {self._any('UNION', 'UNION ALL', 'EXCEPT', 'INTERSECT', 'UNION BY NAME')} {self._select(deep - 1)}"
            )
        if self._random.random() < 0.2:
            out += (
                f" ORDER BY {self._any('1', 'n', 'ALL', self._expr(deep - 1))}{self._any('', ' DESC', ' NULLS LAST')}"
            )
        if self._random.random() < 0.2:
            out += f" LIMIT {self._any('1', '10%', '0', self._expr(deep - 1))}"
        return out

    def _select(self, deep: int) -> str:
        if self._random.random() < 0.05:
            return self._any(
                "TABLE patients",
                "FROM patients",
                "SUMMARIZE patients",
                "DESCRIBE patients",
                "VALUES (1)",
                "SHOW TABLES",
            )
        items = ", ".join(
            self._expr(deep) + self._any("", "", " AS n", " AS key") for _ in range(self._random.randrange(1, 3))
        )
        out = f"SELECT {self._any('', '', 'DISTINCT ')}{items}"
        if self._random.random() < 0.9:
            out += f" FROM {self._source(deep)}"
        if self._random.random() < 0.2:
            out += f" WHERE {self._expr(deep)}"
        if self._random.random() < 0.2:
            out += f" GROUP BY {self._any('ALL', 'key', 'n', 'ROLLUP (key)', self._expr(deep - 1))}"
        if self._random.random() < 0.05:
            out += f" QUALIFY {self._expr(deep - 1)}"
        if self._random.random() < 0.03:
            out += self._any(" USING SAMPLE 1", " HAVING count(*) > 1", " WINDOW w AS (ORDER BY n)")
        return out

    def _source(self, deep: int) -> str:
        chance = self._random.random()
        alias = self._any("", " AS x", " AS x(n)", " c", " patients")
        if deep > 0 and chance < 0.15:
            return f"({self._query(deep - 1)}){alias}"
        if deep > 0 and chance < 0.3:
            how = self._any(
                "JOIN",
                "LEFT JOIN",
                "SEMI JOIN",
                "ASOF JOIN",
                "POSITIONAL JOIN",
                "CROSS JOIN",
                "NATURAL JOIN",
                ", LATERAL",
            )
            on = (
                ""
                if how.startswith(("CROSS", "POS", "NAT", ","))
                else self._any(" USING (n)", f" ON {self._expr(deep - 1)}")
            )
            return f"{self._source(deep - 1)} {how} {self._source(deep - 1)}{on}"
        if chance < 0.7:
            return self._any(*CALLS[:4]) + alias
        if chance < 0.8:
            return self._any(*CALLS) + alias
        if chance < 0.82:
            return self._any(
                "'a.csv'",
                "patients TABLESAMPLE 10%",
                "patients AT (VERSION => 1)",
                "(VALUES (1))",
                "(DESCRIBE patients)",
            )
        return self._any(*NAMES) + alias

    def _expr(self, deep: int) -> str:
        if self._random.random() < 0.004:
            return "$1"
        if deep <= 0 or self._random.random() < 0.35:
            return self._any(*LEAVES)
        one, two = self._expr(deep - 1), self._expr(deep - 1)
        name = self._any(*FUNCTIONS)
        if self._random.random() < 0.03:
            return self._any(f"COLUMNS({one})", f"lambda q: {one}", f"{one} COLLATE nocase")
        return self._any(
            f"{one} + {two}",
            f"{one} = {two}",
            f"{one} AND NOT {two}",
            f"{name}({one})",
            f"{name}({one}) FILTER (WHERE {two})",
            f"{name}({one}) OVER (PARTITION BY {two} ORDER BY n)",
            f"CASE WHEN {one} THEN {two} END",
            f"{one} IN ({two}, 1)",
            f"{one} BETWEEN 1 AND {two}",
            f"CAST({one} AS {self._any(*TYPES)})",
            f"[{one}, {two}][1]",
            f"{{'a': {one}}}.a",
            f"{one} LIKE 'a%'",
            f"EXISTS ({self._query(deep - 1)})",
            f"({self._query(deep - 1)})",
            f"{one} IN ({self._query(deep - 1)})",
        )

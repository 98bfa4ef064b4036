"""Random plain SQL over the tables of `support.plain_tables`.

Queries are of the grammar that `dp_query` reads, and of what it must refuse; a mutation makes one of the other.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field, replace

from support.plain_tables import COLUMNS, create, fill, neighbours, random_rows

__all__ = ["Scope", "Writer", "create", "fill", "mutated", "neighbours", "random_rows"]


@dataclass
class Scope:
    """What a FROM clause offers.

    Attributes
    ----------
    text : str
        The clause, without FROM.
    columns : dict
        Type by the column as it is written.
    unit : str
        The person's column as it is written; '' where a path leads to it.
    where : list of str
        Conditions that the clause needs.
    """

    text: str
    columns: dict[str, str]
    unit: str = ""
    where: list[str] = field(default_factory=list)

    def of(self, *kinds: str) -> list[str]:
        """Return the columns of some types."""
        return [name for name, kind in self.columns.items() if kind in kinds]


_NUMBERS = ("DOUBLE", "BIGINT", "INTEGER", "DECIMAL(9, 2)")
_UNITS = {"people": "id", "orders": "who", "bought": "who"}
_VIEW = {"who": "BIGINT", "x": "DOUBLE", "ward": "VARCHAR", "price": "DOUBLE", "qty": "BIGINT"}
# Public keys, of which a column of these names has no other values that count.
_DECLARED = ("sex", "ward", "code", "tag", "kind", "flag")


class Writer:
    """Writes random queries.

    Parameters
    ----------
    draw : random.Random
    """

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self._names = 0

    def query(self) -> str:
        """Return a query, of one core or of several."""
        form = self.draw.random()
        if form < 0.15:
            return self._of_forms()
        form = (form - 0.15) / 0.85
        if form < 0.7:
            return self.core()
        if form < 0.78:
            return f"{self.core(bare=True)} UNION ALL {self.core(bare=True)}" if form < 0.74 else self._of_cte()
        if form < 0.86:
            name, sql = self._fresh(), self._keyed("ward")
            joined = self.draw.choice(("JOIN", "LEFT JOIN", "FULL JOIN"))
            return f"SELECT {name}.*, o.beds FROM ({sql}) {name} {joined} wards o ON {name}.k = o.ward ORDER BY 1, 2"
        if form < 0.94:
            return f"SELECT a.k, a.v / nullif(b.v, 0) AS r FROM ({self._keyed('ward')}) a JOIN ({self._keyed('ward')}) b ON a.k = b.k"
        return (
            f"SELECT ({self.core(bare=True, keyless=True)}) AS one, ({self.core(bare=True, keyless=True)}) + 1 AS other"
        )

    def _of_forms(self) -> str:
        """Return a query of a form that has several blocks: WITH in WITH, sets, windows and joins of answers."""
        draw, scope = self.draw, self._base("orders")
        name, where = scope.text.split()[1], self._where(scope)
        plain, other = self._keyed("ward"), self._keyed("kind")
        path = self._path()
        forms = (
            f"WITH a AS (SELECT * FROM {scope.text}{where}), b(u, v) AS (SELECT who, x FROM a WHERE n > 0) "
            "SELECT (SELECT count(*) FROM a) AS n, count(*) AS m, sum(v) AS s FROM b",
            f"WITH a AS ({plain}), b AS (SELECT sum(v) AS t FROM a) SELECT k, v / nullif(t, 0) AS r FROM a, b ORDER BY r",
            f"WITH a AS (SELECT ward, kind, count(*) AS n FROM {scope.text}{where} GROUP BY ALL) "
            "SELECT ward, max(n) AS m, count(*) AS c FROM a GROUP BY ward HAVING max(n) > 1 ORDER BY 1 LIMIT 2",
            f"SELECT k, v, rank() OVER (ORDER BY v DESC) AS r FROM ({plain}) QUALIFY r <= 2",
            f"SELECT v FROM ({plain}) UNION ALL SELECT v FROM ({plain}) ORDER BY 1",
            f"SELECT k FROM ({plain}) UNION SELECT CAST(k AS VARCHAR) FROM ({other})",
            f"SELECT DISTINCT {name}.ward FROM {scope.text}{where} ORDER BY 1",
            f"SELECT ward, kind, count(*) AS n, sum(x) AS s, grouping(ward, kind) AS g FROM {scope.text}{where} "
            f"GROUP BY {draw.choice(('CUBE (ward, kind)', 'ROLLUP (ward, kind)', 'GROUPING SETS ((ward), (kind), ())', 'GROUPING SETS ((ward, kind), ())'))}",
            f"SELECT w.ward, w.beds, coalesce(a.v, 0) AS v FROM wards w LEFT JOIN ({plain}) a ON a.k = w.ward ORDER BY 1, 2",
            f"SELECT k, v FROM ({plain}) WHERE v > (SELECT min(beds) FROM wards) OR k IN (SELECT ward FROM wards)",
            f"SELECT ward, count(*) AS n, round(100.0 * n / (SELECT sum(beds) FROM wards), 1) AS p FROM {scope.text}{where} GROUP BY ward",
            f"SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY {name}.x) AS m, approx_quantile({name}.n, 0.9) AS q FROM {scope.text}{where}",
            f"SELECT ward, quantile_cont(x, [0.25, 0.5]) AS q, count(*) AS n FROM {scope.text}{where} GROUP BY ward",
            f"SELECT regr_r2(x, n) AS r, regr_intercept(x, n) AS i, covar_samp(x, n) AS c, regr_count(x, n) AS k FROM {scope.text}{where}",
            f"SELECT count(DISTINCT {name}.who) FILTER (WHERE {self.condition(scope, 1)}) AS u, count(DISTINCT {name}.n) AS i FROM {scope.text}{where}",
            "SELECT sum(v) AS s, avg(m) AS a FROM (SELECT p.id, (SELECT count(*) FROM orders o WHERE o.who = p.id) AS v, "
            "(SELECT max(o.x) FROM orders o WHERE o.who = p.id AND o.n > 0) AS m FROM people p)",
            f"SELECT count(*) AS n FROM orders o WHERE {draw.choice(('EXISTS', 'NOT EXISTS'))} (SELECT 1 FROM lines l WHERE l.o = o.ok AND l.qty > 0)",
            f"SELECT count(*) AS n, sum(o.x) AS s FROM orders o WHERE o.ok {draw.choice(('IN', 'NOT IN'))} (SELECT l.o FROM lines l WHERE l.price > 1)",
            "SELECT count(*) AS n FROM people p WHERE p.age > 90 OR EXISTS (SELECT 1 FROM orders o WHERE o.who = p.id AND o.x > p.age)",
            f"SELECT code, count(*) AS n, sum(w) AS s FROM {path} GROUP BY code",
            f"SELECT sex, count(*) AS n, avg(w) AS a, count(DISTINCT id) AS u FROM people JOIN ({self._of_parts()}) q ON q.u = people.id GROUP BY sex",
            "SELECT avg(v) AS a, count(*) AS n FROM (SELECT o, sum(price) AS v, count(*) AS c FROM lines GROUP BY o HAVING count(*) > 0)",
            "SELECT tag, count(*) AS n, count(DISTINCT l) AS d FROM parts GROUP BY tag",
            f"SELECT w.beds, count({name}.who) AS n, sum({name}.x) AS s FROM wards w LEFT JOIN {scope.text} ON {name}.ward = w.ward "
            "GROUP BY w.beds",
            f"SELECT count(*) AS n FROM {scope.text} WHERE {name}.ward IN (SELECT ward FROM wards WHERE beds > {draw.choice(('0', '3'))})",
            f"SELECT count(*) AS n FROM {scope.text} WHERE {name}.x > (SELECT avg(beds) FROM wards w WHERE w.ward = {name}.ward)",
            f"SELECT upper(ward) || '!' AS k, CASE WHEN x > 0 THEN 'p' WHEN x <= 0 THEN 'n' END AS c, count(*) AS n FROM {scope.text}{where} GROUP BY ALL",
            f"SELECT x IS NULL AS k, n IN (0, 1) AS i, count(*) AS n FROM {scope.text}{where} GROUP BY 1, 2",
            f"SELECT time_bucket(INTERVAL '1 week', {name}.day) AS b, count(*) AS n FROM {scope.text} "
            f"WHERE {name}.day BETWEEN DATE '2024-01-20' AND DATE '2024-03-02' GROUP BY b",
            f"SELECT count(*) AS n FROM (SELECT DISTINCT who, ward FROM {scope.text}{where})",
            f"SELECT a, count(*) AS n FROM (SELECT who, bool_or(x > 0) AS a, median(x) AS m FROM {scope.text}{where} GROUP BY who) GROUP BY a",
            f"SELECT avg(d) AS a FROM (SELECT who, x - lag(x) OVER (PARTITION BY who ORDER BY day, n, x) AS d FROM {scope.text}{where})",
            f"SELECT count(*) AS n FROM (SELECT * FROM {scope.text} QUALIFY row_number() OVER (PARTITION BY who ORDER BY day, n, x) = 1)",
            *self._of_months(scope, where),
            *self._of_lookups(scope, where),
            self._of_wide_dimension(scope, where),
            *(self._of_tied(scope, where),) * 5,
        )
        return draw.choice(forms)

    def _of_months(self, scope: Scope, where: str) -> tuple[str, ...]:
        """Return queries by person and month, and by month; with periods the person is a person in a month."""
        draw, name = self.draw, scope.text.split()[1]
        month = draw.choice(
            (
                f"date_trunc('month', {name}.day)",
                f"CAST(date_trunc('month', {name}.day) AS DATE)",
                f"year({name}.day), month({name}.day)",
                f"strftime({name}.day, '%Y-%m')",
                f"date_trunc('{draw.choice(('day', 'hour', 'month', 'quarter'))}', {name}.day)",
            )
        )
        return (
            f"SELECT avg(s) AS a, count(*) AS n FROM (SELECT who, {month}, sum(x) AS s FROM {scope.text}{where} GROUP BY ALL)",
            f"SELECT count(*) AS n FROM (SELECT DISTINCT who, {month} FROM {scope.text}{where})",
            f"SELECT sum(x) AS s FROM (SELECT * FROM {scope.text}{where} QUALIFY row_number() OVER (PARTITION BY who, {month} ORDER BY n) = 1)",
            "SELECT count(*) AS n FROM orders a JOIN orders b ON a.who = b.who AND date_trunc('month', a.day) = date_trunc('month', b.day)",
            f"SELECT date_trunc('month', day) AS m, count(*) AS n, sum(x) AS s FROM {scope.text}{where} GROUP BY m",
            f"SELECT m, count(*) AS n FROM (SELECT who, date_trunc('month', day) AS m FROM {scope.text}{where} GROUP BY ALL) GROUP BY m",
        )

    def _of_lookups(self, scope: Scope, where: str) -> tuple[str, ...]:
        """Return queries that look up the nearest row of a public table, in which rows tie, for each row."""
        draw, name = self.draw, scope.text.split()[1]
        sign, by = draw.choice(((">=", "DESC"), (">", "DESC"), ("<", ""), ("<=", "")))
        how = draw.choice(("ASOF JOIN", "ASOF LEFT JOIN"))
        turned = {">=": "<=", ">": "<", "<": ">", "<=": ">="}[sign]
        day = f"(SELECT month FROM calendar c WHERE c.d {turned} {name}.day ORDER BY c.d {by} LIMIT 1)"
        beds = f"(SELECT beds FROM wards w WHERE w.ward = {name}.ward AND w.beds {turned} {name}.n ORDER BY w.beds {by} LIMIT 1)"
        return (
            f"SELECT count(*) AS n, sum(x) AS s FROM {scope.text} {how} calendar c ON {name}.day {sign} c.d{where}",
            f"SELECT holiday, month, count(*) AS n FROM {scope.text} {how} calendar c ON {name}.day {sign} c.d{where} GROUP BY ALL",
            f"SELECT sum(w.beds) AS s, count(*) AS n FROM {scope.text} {how} wards w ON {name}.ward = w.ward AND {name}.n {sign} w.beds{where}",
            f"SELECT sum({beds}) AS s, count({day}) AS n FROM {scope.text}{where}",
            f"SELECT {day} AS m, count(*) AS n FROM {scope.text}{where} GROUP BY m",
            f"SELECT sum((SELECT beds FROM wards w WHERE w.ward = {name}.ward ORDER BY building {by} LIMIT 1)) AS s FROM {scope.text}{where}",
        )

    def _of_tied(self, scope: Scope, where: str) -> str:
        """Return a query that chooses among rows, or equal values, by an order in which several come first."""
        draw, name = self.draw, scope.text.split()[1]
        by = draw.choice(
            ("", f" ORDER BY {name}.n > 0", f" ORDER BY {name}.day DESC", f" ORDER BY {name}.kind, {name}.x")
        )
        frame = draw.choice(("", " ROWS 1 PRECEDING", " GROUPS 1 PRECEDING")) if by else ""
        over = f"OVER (PARTITION BY {name}.who{draw.choice(('', f', {name}.ward'))}{by}"
        what = draw.choice(
            (
                *(
                    f"first_value(x) {over}{frame})",
                    f"last_value(n) {over}{frame})",
                    f"last_value(x IGNORE NULLS) {over})",
                ),
                *(f"lag(n) {over})", f"lead(x) {over})", f"row_number() {over}) * n", f"max(x) {over}{frame})"),
                *(f"count(x) {over}{frame})", f"min(n) {over}{frame})", f"rank() {over}) + n"),
            )
        )
        sign = "1 / {0} > 0 OR CAST({0} AS VARCHAR) = '-nan'"
        return draw.choice(
            (
                f"SELECT sum(v) AS s, count(v) AS n FROM (SELECT who, {what} AS v FROM {scope.text}{where})",
                f"SELECT count_if({sign.format('v')}) AS s FROM (SELECT who, {what} AS v FROM {scope.text}{where})",
                f"SELECT ward, count(*) AS n FROM (SELECT DISTINCT ON (who) who, ward FROM {scope.text}{where}"
                f"{by.replace('ORDER BY', 'ORDER BY who,')}) GROUP BY ward",
                f"SELECT sum(x) AS s FROM (SELECT * FROM {scope.text}{where} QUALIFY row_number() {over}) = 1)",
                f"SELECT count_if({sign.format('m')}) AS s FROM (SELECT who, {draw.choice(('min', 'max', 'median'))}(x) AS m "
                f"FROM {scope.text}{where} GROUP BY who)",
                f"SELECT count_if({sign.format('x')}) AS s FROM (SELECT DISTINCT who, x FROM {scope.text}{where})",
            )
        )

    def tied(self) -> str:
        """Return a query of one table that chooses among rows, or equal values."""
        scope = self._base("orders")
        return self._of_tied(scope, self._where(scope) if self.draw.random() < 0.3 else "")

    def _of_wide_dimension(self, scope: Scope, where: str) -> str:
        """Return a query whose keys are several columns of one public table: its rows, not all combinations."""
        draw, name = self.draw, scope.text.split()[1]
        how = draw.choice(("JOIN", "LEFT JOIN"))
        keys = draw.choice(
            (
                "w.ward, w.beds, w.building",
                "w.ward, w.building",
                f"{name}.ward, w.beds",
                "w.beds > 2, w.building",
                f"w.building, {name}.kind, w.beds",
                "w.building, w.ward, holiday, month",
            )
        )
        dated = f" {how} calendar c ON c.d = {name}.day" if "month" in keys else ""
        left = draw.choice(
            ("", "w.beds > 0", "w.building = 'N'", "w.ward IS NOT NULL", "w.beds <> 3 OR w.beds IS NULL")
        )
        kept = f"{where} AND ({left})" if where and left else f" WHERE {left}" if left else where
        return (
            f"SELECT {keys}, {self.aggregate(scope, lists=False)} AS v FROM {scope.text} "
            f"{how} wards w ON w.ward = {name}.ward{dated}{kept} GROUP BY ALL ORDER BY ALL"
        )

    def _path(self) -> str:
        """Return a join along a path of two steps."""
        return self.draw.choice(
            (
                "parts JOIN lines ON l = lk JOIN orders ON o = ok",
                "orders JOIN lines ON ok = o JOIN parts ON lk = l",
                "lines LEFT JOIN parts ON l = lk",
                "orders, lines, parts WHERE ok = o AND lk = l",
                "parts JOIN lines ON l = lk",
                "people JOIN orders ON id = who JOIN lines ON ok = o LEFT JOIN parts ON lk = l",
            )
        )

    def _of_parts(self) -> str:
        return self.draw.choice(
            (
                "SELECT who AS u, w FROM orders JOIN lines ON ok = o JOIN parts ON lk = l",
                "SELECT who AS u, sum(w) AS w FROM orders JOIN lines ON ok = o JOIN parts ON lk = l GROUP BY who",
                "SELECT who AS u, m AS w FROM parts JOIN lines ON l = lk JOIN orders ON ok = o WHERE m > 0",
            )
        )

    def _keyed(self, key: str) -> str:
        scope = self._base("orders")
        return f"SELECT {scope.unit.replace('who', key)} AS k, {self.aggregate(scope, lists=False)} AS v FROM {scope.text} GROUP BY 1"

    def _of_cte(self) -> str:
        scope = self.scope()
        keep = ", ".join(
            f"{one} AS c{place}" for place, one in enumerate([scope.unit or "1", *scope.of(*_NUMBERS)[:2]])
        )
        where = self._where(scope)
        return f"WITH t AS (SELECT {keep} FROM {scope.text}{where}) SELECT count(*), count(c0), sum(c0 % 3) FROM t WHERE c0 IS NOT NULL"

    def _fresh(self) -> str:
        self._names += 1
        return f"t{self._names}"

    def core(self, *, bare: bool = False, keyless: bool = False) -> str:
        """Return one SELECT with aggregates."""
        scope = self.scope()
        draw = self.draw
        keys = [] if keyless or bare or draw.random() < 0.25 else self._keys(scope)
        lists = not (bare or keyless)
        aggregates = [self.aggregate(scope, lists=lists) for _ in range(draw.randint(1, 3) if lists else 1)]
        shown = [f"{key} AS k{place}" for place, key in enumerate(keys)]
        shown += [f"{one} AS a{place}" for place, one in enumerate(aggregates)]
        sql = f"SELECT {', '.join(shown)} FROM {scope.text}{self._where(scope)}"
        if keys:
            sql += (
                f" GROUP BY {draw.choice((', '.join(str(place + 1) for place in range(len(keys))), ', '.join(keys)))}"
            )
            if len(keys) == 2 and draw.random() < 0.15:
                sql = (
                    sql.rpartition(" GROUP BY ")[0]
                    + " GROUP BY "
                    + draw.choice(("ROLLUP ({0}, {1})", "CUBE ({0}, {1})", "GROUPING SETS (({0}), ({1}), ())")).format(
                        *keys
                    )
                )
        if not bare and not keyless:
            if keys and draw.random() < 0.3:
                sql += f" HAVING {draw.choice(('count(*) > 1', aggregates[0] + ' IS NOT NULL', 'count(*) >= 0'))}"
            if draw.random() < 0.3:
                sql += f" ORDER BY {draw.choice(('1', 'a0 DESC', 'a0 NULLS FIRST'))}"
            if draw.random() < 0.2:
                sql += f" LIMIT {draw.randint(0, 3)}"
            if draw.random() < 0.1:
                sql = f"SELECT *, sum(a0) OVER () AS s FROM ({sql})"
        return sql

    def _base(self, table: str, alias: str | None = None) -> Scope:
        alias = alias or self._fresh()
        columns = _VIEW if table == "bought" else COLUMNS[table]
        unit = f"{alias}.{_UNITS[table]}" if table in _UNITS else ""
        return Scope(f"{table} {alias}", {f"{alias}.{name}": kind for name, kind in columns.items()}, unit)

    def scope(self, depth: int = 0) -> Scope:
        """Return a FROM clause over rows of people."""
        draw = self.draw
        form = draw.random()
        if form < 0.34 or depth > 1:
            return self._base(draw.choice(("people", "orders", "orders", "lines", "parts", "notes", "bought")))
        if form < 0.52:
            return self._joined()
        if form < 0.62:
            return self._with_public(self.scope(depth + 1))
        if form < 0.74:
            return self._per_person()
        if form < 0.82:
            return self._window()
        if form < 0.92:
            return self._derived(self.scope(depth + 1))
        return self._union()

    def _joined(self) -> Scope:
        draw = self.draw
        pairs = (
            ("people", "orders", "{0}.id = {1}.who"),
            ("orders", "lines", "{0}.ok = {1}.o"),
            ("orders", "people", "{1}.id = {0}.who"),
            ("orders", "orders", "{0}.who = {1}.who"),
            ("orders", "notes", "{0}.ok = {1}.o"),
            ("lines", "orders", "{0}.o = {1}.ok"),
        )
        one, other, on = draw.choice(pairs)
        left, right = self._base(one), self._base(other)
        on = on.format(left.text.split()[1], right.text.split()[1])
        columns, unit = {**left.columns, **right.columns}, left.unit or right.unit
        form = draw.random()
        if form < 0.3:
            joined = Scope(f"{left.text}, {right.text}", columns, unit, [on])
        else:
            if form > 0.85:
                how = draw.choice(("SEMI JOIN", "ANTI JOIN"))
                return Scope(f"{left.text} {how} {right.text} ON {on}", left.columns, left.unit)
            how = draw.choice(("JOIN", "LEFT JOIN", "JOIN", "RIGHT JOIN", "FULL JOIN"))
            ordered = [
                f"{mine} {sign} {theirs}"
                for sign in ("<", ">=", "<>")
                for mine, theirs in zip(left.of(*_NUMBERS), right.of(*_NUMBERS), strict=False)
            ]
            more = f" AND {draw.choice(ordered)}" if how == "LEFT JOIN" and ordered and draw.random() < 0.3 else ""
            joined = Scope(f"{left.text} {how} {right.text} ON {on}{more}", columns, unit)
        if one == "orders" and other == "lines" and draw.random() < 0.3:
            below = self._base("parts")
            joined.text += f" JOIN {below.text} ON {below.text.split()[1]}.l = {right.text.split()[1]}.lk"
            joined.columns.update(below.columns)
        return joined

    def _with_public(self, scope: Scope) -> Scope:
        draw = self.draw
        texts, dates = scope.of("VARCHAR"), scope.of("DATE")
        public = self._base("wards" if texts or not dates else "calendar")
        alias = public.text.split()[1]
        if not texts and not dates:
            return scope
        on = f"{draw.choice(texts)} = {alias}.ward" if texts else f"{draw.choice(dates)} = {alias}.d"
        how = draw.choice(("JOIN", "LEFT JOIN", "RIGHT JOIN", "SEMI JOIN", "ANTI JOIN"))
        if how[0] in "SA":
            return replace(scope, text=f"{scope.text} {how} {public.text} ON {on}")
        return Scope(
            f"{scope.text} {how} {public.text} ON {on}", {**scope.columns, **public.columns}, scope.unit, scope.where
        )

    def _per_person(self) -> Scope:
        draw = self.draw
        inner = self._base(draw.choice(("orders", "people", "orders", "bought")))
        number = draw.choice(inner.of(*_NUMBERS))
        what = draw.choice(
            (
                f"sum({number})",
                f"avg({number})",
                f"min({number})",
                f"max({number})",
                "count(*)",
                f"count(DISTINCT {number})",
                f"median({number})",
                f"bool_or({number} > 0)",
                f"sum(CAST({number} AS HUGEINT))",
                f"{draw.choice(('sum', 'avg', 'max'))}(DISTINCT {number})",
            )
        )
        extra = draw.choice(inner.of("VARCHAR") or [inner.unit]) if draw.random() < 0.3 else ""
        keys = f"{inner.unit}{', ' + extra if extra else ''}"
        alias = self._fresh()
        text = f"(SELECT {inner.unit} AS u, {what} AS v{', ' + extra + ' AS e' if extra else ''} FROM {inner.text}{self._where(inner)} GROUP BY {keys}) {alias}"
        columns = {
            f"{alias}.u": "BIGINT",
            f"{alias}.v": "DOUBLE",
            **({f"{alias}.e": "VARCHAR"} if extra and extra != inner.unit else {}),
        }
        return Scope(text, columns, f"{alias}.u")

    def _window(self) -> Scope:
        draw = self.draw
        inner = self._base("orders")
        name = inner.text.split()[1]
        what = draw.choice(
            ("lag({0}.x)", "lead({0}.n)", "row_number()", "first_value({0}.x)", "rank()", "sum({0}.x)")
        ).format(name)
        by = draw.choice(
            (f"PARTITION BY {name}.who ", f"PARTITION BY {name}.who, {name}.ward ", f"PARTITION BY {name}.ward ", "")
        )
        alias = self._fresh()
        text = f"(SELECT {name}.who AS u, {name}.ward AS ward, {what} OVER ({by}ORDER BY {name}.day, {name}.x, {name}.n) AS v FROM {inner.text}) {alias}"
        return Scope(text, {f"{alias}.u": "BIGINT", f"{alias}.ward": "VARCHAR", f"{alias}.v": "DOUBLE"}, f"{alias}.u")

    def _derived(self, scope: Scope) -> Scope:
        draw = self.draw
        alias = self._fresh()
        picked = draw.sample([*scope.columns], min(len(scope.columns), draw.randint(1, 4)))
        if scope.unit and scope.unit not in picked and draw.random() < 0.5:
            picked.append(scope.unit)
        made = {f"p{place}": one for place, one in enumerate(picked)}
        columns = {f"{alias}.{name}": scope.columns[one] for name, one in made.items()}
        if draw.random() < 0.3:
            made["q"] = self.number(scope, 1)
            columns[f"{alias}.q"] = "DOUBLE"
        distinct = "DISTINCT " if scope.unit in picked and draw.random() < 0.2 else ""
        listed = ", ".join(f"{one} AS {name}" for name, one in made.items())
        unit = next((f"{alias}.{name}" for name, one in made.items() if one == scope.unit), "")
        return Scope(f"(SELECT {distinct}{listed} FROM {scope.text}{self._where(scope)}) {alias}", columns, unit)

    def _union(self) -> Scope:
        alias, one, other = self._fresh(), self._base("people"), self._base("orders")
        text = (
            f"(SELECT {one.unit} AS u, {one.text.split()[1]}.age AS v FROM {one.text} UNION ALL "
            f"SELECT {other.unit}, {other.text.split()[1]}.x FROM {other.text}{self._where(other)}) {alias}"
        )
        return Scope(text, {f"{alias}.u": "BIGINT", f"{alias}.v": "DOUBLE"}, f"{alias}.u")

    def _where(self, scope: Scope) -> str:
        draw = self.draw
        terms = list(scope.where)
        if draw.random() < 0.55:
            terms.append(self.condition(scope, 2))
        if scope.unit and draw.random() < 0.2:
            terms.append(self._by_person(scope))
        if draw.random() < 0.2:
            terms += self._by_path(scope)
        return f" WHERE {' AND '.join(terms)}" if terms else ""

    def _by_person(self, scope: Scope) -> str:
        inner = self._base(self.draw.choice(("orders", "people")))
        where = f" AND {self.condition(inner, 1)}" if self.draw.random() < 0.5 else ""
        form = self.draw.choice(("EXISTS", "NOT EXISTS", "IN", "NOT IN", ">", "max", "OR"))
        if form == "max":
            number = self.number(inner, 1)
            return f"(SELECT max({number}) FROM {inner.text} WHERE {inner.unit} = {scope.unit}{where}) > {self.number(scope, 0)}"
        if form == "OR":
            more = self.condition(scope, 0)
            return f"({more} OR {scope.unit} IN (SELECT {inner.unit} FROM {inner.text} WHERE true{where}))"
        if form.endswith("EXISTS"):
            return f"{form} (SELECT 1 FROM {inner.text} WHERE {inner.unit} = {scope.unit}{where})"
        if form == ">":
            return f"(SELECT count(*) FROM {inner.text} WHERE {inner.unit} = {scope.unit}{where}) > 0"
        return f"{scope.unit} {form} (SELECT {inner.unit} FROM {inner.text} WHERE true{where})"

    def _by_path(self, scope: Scope) -> list[str]:
        """Return a choice of rows by those at the other end of a path, or by several columns at once."""
        ends = [(one, "orders", "ok") for one in scope.columns if one.endswith(".o")]
        ends += [(one, "lines", "o") for one in scope.columns if one.endswith(".ok")]
        if scope.unit and self.draw.random() < 0.4:
            inner = self._base("orders")
            ours, theirs = self.draw.choice(scope.of("VARCHAR") or ["'A'"]), self.draw.choice(inner.of("VARCHAR"))
            return [f"({scope.unit}, {ours}) IN (SELECT {inner.unit}, {theirs} FROM {inner.text})"]
        if not ends:
            return []
        ours, table, key = self.draw.choice(ends)
        inner = self._base(table)
        key = f"{inner.text.split()[1]}.{key}"
        where = f" AND {self.condition(inner, 1)}" if self.draw.random() < 0.5 else ""
        form = self.draw.choice(("EXISTS", "NOT EXISTS", "IN", "NOT IN"))
        if form.endswith("EXISTS"):
            return [f"{form} (SELECT 1 FROM {inner.text} WHERE {key} = {ours}{where})"]
        return [f"{ours} {form} (SELECT {key} FROM {inner.text} WHERE true{where})"]

    def number(self, scope: Scope, depth: int) -> str:
        """Return a numeric expression over one row."""
        draw = self.draw
        columns = scope.of(*_NUMBERS)
        if depth == 0 or draw.random() < 0.35 or not columns:
            return (
                draw.choice([*columns, *columns, "2", "0.05"])
                if columns and draw.random() < 0.3
                else draw.choice(columns or ["1"])
            )
        one, other = self.number(scope, depth - 1), self.number(scope, depth - 1)
        forms = (
            f"({one} + {other})",
            f"({one} * {other})",
            f"({one} / {other})",
            f"({one} % 3)",
            f"abs({one})",
            f"sqrt({one})",
            f"ln({one})",
            f"coalesce({one}, 0)",
            f"least({one}, {other})",
            f"CASE WHEN {self.condition(scope, depth - 1)} THEN {one} ELSE {other} END",
            f"TRY_CAST({one} AS INTEGER)",
            f"CAST({one} AS BIGINT)",
            f"round({one}, 1)",
            f"({one} // {other})",
            *(f"CAST({text} AS INTEGER)" for text in scope.of("VARCHAR")[:1]),
            *(
                f"date_part('{draw.choice(('year', 'epoch', 'julian', 'era', 'doy'))}', {day})"
                for day in scope.of("DATE", "TIMESTAMP")[:1]
            ),
            *(f"length({text})" for text in scope.of("VARCHAR")[:1]),
        )
        return draw.choice(forms)

    def condition(self, scope: Scope, depth: int) -> str:
        """Return a condition on one row."""
        draw = self.draw
        number = self.number(scope, max(0, depth - 1))
        forms = [f"{number} > {draw.choice(('0', '1.5', '-3'))}", f"{number} IS NOT NULL", f"{number} BETWEEN 0 AND 7"]
        for text in scope.of("VARCHAR"):
            forms += [
                f"{text} IN ('A', 'é')",
                f"{text} LIKE 'A%'",
                f"lower({text}) = 'a'",
                f"CAST({text} AS DOUBLE) > 0",
            ]
        for day in scope.of("DATE", "TIMESTAMP"):
            forms += [f"{day} >= DATE '2024-02-01'", f"date_trunc('month', {day}) = DATE '2024-02-01'"]
            forms += [f"CAST({day} AS DATE) < CURRENT_DATE", f"{day} + INTERVAL 1 month > DATE '2024-03-01'"]
        forms += scope.of("BOOLEAN")
        found = draw.choice(forms)
        if depth > 0 and draw.random() < 0.4:
            return f"({found} {draw.choice(('AND', 'OR'))} NOT {self.condition(scope, depth - 1)})"
        return found

    def _keys(self, scope: Scope) -> list[str]:
        draw = self.draw
        forms = [one for one in scope.columns if one.rpartition(".")[2] in _DECLARED]
        forms += [f"upper({one})" for one in scope.of("VARCHAR") if one.rpartition(".")[2] in _DECLARED]
        forms.append(f"CASE WHEN {self.condition(scope, 1)} THEN 'yes' WHEN {self.condition(scope, 0)} THEN 'no' END")
        forms.append(f"({self.condition(scope, 0)})")
        for day in scope.of("DATE", "TIMESTAMP"):
            forms += [f"month({day})", f"dayofweek({day})", f"date_part('hour', CAST({day} AS TIMESTAMP))"]
            scope.where += [f"{day} >= DATE '2024-01-15'", f"{day} < DATE '2024-04-01'"] if draw.random() < 0.3 else []
            forms += (
                [f"date_trunc('month', {day})", f"CAST({day} AS DATE)"]
                if f"{day} < DATE '2024-04-01'" in scope.where
                else []
            )
        for one in scope.columns:
            if one.rpartition(".")[2] in ("age", "n", "m"):
                forms.append(f"floor({one} / 3)")
        if draw.random() < 0.08:
            forms.append(draw.choice([*scope.columns]))
        return draw.sample(forms, min(len(forms), draw.choice((1, 1, 2))))

    def aggregate(self, scope: Scope, *, lists: bool = True) -> str:
        """Return an aggregate; one that is a list only where it may be."""
        draw = self.draw
        number = self.number(scope, draw.choice((0, 0, 1, 2)))
        plain = draw.choice(scope.of(*_NUMBERS) or ["1"])
        forms = [
            *(
                "count(*)",
                "count(*)",
                f"count({number})",
                f"sum({number})",
                f"sum({plain})",
                f"avg({number})",
                f"avg({plain})",
            ),
            *(f"count_if({self.condition(scope, 1)})", f"stddev({plain})", f"var_pop({plain})", f"median({plain})"),
            *(
                f"quantile_cont({plain}, 0.25)",
                f"approx_quantile({plain}, 0.7)",
                f"percentile_disc(0.3) WITHIN GROUP (ORDER BY {plain})",
                f"avg(CASE WHEN {self.condition(scope, 1)} THEN {number} END)",
                f"covar_pop({number}, {plain})",
                f"regr_avgx({plain}, {number})",
                f"quantile_disc({plain}, {'[0.1, 0.9]' if lists else '0.9'})",
                f"corr({plain}, {number})",
            ),
            *(f"regr_slope({plain}, {number})", f"count(*) FILTER (WHERE {self.condition(scope, 1)})"),
            *(
                f"sum({number}) FILTER (WHERE {self.condition(scope, 0)})",
                f"sum({plain}) / count(*)",
                f"100 * avg({plain}) - 1",
            ),
            *([f"count(DISTINCT {scope.unit})"] * 2 if scope.unit else []),
        ]
        rare = [
            f"min({plain})",
            f"mode({plain})",
            f"count(DISTINCT {plain})",
            f"sum(DISTINCT {plain})",
            f"list({plain})",
        ]
        return draw.choice(rare if draw.random() < 0.05 else forms)


_SWAPS = (
    (r"\bLEFT JOIN\b", "FULL JOIN"),
    (r"\bJOIN\b", "CROSS JOIN"),
    (r"\bON (\S+) = (\S+)", r"ON \1 >= \2"),
    (r"\bON (\S+) = (\S+)", "ON true"),
    (r"\bON (\S+) = (\S+)", r"ON \1 IS NOT DISTINCT FROM \2"),
    (r"\.who\b", ".n"),
    (r"\.who\b", ".ok"),
    (r"\.ok\b", ".who"),
    (r"\.u\b", ".v"),
    (r"\.o\b", ".lk"),
    (r"\bPARTITION BY \S+ ", ""),
    (r"\bGROUP BY (\S+)", r"GROUP BY (\1 % 2)"),
    (r"\bUNION ALL\b", "UNION"),
    (r"\bUNION ALL\b", "EXCEPT"),
    (r"\bSELECT (DISTINCT )?", "SELECT DISTINCT "),
    (r"\) (t\d+)", r" LIMIT 2) \1"),
    (r"\bWHERE\b", "WHERE NOT"),
    (r"\bcount\(\*\)", "max(1)"),
    (r"\bwards\b", "orders"),
    (r"\borders\b", "lines"),
    (r"\bpeople\b", "orders"),
    (r"\bNOT IN\b", "IN"),
    (r" = ", " <> "),
    (r"\bAND\b", "OR"),
)


def mutated(sql: str, draw: random.Random) -> str:
    """Return the query with one or two of its pieces changed, which often makes it one that must be refused."""
    for _ in range(draw.choice((1, 1, 2))):
        found = [(match, new) for old, new in _SWAPS for match in re.finditer(old, sql)]
        if not found:
            break
        match, new = draw.choice(found)
        sql = sql[: match.start()] + match.expand(new) + sql[match.end() :]
    return sql

"""Wrong splits, made of right ones: a node moved, a level flipped, a source exchanged, a unit dropped, a text that reads."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from dpsql.contract.query.split import QueryCore, QueryKey, Split
from dpsql.rendering import identifier

_TABLES = ("people", "orders", "lines", "notes", "parts", "wards", "calendar", "bought")
_COLUMNS = ("id", "who", "ok", "o", "lk", "l", "n", "x", "age", "ward", "day", "price", "qty", "y", "w")
# Pieces of a written source that decide whose a row is, and what may stand there instead.
_PIECES = (
    (r' ON ("\w+"\."\w+") = ("\w+"\."\w+")', (" ON TRUE", r" ON \1 <> \2", r" ON \1 >= \2", r" ON \1 = \1")),
    (r' ON ("\w+"\."\w+") = ("\w+"\."\w+")', (r" ON \1 IS NOT DISTINCT FROM \2",)),
    (r" LEFT JOIN ", (" FULL JOIN ", " RIGHT JOIN ", " JOIN ", " CROSS JOIN ", " ANTI JOIN ", " SEMI JOIN ")),
    (r" JOIN ", (" FULL JOIN ", " LEFT JOIN ", " POSITIONAL JOIN ", " ANTI JOIN ", " NATURAL JOIN ")),
    (r'PARTITION BY "\w+"(, )?', ("", "PARTITION BY 1 ")),
    (r'(, )?"unit_of_row"(?=\)| FROM| GROUP|$)', ("", r'\1 1 AS "unit_of_row"', r'\1 NULL AS "unit_of_row"')),
    (r'("a\d+"\."\w+") AS "unit_of_row"', ('1 AS "unit_of_row"', r'min(\1) OVER () AS "unit_of_row"')),
    (r'("a\d+"\."\w+") AS "unit_of_row"', (r'\1 + 1 AS "unit_of_row"', r'coalesce(\1, 1) AS "unit_of_row"')),
    (r" GROUP BY ", (" GROUP BY 1, ", " GROUP BY ALL ORDER BY ")),
    (r" UNION ALL ", (" UNION ", " EXCEPT ", " INTERSECT ")),
    (r"SELECT (?!DISTINCT)", ("SELECT DISTINCT ", "SELECT DISTINCT ON (1) ")),
    (r" WHERE ", (" WHERE NOT ", " QUALIFY row_number() OVER () < 3 AND ", " WHERE random() < 0.5 AND ")),
    (r" WHERE ", (" WHERE (SELECT count(*) FROM memory.main.orders) > 2 AND ",)),
)


def wrong_split(split: Split, draw: random.Random) -> Split:
    """Return a split of a query that is wrong in one or two ways."""
    for _ in range(draw.choice((1, 1, 2))):
        if not split.cores:
            return replace(split, post=_reading(split.post, draw))
        split = draw.choices(_WAYS, _WEIGHTS)[0](split, draw)
    return split


def _of_core(change: Callable[[QueryCore, Split, random.Random], QueryCore]) -> Callable[[Split, random.Random], Split]:
    def changed(split: Split, draw: random.Random) -> Split:
        at = draw.randrange(len(split.cores))
        cores = [change(one, split, draw) if place == at else one for place, one in enumerate(split.cores)]
        return replace(split, cores=tuple(cores))

    return changed


def _names(core: QueryCore) -> list[str]:
    """Return the columns of a core's source, without the unit."""
    found = [one.column for one in core.keys]
    found += [name for one in core.aggregates for name in (one.column, one.other) if name is not None]
    return [identifier(name) for name in dict.fromkeys(found)]


def _piece(core: QueryCore, split: Split, draw: random.Random) -> QueryCore:
    places = [(match, new) for old, all_new in _PIECES for match in re.finditer(old, core.source) for new in all_new]
    if not places:
        return _rows(core, split, draw)
    match, new = draw.choice(places)
    return replace(core, source=core.source[: match.start()] + match.expand(new) + core.source[match.end() :])


def _table(core: QueryCore, split: Split, draw: random.Random) -> QueryCore:
    """Read another table; or another column of one."""
    found = list(re.finditer(rf'"main"\."({"|".join(_TABLES)})"', core.source))
    columns = list(re.finditer(rf'("a\d+")\."({"|".join(_COLUMNS)})"', core.source))
    if columns and draw.random() < 0.6:
        match, new = draw.choice(columns), f'\\1."{draw.choice(_COLUMNS)}"'
    elif found:
        match, new = draw.choice(found), f'"main"."{draw.choice(_TABLES)}"'
    else:
        return core
    return replace(core, source=core.source[: match.start()] + match.expand(new) + core.source[match.end() :])


def _unit(core: QueryCore, split: Split, draw: random.Random) -> QueryCore:
    """Drop the unit, or let something else be it."""
    if core.unit is None:
        return core
    names, unit = _names(core), identifier(core.unit)
    others = [
        *names,
        f"CAST({unit} % 2 AS BIGINT)",
        f"{unit} + 1",
        "1",
        f"min({unit}) OVER ()",
        f"TRY_CAST({unit} AS INTEGER)",
    ]
    chosen = draw.choice(["", *others])
    listed = [*names, f"{chosen} AS {unit}"] if chosen else names
    if names and draw.random() < 0.3:
        swapped = draw.choice(names)
        listed = [*(f"{unit} AS {one}" if one == swapped else one for one in names), f"{swapped} AS {unit}"]
    return replace(core, source=f"SELECT {', '.join(listed) or '1'} FROM ({core.source})")


def _rows(core: QueryCore, split: Split, draw: random.Random) -> QueryCore:
    """Move above the rows of people what looks at several of them."""
    names = _names(core)
    unit = [] if core.unit is None else [identifier(core.unit)]
    source, one = core.source, draw.choice([*names, *unit, "1"])
    listed = ", ".join([*names, *unit]) or "1"
    whole = ", ".join([*(f"max({each}) OVER () AS {each}" for each in names), *unit]) or "1"
    grouped = ", ".join(
        [*(f"any_value({each}) AS {each}" for each in names), *(f"min({each}) AS {each}" for each in unit)]
    )
    other = draw.choice(split.cores)
    forms = (
        f"SELECT {listed} FROM ({source}) ORDER BY {one} LIMIT 2",
        f"SELECT {listed} FROM ({source}) LIMIT (SELECT count(*) FROM ({source}))",
        f"SELECT {listed} FROM ({source}) USING SAMPLE 2 ROWS",
        f"SELECT {whole} FROM ({source})",
        f"SELECT {grouped or '1'} FROM ({source}) GROUP BY {one}",
        f"SELECT DISTINCT ON ({one}) {listed} FROM ({source})",
        f"SELECT {listed} FROM ({source}) QUALIFY rank() OVER (ORDER BY {one}) < 3",
        f"SELECT {listed} FROM ({source}) WHERE (SELECT count(*) FROM ({other.source})) > 2",
        f"SELECT {listed} FROM ({source}) WHERE EXISTS (SELECT 1 FROM memory.main.orders WHERE who = 2)",
        f"SELECT {listed} FROM ({source}) s WHERE {one} NOT IN (SELECT {one} FROM ({source}) LIMIT 1)",
        f"SELECT a.* FROM ({source}) a JOIN ({source}) b ON a.{one} = b.{one}" if one != "1" else source,
        f"SELECT {listed} FROM ({source}) EXCEPT SELECT {listed} FROM ({other.source})",
        f"SELECT {listed} FROM ({source}) UNION ALL SELECT {listed} FROM ({source})",
        f"SELECT {listed} FROM ({source}), range(3)",
        f"SELECT {listed} FROM ({source}), memory.main.orders",
        f"SELECT a.* FROM ({source}) a LEFT JOIN memory.main.people p ON p.age > 3",
    )
    return replace(core, source=draw.choice(forms))


def _exchanged(split: Split, draw: random.Random) -> Split:
    """Give a core the source of another, or of a public table."""
    at, of = draw.randrange(len(split.cores)), draw.choice(split.cores)
    source = (
        of.source
        if draw.random() < 0.7
        else "SELECT ward AS k0, beds AS t0, beds AS unit_of_row FROM memory.main.wards"
    )
    cores = [replace(one, source=source) if place == at else one for place, one in enumerate(split.cores)]
    return replace(split, cores=tuple(cores))


def _key(core: QueryCore, split: Split, draw: random.Random) -> QueryCore:
    """List the keys from rows."""
    if not core.keys:
        return _piece(core, split, draw)
    at = draw.randrange(len(core.keys))
    column = identifier(core.keys[at].column)
    lists = (
        f"SELECT DISTINCT {column} FROM ({core.source})",
        "SELECT DISTINCT ward FROM memory.main.orders",
        "SELECT w.ward FROM memory.main.wards w SEMI JOIN memory.main.orders o ON o.ward = w.ward",
        "SELECT ward FROM memory.main.wards WHERE beds < (SELECT count(*) FROM memory.main.orders)",
        "SELECT CAST(i AS VARCHAR) FROM range((SELECT count(*) FROM memory.main.orders)) r(i)",
        "SELECT DISTINCT ward FROM memory.main.wards",
    )

    def listed(key: QueryKey) -> QueryKey:
        return replace(key, values=None, query=draw.choice(lists))

    return replace(core, keys=tuple(listed(one) if place == at else one for place, one in enumerate(core.keys)))


def _level(split: Split, draw: random.Random) -> Split:
    """Compute a core exactly, in what follows: its released table is a subquery of the people."""
    core = draw.choice(split.cores)
    keys = [identifier(key.column) for key in core.keys]
    numbers = [f"CAST(count(*) AS {one.type}) AS {identifier(one.name)}" for one in core.aggregates]
    exact = f"(SELECT {', '.join([*keys, *numbers])} FROM ({core.source}) GROUP BY ALL)"
    post = split.post.replace(identifier(core.name), exact, 1)
    if draw.random() < 0.3:
        return replace(split, post=post, cores=())
    return replace(split, post=post)


def _post(split: Split, draw: random.Random) -> Split:
    return replace(split, post=_reading(split.post, draw))


def _reading(post: str, draw: random.Random) -> str:
    """Return a text that looks at people besides."""
    forms: Sequence[str] = (
        f"SELECT * FROM ({post}) WHERE (SELECT count(*) FROM memory.main.orders) > 2",
        f"SELECT * FROM ({post}) ORDER BY (SELECT max(x) FROM memory.main.orders), 1",
        f"SELECT * FROM ({post}) LIMIT (SELECT count(*) FROM memory.main.people)",
        f"SELECT p.* FROM ({post}) p SEMI JOIN memory.main.lines ON true",
        f"SELECT p.* FROM ({post}) p, memory.main.bought",
        f"SELECT * FROM ({post}) UNION ALL SELECT * FROM ({post}) WHERE EXISTS (FROM memory.main.people)",
        f"SELECT p.* FROM ({post}) p, (SELECT estimated_size AS e FROM system.main.duckdb_tables()) WHERE e > 2",
        f"SELECT p.* FROM ({post}) p, orders",
        f"SELECT p.* FROM ({post}) p LEFT JOIN memory.main.wards w ON true LIMIT 3",
        f"WITH t AS MATERIALIZED (FROM memory.main.orders) SELECT p.* FROM ({post}) p, t",
        post,
    )
    return draw.choice(forms)


rows_moved = _of_core(_rows)
_WAYS = (
    _of_core(_piece),
    _of_core(_table),
    _of_core(_unit),
    rows_moved,
    _exchanged,
    _of_core(_key),
    _level,
    _post,
)
_WEIGHTS = (6, 4, 3, 4, 1, 2, 2, 2)

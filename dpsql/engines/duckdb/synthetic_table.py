"""The SQL of a synthetic table: a released tree's rows, with the source's names and types. It reads no table."""

from __future__ import annotations

from dpsql.contract.parameters import MOST_ITEMS, is_storable, show, within
from dpsql.errors import ParameterError
from dpsql.ledger.rows import StoredRelease
from dpsql.rendering import call, cast, element, identifier, text

# Maximum number of rows of one statement; another seed gives more.
MOST_ROWS = 5 * MOST_ITEMS


def read_seed(seed: object) -> str | None:
    """Return a seed as text, from text or an integer; None for the release's seed.

    Raises
    ------
    ParameterError
        P013: any other type.
    """
    if seed is None:
        return None
    if isinstance(seed, bool) or not isinstance(seed, (str, int)) or not is_storable(str(seed)):
        raise ParameterError("P013", f"seed must be a text or an integer; got {show(seed)}. Any one will do.")
    return str(seed)


def read_count(count: object) -> int | None:
    """Return a number of rows; None for the released number.

    Raises
    ------
    ParameterError
        P002, P050: no integer from 0 to `MOST_ROWS`.
    """
    if count is None:
        return None
    if isinstance(count, bool) or not isinstance(count, int):
        raise ParameterError("P002", f"n must be an integer from 0 to {MOST_ROWS}; got {show(count)}.")
    within("n", count, 0, MOST_ROWS, hint="Ask again with another seed for more rows.")
    return count


def synthetic_sql(stored: StoredRelease, count: int | None, seed: str | None) -> str:
    """Return the query of a released tree's rows.

    Parameters
    ----------
    stored : StoredRelease
        From dp_synthetic.
    count : int or None
    seed : str or None
    """
    size = "NULL" if count is None else str(count)
    with_seed = "NULL" if seed is None else text(seed)
    generator = call("dpsql_synthetic_columns", str(stored.sequence), size, with_seed)
    columns = [
        f"{cast(call('unnest', element('made', number + 1)), column['type'])} AS {identifier(column['name'])}"
        for number, column in enumerate(stored.result["columns"])
    ]
    return f"SELECT {', '.join(columns)} FROM (SELECT {generator} AS made)"

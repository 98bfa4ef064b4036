"""Databases that queries of plain SQL are asked of: a hospital with dashboards, and the tables of TPC-H.

The rows are made here, so that nothing is downloaded. The statements themselves lie beside the project, in
``../shared/queries``; tests that need them skip where they are absent.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

QUERIES = Path(__file__).resolve().parents[2].parent / "shared" / "queries"
BUDGET = "epsilon := 1e11, delta := 0.09"
# Statements that the files call refused, and that dpsql answers.
ANSWERED_SINCE = {"Superset top-n series"}


def statements(name: str) -> list[dict[str, Any]]:
    """Return the statements of a file of `QUERIES`; skip where it is absent."""
    path = QUERIES / f"{name}.json"
    if not path.exists():
        pytest.skip(f"the statements are not here; {name}.json belongs beside the project, in ../shared/queries")
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return found


def known_statements(name: str) -> list[dict[str, Any]]:
    """Return the statements of a file of `QUERIES` as parameters of tests; none where it is absent."""
    return statements(name) if (QUERIES / f"{name}.json").exists() else []


HOSPITAL_KEYS = (
    "{sex: ['F', 'M'], ward: ['A', 'B', 'C', 'D'], test: ['t1', 't2', 't3', 't4', 't5', 't6', 't7', 't8', 't9']}"
)


def hospital(con: Any, *, people: int = 200, person: str = "id", rows_per_person: int = 40) -> None:
    """Make and protect the hospital's tables; `person` is the name of the person's column in patients.

    Values are such that sums of them are exact in doubles, and no two of a person's visits are on one day.
    """
    con.execute(f"""
        CREATE TYPE outcome AS ENUM ('home', 'moved', 'dead');
        CREATE TABLE patients AS
          SELECT i AS {person}, CASE WHEN hash(i, 's') % 2 = 0 THEN 'F' ELSE 'M' END AS sex,
            CAST(hash(i, 'a') % 96 AS INTEGER) AS age, 'city ' || hash(i, 'c') % 3 AS city, hash(i, 'k') % 4 = 0 AS smoker,
            DATE '1930-01-01' + CAST(hash(i, 'b') % 30000 AS INTEGER) AS born, 'name ' || i AS name
          FROM range({people}) AS r(i);
        CREATE TABLE visits AS
          SELECT i AS id, i % {people} AS patient, ['A', 'B', 'C', 'D'][1 + CAST(hash(i, 'w') % 4 AS INTEGER)] AS ward,
            CAST(hash(i, 'd') % 30 AS INTEGER) AS days, CAST(hash(i, 'q') % 4000 AS DOUBLE) / 4 AS cost,
            DATE '2024-01-01' + CAST((i // {people}) * 149 + hash(i % {people}, 'v') % 140 AS INTEGER) AS visit_date,
            enum_range(NULL::outcome)[1 + CAST(hash(i, 'o') % 3 AS INTEGER)] AS outcome,
            ['Ada', 'Bob', 'Cleo'][1 + CAST(hash(i, 'h') % 3 AS INTEGER)] AS doctor,
            CASE WHEN i % 5 = 0 THEN 'a Fall at home' WHEN i % 7 = 0 THEN NULL ELSE 'cough' END AS note
          FROM range({7 * people}) AS r(i) WHERE hash(i, 'z') % 5 > 0;
        CREATE TABLE labs AS
          SELECT i % {7 * people} AS visit, 't' || 1 + hash(i, 't') % 9 AS test,
            CAST(hash(i, 'r') % 1000 AS DOUBLE) / 2 AS result, DATE '2024-01-01' + CAST(i % 900 AS INTEGER) AS taken
          FROM range({14 * people}) AS r(i) WHERE hash(i % {7 * people}, 'z') % 5 > 0;
        CREATE TABLE wards AS
          SELECT * FROM (VALUES ('A', 10, 'N'), ('B', 20, 'N'), ('C', 30, 'S'), ('D', 40, 'S')) AS v(ward, beds, building);
        CREATE TABLE calendar AS
          SELECT CAST(d AS DATE) AS d, CAST(date_trunc('month', d) AS DATE) AS month, day(d) = 1 AS holiday
          FROM range(DATE '2026-01-01', DATE '2027-01-01', INTERVAL 1 day) AS r(d);
    """)
    con.execute(f"""
        SELECT dp_protect('hospital', {BUDGET}, max_rows_per_unit := {rows_per_person}, keys := {HOSPITAL_KEYS},
          lower := {{age: 0, days: 0, result: 0}}, upper := {{age: 120, days: 365, result: 500}},
          tables := {{patients: '{person}', visits: 'patient', labs: 'visit -> visits.id'}})
    """)
    for table in ("wards", "calendar"):
        con.execute(f"SELECT dp_public('{table}')")


_NATIONS = (
    *(
        [
            "ALGERIA",
            "ARGENTINA",
            "BRAZIL",
            "CANADA",
            "EGYPT",
            "ETHIOPIA",
            "FRANCE",
            "GERMANY",
            "INDIA",
            "INDONESIA",
            "IRAN",
            "IRAQ",
            "JAPAN",
            "JORDAN",
            "KENYA",
        ]
    ),
    *("MOROCCO", "MOZAMBIQUE", "PERU", "CHINA", "ROMANIA", "SAUDI ARABIA", "VIETNAM", "RUSSIA", "UNITED KINGDOM"),
    "UNITED STATES",
)
_REGION_OF = (0, 1, 1, 1, 4, 0, 3, 3, 2, 2, 4, 4, 2, 4, 0, 0, 0, 1, 2, 3, 4, 2, 3, 3, 1)
TPCH_PUBLIC = ("part", "supplier", "partsupp", "nation", "region")
TPCH_KEYS = {
    "l_returnflag": ["A", "N", "R"],
    "l_linestatus": ["F", "O"],
    "l_shipmode": ["AIR", "AIR REG", "FOB", "MAIL", "RAIL", "SHIP", "TRUCK"],
    "o_orderpriority": ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"],
    "l_suppkey": list(range(50)),
}


def tpch(con: Any, *, customers: int = 150, cap: int = 400) -> None:
    """Make and protect tables in the form of TPC-H; every statement finds some rows.

    As by its rules a third of customers has no orders, an order has one to seven lines, a price is that of the part
    times the quantity, and flags follow from dates. So Q1 has four groups, with 25, .6, 50 and 25 % of the lines.
    """
    nations = ", ".join(f"({at}, '{name}', {_REGION_OF[at]})" for at, name in enumerate(_NATIONS))
    con.execute(f"""
        CREATE TABLE region AS
          SELECT * FROM (VALUES (0, 'AFRICA'), (1, 'AMERICA'), (2, 'ASIA'), (3, 'EUROPE'), (4, 'MIDDLE EAST'))
          AS v(r_regionkey, r_name);
        CREATE TABLE nation AS SELECT * FROM (VALUES {nations}) AS v(n_nationkey, n_name, n_regionkey);
        CREATE TABLE supplier AS
          SELECT i AS s_suppkey, 'Supplier#' || i AS s_name, 'address ' || i AS s_address,
            CAST(i % 25 AS INTEGER) AS s_nationkey, '25-989-741-' || i AS s_phone,
            CAST(hash(i, 'b') % 100000 AS DECIMAL(15, 2)) / 10 AS s_acctbal,
            CASE WHEN i % 20 = 3 THEN 'Customer bad Complaints' ELSE 'quiet' END AS s_comment
          FROM range(50) AS r(i);
        CREATE TABLE part AS
          SELECT i AS p_partkey, ['green', 'forest', 'blue', 'dark green'][1 + i % 4] || ' part' AS p_name,
            'Manufacturer#' || i % 5 AS p_mfgr, 'Brand#' || ['12', '23', '34', '45'][1 + i % 4] AS p_brand,
            ['PROMO BRASS', 'ECONOMY ANODIZED STEEL', 'MEDIUM POLISHED TIN', 'SMALL BRASS'][1 + (i // 4) % 4] AS p_type,
            CAST(1 + i % 15 AS INTEGER) AS p_size,
            ['SM CASE', 'MED BAG', 'LG BOX', 'MED BOX'][1 + i % 4] AS p_container,
            CAST(900 + 6 * i AS DECIMAL(15, 2)) AS p_retailprice
          FROM range(200) AS r(i);
        CREATE TABLE partsupp AS
          SELECT i % 200 AS ps_partkey, (i * 7 + i // 200) % 50 AS ps_suppkey, CAST(hash(i, 'q') % 9999 AS INTEGER) AS ps_availqty,
            CAST(hash(i, 'c') % 100000 AS DECIMAL(15, 2)) / 100 AS ps_supplycost
          FROM range(800) AS r(i);
        CREATE TABLE customer AS
          SELECT i AS c_custkey, 'Customer#' || i AS c_name, 'address' AS c_address, CAST(i % 25 AS INTEGER) AS c_nationkey,
            (10 + i % 25) || '-555' AS c_phone, CAST(CAST(hash(i, 'b') % 10000 AS DECIMAL(15, 2)) AS DECIMAL(15, 2)) AS c_acctbal,
            ['BUILDING', 'AUTOMOBILE', 'MACHINERY'][1 + i % 3] AS c_mktsegment, 'comment' AS c_comment
          FROM range({customers}) AS r(i);
        CREATE TABLE orders AS
          SELECT i AS o_orderkey, CAST(1 + hash(i, 'c') % {2 * (customers // 3)} * 3 // 2 AS BIGINT) AS o_custkey,
            ['F', 'O', 'F'][1 + i % 3] AS o_orderstatus, CAST(hash(i, 't') % 400000 AS DECIMAL(15, 2)) AS o_totalprice,
            DATE '1992-01-01' + CAST(hash(i, 'd') % 2405 AS INTEGER) AS o_orderdate,
            ['1-URGENT', '2-HIGH', '3-MEDIUM', '4-NOT SPECIFIED', '5-LOW'][1 + i % 5] AS o_orderpriority,
            0 AS o_shippriority, CASE WHEN i % 9 = 0 THEN 'special packages requests' ELSE 'plain' END AS o_comment
          FROM range({10 * customers}) AS r(i);
        CREATE TABLE lineitem AS
          SELECT o AS l_orderkey, part AS l_partkey, CAST((7 * part + hash(i, 's') % 4) % 50 AS BIGINT) AS l_suppkey,
            line AS l_linenumber, CAST(quantity AS DECIMAL(15, 2)) AS l_quantity,
            CAST(quantity * (900 + 6 * part) AS DECIMAL(15, 2)) AS l_extendedprice,
            CAST(CAST(hash(i, 'd') % 11 AS DECIMAL(15, 2)) / 100 AS DECIMAL(15, 2)) AS l_discount,
            CAST(CAST(hash(i, 'x') % 9 AS DECIMAL(15, 2)) / 100 AS DECIMAL(15, 2)) AS l_tax,
            CASE WHEN received > DATE '1995-06-17' THEN 'N' WHEN hash(i, 'f') % 2 = 0 THEN 'A' ELSE 'R' END AS l_returnflag,
            CASE WHEN shipped > DATE '1995-06-17' THEN 'O' ELSE 'F' END AS l_linestatus,
            shipped AS l_shipdate, ordered + 30 + CAST(hash(i, 'm') % 61 AS INTEGER) AS l_commitdate,
            received AS l_receiptdate, ['DELIVER IN PERSON', 'COLLECT COD'][1 + i % 2] AS l_shipinstruct,
            ['AIR', 'AIR REG', 'FOB', 'MAIL', 'RAIL', 'SHIP', 'TRUCK'][1 + CAST(hash(i, 'h') % 7 AS INTEGER)] AS l_shipmode
          FROM (SELECT *, shipped + 1 + CAST(hash(i, 'r') % 30 AS INTEGER) AS received,
              CAST(hash(i, 'k') % 200 AS INTEGER) AS part, CAST(1 + hash(i, 'q') % 50 AS INTEGER) AS quantity
            FROM (SELECT 7 * o_orderkey + line AS i, o_orderkey AS o, line, o_orderdate AS ordered,
                o_orderdate + 1 + CAST(hash(i, 'y') % 121 AS INTEGER) AS shipped
              FROM orders, range(1, 8) AS r(line) WHERE line <= 1 + hash(o_orderkey, 'l') % 7));
    """)
    # As in the schema of TPC-H.
    for column in ("quantity", "extendedprice", "discount", "tax"):
        con.execute(f"ALTER TABLE lineitem ALTER COLUMN l_{column} SET NOT NULL")
    protect_tpch(con, cap)


def protect_tpch(con: Any, cap: int) -> None:
    """Declare customers, orders and lines as one dataset, and the rest as public."""
    bounds = {"l_quantity": 50, "l_extendedprice": 105000, "l_discount": "0.1", "l_tax": "0.08", "c_acctbal": 10000}
    con.execute(f"""
        SELECT dp_protect('shop', {BUDGET}, max_rows_per_unit := {cap}, keys := {TPCH_KEYS},
          lower := {{{", ".join(f"{name}: 0" for name in bounds)}}},
          upper := {{{", ".join(f"{name}: {most}" for name, most in bounds.items())}}},
          tables := {{customer: 'c_custkey', orders: 'o_custkey', lineitem: 'l_orderkey -> orders.o_orderkey'}})
    """)
    for table in TPCH_PUBLIC:
        con.execute(f"SELECT dp_public('{table}')")


def has_tpch(con: Any) -> bool:
    """Say whether DuckDB's own generator of TPC-H is installed here; nothing is downloaded."""
    try:
        con.execute("SET autoinstall_known_extensions = false; LOAD tpch")
    except Exception:
        return False
    return True

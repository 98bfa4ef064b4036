# What `run` and `nightly` share; sourced by both, in the folder of the checkout.

unset PYTHONDONTWRITEBYTECODE  # or each of hundreds of processes compiles what another one has compiled

# What needs Sail, an engine of Spark's protocol without a JVM; and what needs a browser, the site's builder or a notebook.
SAIL="tests/engines tests/conformance/test_engines.py tests/docs/test_engines_page.py tests/unit/test_stubs.py"
SITE="tests/docs/test_site.py tests/docs/test_notebook.py"

packages() {  # COMMAND PACKAGE…: of Debian, where the command is missing and they can be installed
  command -v "$1" >/dev/null || [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null && return
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${@:2}" >/dev/null
}

services() {  # a PostgreSQL server, for the ledgers that are kept there
  ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || packages initdb postgresql
}

readme() {  # NAME: run the first ```sh block after the marker <!-- NAME --> of the README as it stands
  local command
  command=$(awk -v marker="<!-- $1 -->" '$0 == marker {found = 1} found && /^```sh/ {inside = 1; next}
    inside && /^```/ {exit} inside' README.md)
  test -n "$command"
  bash -euc "$command"
}

changed() {  # PART PATTERN: whether a path like this is other than when `nightly` last ran the part; not on record, yes
  local commit paths
  commit=$(awk -F ' *[|] *' -v part="$1" '$2 == part {print $8}' .ci/nightly-result.md)
  paths=$(git diff --name-only "$commit" 2>/dev/null) || return 0
  grep -Eq "$2" <<<"$paths"
}

pinned() {  # oldest|newest: a version of DuckDB that `duckdb.json` names
  .venv/bin/python -c 'import json, sys; print(json.load(open(".ci/duckdb.json"))[sys.argv[1]])' "$1"
}

install() {  # EXTRAS: into the environment that README's commands made
  if [[ $1 == *site* ]]; then packages chromium chromium; fi
  .venv/bin/python -m pip install -q ".[$1]"
}

tests() { .venv/bin/python -m pytest -q -n 2 "$@"; }  # ARGUMENTS…: in the environment that README's commands made

noted() {  # COMMAND…: that runs tests, of which is noted what they enter, for `reach.py`
  PYTEST_ADDOPTS='-p reach' PYTHONPATH="$PWD/.ci" "$@"
}

python() { .venv/bin/python ".ci/$1" "${@:2}"; }  # SCRIPT ARGUMENTS…

oldest() {  # ARGUMENTS…: tests on the oldest DuckDB supported, in an environment of its own
  [ -d .venv-oldest ] || { python3 -m venv .venv-oldest &&
    .venv-oldest/bin/python -m pip install -q '.[test]' "duckdb==$(pinned oldest)"; }
  .venv-oldest/bin/python -m pytest -q -n 2 "$@"
}

lint() {
  .venv/bin/python -m ruff check . &&
    .venv/bin/python -m ruff format --check . &&
    .venv/bin/python -m mypy &&
    .venv/bin/python -m dpsql.generate --check &&
    .venv/bin/python .ci/mutants.py --check &&
    .venv/bin/python -m pytest -q -n 2 -m "not slow" tests/unit/test_{rooms,orders,caches,codes,measurement,port}.py
}

dbt() {  # ARGUMENTS…: tests, in an environment that dbt can live in
  python3 -m venv .venv-dbt
  .venv-dbt/bin/python -m pip install -q '.[dbt,plot]' pytest pytest-xdist pytest-timeout hypothesis
  .venv-dbt/bin/python -m pytest -q -n 2 "$@"
}

jvm() {  # ARGUMENTS…: tests on Apache Spark
  packages java default-jre-headless
  packages ip iproute2
  python3 -m venv .venv-jvm
  .venv-jvm/bin/python -m pip install -q -e . pytest pytest-xdist pytest-timeout hypothesis 'pyspark[connect]==4.3.0' 'pandas<3'
  .venv-jvm/bin/python -m pytest -q "$@"
}

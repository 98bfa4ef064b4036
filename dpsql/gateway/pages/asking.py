"""Serve the pages for queries: datasets, the price of a question, its answer, and earlier answers.

An answer downloads as CSV that a spreadsheet never runs as a formula, as Parquet, or as an Arrow stream with receipts.
Each function has a form, made from its argument list. A filled form becomes a statement, which the page shows before
it runs. The same box reads this statement and typed ones.
"""

from __future__ import annotations

import csv
import io
import json
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from starlette.responses import Response
from starlette.routing import BaseRoute

from dpsql.contract.arguments import Argument
from dpsql.errors import DpsqlError, GatewayError
from dpsql.functions.registry import FUNCTIONS, QUERY
from dpsql.gateway.encoding import ARROW, JSON, RECEIPTS, arrow_bytes, column_values, json_bytes, plain
from dpsql.gateway.http import answered
from dpsql.gateway.pages.elements import Element, h
from dpsql.gateway.pages.parts import (
    Site,
    alert,
    badge,
    choice_field,
    cost_text,
    facts,
    heading,
    left_out,
    link_to,
    own_budget,
    policy_text,
    receipt,
    rows_of,
    secret_field,
    table_of,
    text_field,
    tick,
    turning,
    when,
)
from dpsql.gateway.pages.picture import number_text, pictures
from dpsql.gateway.pages.sessions import KeptAnswer, Logins, WebSession
from dpsql.gateway.pages.visits import Entrance, Visit, WebPage, is_entry, routes_of, see
from dpsql.gateway.problems import Problem, problem_of

# Arguments that the gateway sets itself (G016).
_STATED = {"engine", "release", "dataset"}
# Common arguments, in addition to the required ones.
_USUAL = ("epsilon", "by", "keys", "lower", "upper", "bins", "n_bins", "quantiles", "delta", "condition", "during")
_MOST_BOXES = 40
_is_number = re.compile(r"[+-]?(?=[0-9.]*[0-9])[0-9]{0,40}(\.[0-9]{0,40})?([eE][+-]?[0-9]{1,3})?").fullmatch


def arguments_of(function: str) -> list[Argument]:
    """Return the arguments of a form: first required, then common, then all others."""
    every = [argument for name, argument in FUNCTIONS[function].plan.arguments.items() if name not in _STATED]
    required = [argument for argument in every if argument.required]
    usual = [argument for argument in every if is_usual(argument) and not argument.required]
    return [*required, *usual, *(argument for argument in every if not is_usual(argument))]


def is_usual(argument: Argument) -> bool:
    """Return whether a form shows an argument at once."""
    return argument.required or argument.name in _USUAL


def statement_of(function: str, source: str, fields: Mapping[str, Sequence[str]]) -> str:
    """Return the statement of a filled form, without empty fields."""
    arguments = [f"{name} := {value}" for name, value in _values(function, fields)]
    inner = ",\n  ".join([_quoted(source), *arguments])
    return f"SELECT * FROM {function}(\n  {inner}\n)"


def _values(function: str, fields: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    for argument in arguments_of(function):
        texts = [text.strip() for text in fields.get(f"a.{argument.name}", ()) if text.strip()]
        if texts:
            yield argument.name, _literal(argument, texts)


def _literal(argument: Argument, texts: Sequence[str]) -> str:
    """Return the input as SQL: a number, a string, or a list of these; keep a literal as written."""
    if len(texts) > 1:
        return f"[{', '.join(map(_quoted, texts))}]"
    text = texts[0]
    if text[0] in "[{" or text.lower() in ("true", "false", "null"):
        return text
    if argument.choices or argument.name == "condition" or argument.annotation == "str":
        return _quoted(text)
    if "," in text and not argument.names_column:
        return f"[{', '.join(_word(part.strip()) for part in text.split(',') if part.strip())}]"
    if "," in text:
        return f"[{', '.join(_quoted(part.strip()) for part in text.split(',') if part.strip())}]"
    listed = argument.annotation == "Keys" and text != "private"
    return f"[{_word(text)}]" if listed else _word(text)


def _word(text: str) -> str:
    is_literal = len(text) > 1 and text[0] == text[-1] == "'"
    return text if _is_number(text) or is_literal else _quoted(text)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def field_of(argument: Argument, columns: Sequence[Mapping[str, Any]], epsilon: str | None) -> Element:
    """Return the field of an argument, with its label and its meaning."""
    name, hint = f"a.{argument.name}", f"doc-{argument.name}"
    label = [argument.name, h("span", {"class": "needed"}, " (required)") if argument.required else None]
    usual = argument.shown_default
    default = "" if not usual or argument.required else f" {'It is' if 'required' in usual else 'Default:'} {usual}."
    doc = h("p", {"class": "hint", "id": hint}, argument.doc, default)
    names = [str(column["name"]) for column in columns]
    is_list = argument.names_column and argument.annotation != "str"
    if is_list and len(names) <= _MOST_BOXES:
        boxes = [
            h(
                "label",
                {"class": "box"},
                h("input", {"type": "checkbox", "name": name, "value": column}),
                h("bdi", {}, column),
            )
            for column in names
        ]
        return h(
            "fieldset", {"aria-describedby": hint}, h("legend", {}, label), h("div", {"class": "boxes"}, boxes), doc
        )
    identity = f"field-{argument.name}"
    attributes = {"id": identity, "name": name, "aria-describedby": hint, "required": argument.required}
    options: list[tuple[str, str]] = []
    if argument.names_column and len(names) <= 500 and not is_list:
        options = [(column, column) for column in names]
    elif argument.choices:
        options = [(choice, choice) for choice in argument.choices]
    elif isinstance(argument.default, bool):
        options = [("true", "yes"), ("false", "no")]
    if options:
        every = [("", "choose a column" if argument.names_column and argument.required else "as usual"), *options]
        control = h("select", attributes, [h("option", {"value": value}, text) for value, text in every])
    else:
        number = argument.annotation in ("Number", "Integer")
        more = {"inputmode": "decimal"} if number else {}
        value = epsilon if argument.name == "epsilon" else None
        control = h("input", {**attributes, **more, "type": "text", "autocomplete": "off", "value": value})
    return h("div", {"class": "field"}, h("label", {"for": identity}, label), control, doc)


_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_bytes(answer: KeptAnswer) -> bytes:
    """Return the rows as CSV.

    A string that a spreadsheet would compute gets an apostrophe before it; numbers stay unchanged.
    """
    lines = io.StringIO(newline="")
    writer = csv.writer(lines, lineterminator="\r\n")
    writer.writerow([_cell(name) for name in answer.table.column_names])
    for row in zip(*map(column_values, answer.table.columns), strict=True):
        writer.writerow([_cell(value) for value in row])
    return lines.getvalue().encode("utf-8", "replace")


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, int | float):
        return str(value)
    content = plain(value)
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    return f"'{text}" if text.startswith(_FORMULA) else text


def parquet_bytes(answer: KeptAnswer) -> bytes:
    """Return the rows as Parquet, with the receipts in the metadata of the schema."""
    metadata = {**(answer.table.schema.metadata or {}), RECEIPTS: json_bytes(answer.receipts)}
    sink = pa.BufferOutputStream()
    pq.write_table(answer.table.replace_schema_metadata(metadata), sink)
    body: bytes = sink.getvalue().to_pybytes()
    return body


# File ending -> label, media type and writer.
FILES: dict[str, tuple[str, str, Any]] = {
    "csv": ("CSV", "text/csv; charset=utf-8", csv_bytes),
    "parquet": ("Parquet", "application/vnd.apache.parquet", parquet_bytes),
    "arrows": ("Arrow", ARROW, lambda answer: arrow_bytes(answer.table, answer.receipts)),
}


SITE = Site(
    "dpsql", "dpsql", (("/datasets", "Datasets"), ("/ask", "Ask"), ("/form", "Forms"), ("/releases", "History"))
)
_SETTINGS = ("epsilon", "delta", "max_age")
_WORDS = (
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP BY",
    "ORDER BY",
    "count(*)",
    "sum",
    "avg",
    "AND",
    "BETWEEN",
    "JOIN",
    "LIMIT",
)


def asking_routes(door: Entrance, sessions: Logins | None = None) -> list[BaseRoute]:
    """Return the routes of the query site."""
    return routes_of(door, SITE, _PAGES, sessions=sessions)


def _datasets(door: Any, visit: Visit) -> Response:
    token = visit.session.token
    budgets = {str(budget["dataset"]): budget for budget in door.budget(token)}
    rows = []
    for entry in door.datasets(token):
        name, dataset = str(entry["name"]), str(entry.get("dataset", entry["name"]))
        asks = bool(entry.get("functions"))
        rows.append(
            (
                h("a", {"href": link_to("/dataset", name=name)}, h("bdi", {}, name)),
                h("bdi", {}, dataset),
                own_budget(budgets[dataset]) if dataset in budgets else None,
                when(entry.get("expires")) or "does not end",
                h("a", {"href": link_to("/ask", dataset=name)}, "Ask") if asks else "read only",
            )
        )
    table = table_of("What you may ask about", ("Name", "Budget of", "Your budget", "Until", "Action"), rows)
    lead = "Each answer spends some of a budget. An equal question is answered with the same numbers, at no cost."
    return visit.page("Datasets", h("p", {"class": "lead"}, lead), table, here="/datasets")


def _dataset(door: Any, visit: Visit) -> Response:
    name = visit.field("name")
    description = door.describe(visit.session.token, name)
    rows = [
        (
            h("bdi", {}, str(column["name"])),
            h("code", {}, str(column["type"])),
            _bounds(column),
            h("bdi", {}, policy_text(column.get("keys") or column.get("target_levels")) or "—"),
        )
        for column in description["columns"]
    ]
    policies = facts(
        (key.replace("_", " "), policy_text(value)) for key, value in (description.get("stated") or {}).items()
    )
    functions = [function for function in description.get("functions", ()) if function in FUNCTIONS]
    forms = [
        h("li", {}, h("a", {"href": link_to("/form", dataset=name, function=function)}, function), " ", _doc(function))
        for function in functions
    ]
    content = (
        h("p", {}, h("a", {"class": "button main", "href": link_to("/ask", dataset=name)}, "Ask in SQL")),
        h(
            "div",
            {"class": "cards"},
            h(
                "section",
                {"class": "card"},
                h("h2", {}, "Your budget"),
                [own_budget(budget) for budget in description.get("budget", ())],
            ),
            h("section", {"class": "card"}, h("h2", {}, "Who is protected"), policies),
        ),
        table_of("Columns, and what their owner stated of them", ("Column", "Type", "Bounds", "Public values"), rows),
        h("h2", {}, "Forms"),
        h("ul", {"class": "functions"}, forms),
    )
    return visit.page(name, content, top=heading(h("bdi", {}, name)))


def _doc(function: str) -> str:
    text = FUNCTIONS[function].doc
    return text if isinstance(text, str) else ""


def _bounds(column: Mapping[str, Any]) -> str:
    ends = [column.get("lower"), column.get("upper")]
    return "—" if ends == [None, None] else " to ".join("…" if end is None else policy_text(end) for end in ends)


def _form(door: Any, visit: Visit) -> Response:
    """Show the form of a function; show its statement before it runs."""
    token, source, function = visit.session.token, visit.field("dataset"), visit.field("function")
    listed = {str(dataset["name"]): dataset for dataset in door.datasets(token)}
    source = source or next(iter(listed), "")
    granted = [name for name in listed.get(source, {}).get("functions", ()) if name in FUNCTIONS]
    function = function if function in granted else next(iter(granted), "")
    choose = h(
        "form",
        {"method": "get", "action": "/form", "class": "card choose"},
        choice_field("dataset", "Dataset", listed, source),
        choice_field("function", "Function", granted, function),
        h("button", {}, "Show its form"),
    )
    form = None
    if function:
        columns = door.describe(token, source)["columns"]
        usual = listed[source].get("default_epsilon")
        arguments = arguments_of(function)
        form = h(
            "form",
            {"method": "post", "action": "/form", "class": "card filled"},
            secret_field(visit.session),
            h("input", {"type": "hidden", "name": "dataset", "value": source}),
            h("input", {"type": "hidden", "name": "function", "value": function}),
            h("h2", {}, h("code", {}, function), " of ", h("bdi", {}, source)),
            h("p", {}, _doc(function)),
            [field_of(argument, columns, usual) for argument in arguments if is_usual(argument)],
            h(
                "details",
                {},
                h("summary", {}, "More"),
                [field_of(argument, columns, usual) for argument in arguments if not is_usual(argument)],
            ),
            h("button", {"class": "main"}, "Price it"),
            h("p", {"class": "hint"}, "Nothing is asked yet: the next page shows the statement and what it costs."),
        )
    return visit.page("Forms", choose, form, here="/form")


def _filled(door: Any, visit: Visit) -> Response:
    function, source = visit.field("function"), visit.field("dataset")
    if function not in FUNCTIONS or not FUNCTIONS[function].spends:
        raise GatewayError("G007", "there is no form of this function. Choose one of the list.")
    return _priced(door, visit, statement_of(function, source, visit.fields), {})


def _ask(door: Any, visit: Visit) -> Response:
    """Show the editor with an earlier answer's statement, or a dataset's first one."""
    again, source = visit.session.answers.get(visit.field("again")), visit.field("dataset")
    sql, settings = (again.sql, dict(again.settings)) if again is not None else ("", {})
    if source and not sql:
        sql = f"SELECT count(*) AS n FROM {_name(source)}"
    settings.pop("fresh", None)
    return _editor(door, visit, sql, settings)


def _name(source: str) -> str:
    parts = source.split(".")
    return ".".join(
        part if part.isidentifier() and part.islower() else '"' + part.replace('"', '""') + '"' for part in parts
    )


def _submit(door: Any, visit: Visit) -> Response:
    """Price or run the editor's statement."""
    sql, settings = visit.field("sql").replace("\r\n", "\n"), _settings(visit)
    suggestion = visit.field("take")
    if suggestion or visit.field("do") != "ask":
        return _priced(door, visit, suggestion or sql, settings)
    spends = dict(settings)
    if settings.get("fresh"):
        spends["idempotency_key"] = visit.field("key")
    try:
        answer = answered(door, visit.session.token, sql, spends)
    except DpsqlError as error:
        _let_end(error)
        return _editor(door, visit, sql, settings, problem=problem_of(error), key=visit.field("key"))
    record = KeptAnswer(sql, settings, answer.table, answer.receipts)
    return see(f"/answers/{visit.sessions.keep(visit.session, record)}")


def _let_end(error: DpsqlError) -> None:
    if error.code == "DPSQL-G020":
        raise error


def _settings(visit: Visit) -> dict[str, str]:
    settings = {name: visit.field(name).strip() for name in _SETTINGS if visit.field(name).strip()}
    for name, text in settings.items():
        if len(text) > 40:
            raise GatewayError("G021", f"{name} must be a number of at most 40 digits.")
    return settings | ({"fresh": "true"} if visit.field("fresh") else {})


def _priced(door: Any, visit: Visit, sql: str, settings: dict[str, str]) -> Response:
    """Show the editor with the price of its statement."""
    try:
        price = _price(door, visit.session, sql, settings)
    except DpsqlError as error:
        _let_end(error)
        return _editor(door, visit, sql, settings, problem=problem_of(error), key=visit.field("key"))
    return _editor(door, visit, sql, settings, price=price, key=visit.field("key"))


def _price(door: Any, session: WebSession, sql: str, settings: Mapping[str, str]) -> Element:
    """Return the cost of a statement, or its refusal; read nothing."""
    estimate = door.estimate(session.token, sql, settings)
    balances = {str(budget["dataset"]): budget.get("epsilon_remaining") for budget in door.budget(session.token)}
    lines = []
    for call in estimate["calls"]:
        datasets = ", ".join(map(str, call.get("datasets", ())))
        refusal = call.get("refusal")
        of = [" of ", h("bdi", {}, datasets)] if datasets else ""
        if call.get("free") and not settings.get("fresh"):
            sentence: list[object] = [h("strong", {}, "Free"), ": it was answered before, and the answer is the same."]
        elif refusal:
            sentence = [h("strong", {}, cost_text(call)), of, " would be refused: ", str(refusal.get("message"))]
        else:
            sentence = [h("strong", {}, cost_text(call)), of, _leaves(balances.get(datasets), call.get("epsilon")), "."]
        lines.append(
            h("li", {"class": "refused" if refusal else None}, h("code", {}, str(call["function"])), " ", sentence)
        )
    if not lines:
        lines.append(h("li", {}, h("strong", {}, "Free"), ": it asks nothing of anybody's rows."))
    return h("div", {"class": "price"}, h("h2", {}, "Price"), h("ul", {}, lines))


def _leaves(balance: object, epsilon: object) -> str:
    """Return the remainder of an own budget after an answer, in words; empty without an epsilon limit."""
    if balance is None or epsilon is None:
        return ""
    return f", which leaves you ε {number_text(max(0.0, float(str(balance)) - float(str(epsilon))))}"


def _price_alone(door: Any, visit: Visit) -> Response:
    """Return the price as a page fragment, for the script."""
    sql = visit.field("sql").replace("\r\n", "\n")
    try:
        piece = _price(door, visit.session, sql, _settings(visit)) if sql.strip() else h("div")
    except DpsqlError as error:
        _let_end(error)
        piece = alert(problem_of(error), sql, taking=True, focused=False)
    return Response(str(piece).encode("utf-8", "replace"), media_type="text/html; charset=utf-8")


def _words(door: Any, visit: Visit) -> Response:
    """Return the columns of a dataset, for completion."""
    description = door.describe(visit.session.token, visit.field("dataset"))
    return Response(json_bytes([str(column["name"]) for column in description["columns"]]), media_type=JSON)


def _editor(
    door: Any,
    visit: Visit,
    sql: str,
    settings: Mapping[str, str],
    *,
    price: Element | None = None,
    problem: Problem | None = None,
    key: str = "",
) -> Response:
    session = visit.session
    listed = door.datasets(session.token)
    names = [str(dataset["name"]) for dataset in listed]
    functions = sorted({name for dataset in listed for name in dataset.get("functions", ()) if name != QUERY})
    usual = next((dataset["default_epsilon"] for dataset in listed if dataset.get("default_epsilon")), None)
    least = next(
        (f", at least {dataset['least_epsilon']}" for dataset in listed if float(dataset.get("least_epsilon", 0))), ""
    )
    refusal = None if problem is None else alert(problem, sql, taking=True)
    editor = h(
        "textarea",
        {
            "id": "sql", "name": "sql", "rows": max(6, min(20, sql.count("\n") + 2)), "spellcheck": "false",
            "autocomplete": "off", "autocapitalize": "none", "required": True, "maxlength": 65_000,
            "aria-describedby": "sql-hint" if problem is None else "refusal",
            "aria-invalid": None if problem is None else "true", "autofocus": problem is None and price is None,
            "data-words": json_bytes([*names, *functions, *_WORDS]).decode(),
            "data-datasets": json_bytes(names).decode(),
        },
        sql,
    )  # fmt: skip
    fields = h(
        "div",
        {"class": "row"},
        text_field(
            "epsilon",
            "Epsilon",
            (f"by default {usual}" if usual else "such as 0.5") + least,
            value=settings.get("epsilon"),
        ),
        text_field("delta", "Delta", "none", value=settings.get("delta")),
        text_field("max_age", "Oldest answer, hours", "24", value=settings.get("max_age")),
        tick("fresh", "Draw anew, and pay again", ticked="fresh" in settings),
    )
    form = h(
        "form",
        {"method": "post", "action": "/ask", "class": "card editor", "id": "editor"},
        secret_field(session),
        h("input", {"type": "hidden", "name": "key", "value": key or secrets.token_urlsafe(12)}),
        refusal,
        h("label", {"for": "sql"}, "One SELECT: an aggregate of a dataset, or a private function"),
        editor,
        h(
            "p",
            {"class": "hint", "id": "sql-hint"},
            "Datasets: ",
            [[h("code", {}, h("bdi", {}, name)), " "] for name in names],
        ),
        fields,
        h("div", {"id": "price", "role": "status", "tabindex": "-1", "autofocus": price is not None}, price),
        h(
            "div",
            {"class": "buttons"},
            h("button", {"name": "do", "value": "price"}, "Price"),
            h("button", {"name": "do", "value": "ask", "class": "main"}, "Ask"),
        ),
    )
    budgets = [
        h("section", {"class": "card"}, h("h2", {}, h("bdi", {}, str(budget["dataset"]))), own_budget(budget))
        for budget in door.budget(session.token)
    ]
    beside = h("div", {"class": "beside"}, form, h("aside", {"aria-label": "Your budgets"}, budgets))
    return visit.page("Ask", beside, here="/ask", status=200 if problem is None else problem.status)


def _answer(_: Any, visit: Visit) -> Response:
    name = visit.path["name"]
    return _result(visit, name, _answer_of(visit), "Answer")


def _answer_of(visit: Visit) -> KeptAnswer:
    answer = visit.session.answers.get(visit.path["name"])
    if answer is None:
        raise GatewayError("G018", "this answer is not kept any more. Look at History: what was released is free.")
    return answer


def _result(visit: Visit, name: str, answer: KeptAnswer, title: str) -> Response:
    charged = [entry for entry in answer.receipts if entry.get("charged")]
    verdicts = [
        str((entry.get("noise") or {}).get("verdict"))
        for entry in answer.receipts
        if (entry.get("noise") or {}).get("verdict")
    ]
    cost = ", ".join(f"{cost_text(entry)} of {entry.get('dataset')}" for entry in charged)
    summary = h(
        "p",
        {"class": "summary"},
        [badge(fromkey) for fromkey in dict.fromkeys(verdicts)],
        h("span", {}, f"Charged {cost}." if charged else "Free: nothing was charged."),
    )
    again = (
        h("a", {"class": "button", "href": link_to("/ask", again=name)}, "Edit the question") if answer.sql else None
    )
    files = [
        h("a", {"class": "button", "href": f"/answers/{name}/{ending}", "download": f"dpsql.{ending}"}, label)
        for ending, (label, _, _) in FILES.items()
    ]
    content = (
        summary,
        h("pre", {"class": "statement"}, answer.sql) if answer.sql else None,
        h("div", {"class": "drawn"}, pictures(answer.table)),
        rows_of(answer.table),
        h("div", {"class": "buttons"}, again, h("span", {"class": "hint"}, "Download"), files),
        left_out(answer.receipts),
        [receipt(entry, opened=len(answer.receipts) == 1) for entry in answer.receipts],
    )
    return visit.page(title, content, top=heading(title, focused=True))


def _file(_: Any, visit: Visit) -> Response:
    answer, ending = _answer_of(visit), visit.path["ending"]
    if ending not in FILES:
        raise GatewayError("G018", "there is no such download. Take one of those below the answer.")
    _, kind, encode = FILES[ending]
    return Response(
        encode(answer), media_type=kind, headers={"content-disposition": f'attachment; filename="dpsql.{ending}"'}
    )


def _releases(door: Any, visit: Visit) -> Response:
    own = door.releases(visit.session.token, visit.entry("before"))
    rows = []
    for release in reversed(own):
        verdict = (release.get("noise") or {}).get("verdict")
        rows.append(
            (
                h("a", {"href": f"/releases/{release['entry']}"}, f"Entry {release['entry']}"),
                when(release.get("recorded_at")),
                [h("code", {}, str(release.get("function"))), " of ", h("bdi", {}, str(release.get("dataset")))],
                cost_text(release),
                badge(str(verdict)) if verdict else None,
                h("a", {"class": "button", "href": f"/releases/{release['entry']}"}, "Ask again (free)"),
            )
        )
    answers = [(name, answer) for name, answer in reversed(visit.session.answers.items()) if answer.sql]
    here = [
        h("li", {}, h("a", {"href": f"/answers/{name}"}, h("code", {"class": "wraps"}, answer.sql[:200])))
        for name, answer in answers
    ]
    content = (
        [h("h2", {}, "Asked since you logged in"), h("ul", {"class": "asked"}, here)] if here else None,
        table_of("Your releases, the latest first", ("Release", "When", "What", "Cost", "Verdict", "Action"), rows),
        turning("/releases", own, "entry", visit.entry("before")),
    )
    return visit.page("History", content, here="/releases")


def _release(door: Any, visit: Visit) -> Response:
    number = visit.path["number"]
    if not is_entry(number):
        raise GatewayError("G018", "you have no such release. List your releases.")
    release = door.release(visit.session.token, int(number))
    answer = KeptAnswer("", {}, release.table, release.receipts)
    name = visit.sessions.keep(visit.session, answer)
    return _result(visit, name, answer, f"Release of entry {number}")


_PAGES = (
    WebPage("GET", "/", lambda _door, _visit: see("/datasets")),
    WebPage("GET", "/datasets", _datasets),
    WebPage("GET", "/dataset", _dataset),
    WebPage("GET", "/form", _form),
    WebPage("POST", "/form", _filled),
    WebPage("GET", "/ask", _ask),
    WebPage("POST", "/ask", _submit, spends=True),
    WebPage("POST", "/ask/price", _price_alone),
    WebPage("GET", "/words", _words),
    WebPage("GET", "/answers/{name}", _answer),
    WebPage("GET", "/answers/{name}/{ending}", _file),
    WebPage("GET", "/releases", _releases),
    WebPage("GET", "/releases/{number}", _release),
)

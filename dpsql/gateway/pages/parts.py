"""Parts of pages: frame, tables, budgets, receipts and refusals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from dpsql.contract.covers import ALL_ROWS, COVERING, VERDICTS, covered
from dpsql.dataclass import dataclass
from dpsql.gateway.encoding import column_values, plain
from dpsql.gateway.frames import MOST_ENTRIES
from dpsql.gateway.pages.elements import Element, h
from dpsql.gateway.pages.picture import number_text
from dpsql.gateway.pages.sessions import WebSession
from dpsql.released.release import interval_digits

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsql.gateway.problems import Problem

_MOST_ROWS = 1000


@dataclass(frozen=True)
class Site:
    """One of the two sites.

    Attributes
    ----------
    name, key : str
        Display name, and cookie name.
    links : tuple of (str, str)
        Address and text of each navigation entry.
    """

    name: str
    key: str
    links: tuple[tuple[str, str], ...]


def framed(site: Site, title: str, session: WebSession | None, here: str, *content: object) -> Element:
    """Return a whole page."""
    links = [
        h("a", {"href": address, "aria-current": "page" if address == here else None}, text)
        for address, text in site.links
    ]
    leave = None
    if session is not None:
        leave = h(
            "form",
            {"method": "post", "action": "/logout", "class": "leave"},
            secret_field(session),
            h("span", {"class": "who"}, h("bdi", {}, session.principal)),
            h("button", {"class": "quiet"}, "Log out"),
        )
    return h(
        "html",
        {"lang": "en"},
        h(
            "head",
            {},
            h("meta", {"charset": "utf-8"}),
            h("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
            h("meta", {"name": "color-scheme", "content": "light dark"}),
            h("title", {}, title, " · ", site.name),
            h("link", {"rel": "icon", "href": "/gateway.svg", "type": "image/svg+xml"}),
            h("link", {"rel": "stylesheet", "href": "/gateway.css"}),
            h("script", {"src": "/gateway.js", "defer": True}),
        ),
        h(
            "body",
            {},
            h("a", {"class": "skip", "href": "#main"}, "Skip to content"),
            h(
                "header",
                {},
                h("a", {"class": "brand", "href": "/"}, h("span", {"class": "mark", "aria-hidden": "true"}), site.name),
                h("nav", {"aria-label": "Pages"}, links) if session is not None else None,
                leave,
            ),
            h("main", {"id": "main"}, content),
        ),
    )


def secret_field(session: WebSession) -> Element:
    """Return the hidden field that ties a form to this session."""
    return h("input", {"type": "hidden", "name": "csrf", "value": session.secret})


def text_field(
    name: str, label: str, usual: str, *, value: str | None = None, hint: str = "", needed: bool = False
) -> Element:
    """Return a text field with its label; `usual` shows the default of an empty field."""
    hint_id = f"{name}-hint" if hint else None
    attributes = {
        "id": name, "name": name, "type": "text", "autocomplete": "off", "maxlength": 1000, "value": value,
        "placeholder": usual or None, "required": needed, "aria-describedby": hint_id,
    }  # fmt: skip
    doc = h("p", {"class": "hint", "id": hint_id}, hint) if hint else None
    return h("div", {"class": "field"}, h("label", {"for": name}, label), h("input", attributes), doc)


def choice_field(name: str, label: str, options: Iterable[str], chosen: str = "", *, none: str = "") -> Element:
    """Return a choice field; `none` is the label of the empty option."""
    choices = [h("option", {"value": option, "selected": option == chosen}, option or none) for option in options]
    return h(
        "div", {"class": "field"}, h("label", {"for": name}, label), h("select", {"id": name, "name": name}, choices)
    )


def tick(name: str, text: str, *, ticked: bool = False) -> Element:
    """Return a checkbox."""
    box = h("input", {"type": "checkbox", "name": name, "value": "true", "checked": ticked})
    return h("label", {"class": "box"}, box, text)


def heading(text: object, *more: object, focused: bool = False) -> Element:
    """Return a page's heading; a reader begins at a focused heading."""
    return h("h1", {"tabindex": "-1", "autofocus": True} if focused else {}, text, *more)


def table_of(
    caption: str | Sequence[str],
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    numbers: Sequence[bool] = (),
) -> Element:
    """Return a table that scrolls alone if it is wider than the page."""
    right = [*numbers, *[False] * (len(columns) - len(numbers))]
    head = [
        h("th", {"scope": "col", "class": "n" if is_number else None}, name)
        for name, is_number in zip(columns, right, strict=True)
    ]
    body = [
        h(
            "tr",
            {},
            [h("td", {"class": "n" if is_number else None}, cell) for cell, is_number in zip(row, right, strict=True)],
        )
        for row in rows
    ]
    empty = None if body else h("tr", {}, h("td", {"colspan": len(columns), "class": "empty"}, "nothing yet"))
    table = h(
        "table",
        {},
        h("caption", {}, h("span", {}, caption)),
        h("thead", {}, h("tr", {}, head)),
        h("tbody", {}, body, empty),
    )
    label = caption if isinstance(caption, str) else "".join(caption)
    return h("div", {"class": "scroll", "tabindex": "0", "role": "region", "aria-label": label}, table)


def link_to(path: str, **fields: str) -> str:
    """Return an address of this site with fields."""
    return f"{path}?{urlencode(fields, errors='replace')}" if fields else path


def turning(path: str, entries: Sequence[Mapping[str, Any]], number: str, before: int | None) -> Element | None:
    """Return links to earlier entries and to the last ones; `entries` begin with the oldest."""
    links = []
    if before is not None:
        links.append(h("a", {"class": "button", "href": path}, "The last ones"))
    if len(entries) >= MOST_ENTRIES:
        earlier = link_to(path, before=str(entries[0][number]))
        links.append(h("a", {"class": "button", "href": earlier}, "Earlier ones"))
    return h("nav", {"class": "buttons", "aria-label": "Entries"}, links) if links else None


def rows_of(table: pa.Table) -> Element:
    """Return released rows as a table."""
    head = table.slice(0, _MOST_ROWS)
    names, columns = head.column_names, list(map(column_values, head.columns))
    words = {column[0] if column else None for name, column in zip(names, columns, strict=True) if name in COVERING}
    coverage = words.pop() if len(words) == 1 and len(names) > len(COVERING) else None  # the same in every row
    if coverage is not None:
        positions = [position for position, name in enumerate(names) if name not in COVERING]
        names, columns = [names[position] for position in positions], [columns[position] for position in positions]
    numbers = [any(_is_number(cell) for cell in column) for column in columns]
    rows = [_cells(names, row) for row in zip(*columns, strict=True)]
    more = table.num_rows - head.num_rows
    caption = [
        f"{table.num_rows} row{'s' * (table.num_rows != 1)}",
        f", of which the first {_MOST_ROWS} are shown; a download has all" if more else "",
        f". Covers {coverage}." if coverage else "",
    ]
    return table_of(caption, names, rows, numbers=numbers)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cells(names: Sequence[str], row: Sequence[object]) -> list[object]:
    digits = interval_digits(dict(zip(names, row, strict=True)))
    return [_cell(name, value, digits.get(name)) for name, value in zip(names, row, strict=True)]


def _cell(name: str, value: object, digits: int | None = None) -> object:
    if value is None:
        return h("span", {"class": "null"}, "NULL")
    if name == "verdict":
        return badge(str(value))
    if isinstance(value, float):
        return number_text(value, digits)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value).replace("-", "−")
    return h("bdi", {}, value if isinstance(value, str) else str(plain(value)))


def badge(word: str, kind: str = "other") -> Element:
    """Return a word with the colour of its verdict, or of a kind."""
    kind = word.replace(" ", "-") if word in VERDICTS else kind
    return h("span", {"class": f"badge {kind}"}, word)


def facts(pairs: Iterable[tuple[str, object]]) -> Element:
    """Return names and values as a list, without empty values."""
    terms = [(name, value) for name, value in pairs if value not in (None, "", [], {})]
    return h("dl", {"class": "facts"}, [[h("dt", {}, name), h("dd", {}, value)] for name, value in terms])


_CHARGED: Mapping[object, str] = {True: "now", False: "no: it was released before, and this is that answer"}


def receipt(entry: Mapping[str, Any], *, opened: bool = False) -> Element:
    """Return the receipt of a release."""
    noise, policy = entry.get("noise") or {}, dict(entry.get("policy") or {})
    resolution = noise.get("resolution")
    pairs = [
        ("guarantee", entry.get("guarantee")),
        ("cost", cost_text(entry)),
        ("charged", _CHARGED.get(entry.get("charged"))),
        ("function", h("code", {}, entry["function"]) if entry.get("function") else None),
        ("dataset", h("bdi", {}, entry["dataset"]) if entry.get("dataset") else None),
        ("asked of", h("code", {"class": "wraps"}, entry["source"]) if entry.get("source") else None),
        ("verdict", badge(str(noise["verdict"])) if noise.get("verdict") else None),
        ("clear means", noise.get("claim")),
        ("confidence", noise.get("confidence")),
        ("noise alone makes", None if resolution is None else f"{number_text(resolution)} {noise.get('unit') or ''}"),
        ("covers", covered(policy)),
        *((name.replace("_", " "), policy_text(value)) for name, value in policy.items() if name not in COVERING),
        ("recorded", when(entry.get("recorded_at"))),
    ]
    event = h("details", {}, h("summary", {}, "Mechanism"), h("pre", {}, event_text(entry.get("event"))))
    return h(
        "details",
        {"class": "card receipt", "open": opened},
        h("summary", {}, f"Receipt of entry {entry.get('entry')}"),
        facts(pairs),
        event,
    )


def left_out(receipts: Sequence[Mapping[str, Any]]) -> Element | None:
    """Return the data that limits dropped, according to receipts; None if receipts report none."""
    sections = []
    for entry in receipts:
        noise, coverage = entry.get("noise") or {}, covered(entry)
        lines: list[object] = []
        if coverage and coverage != ALL_ROWS:
            lines.append(h("p", {}, "The numbers cover: ", h("bdi", {}, str(coverage)), "."))
        losses = noise.get("left_out")
        if losses:
            units = f"People with more rows than count: {_about(losses, 'units')}."
            fell = [_fell_away(loss) for loss in losses.get("fell_away", ())]
            lines.append(h("ul", {}, h("li", {}, units), [h("li", {}, line) for line in fell if line]))
        if noise.get("next_step"):
            lines.append(h("p", {}, h("strong", {}, str(noise["next_step"]))))
        if lines:
            sections.append(lines)
    return h("section", {"class": "card"}, h("h2", {}, "What was left out"), sections) if sections else None


def _about(numbers: Mapping[str, Any], name: str) -> str:
    return f"{float(numbers[name]):.6g} (± {float(numbers[f'{name}_std_error']):.3g} of noise)".replace("-", "−")


def _fell_away(loss: Mapping[str, Any]) -> str:
    target = "" if loss.get("target") is None else f" of {loss['target']}"
    words = [
        f"{text}{target} that fell away: {_about(loss, name)}"
        for name, text in (("rows", "Rows"), ("sum", "Sum"))
        if name in loss
    ]
    return f"{'; '.join(words)}." if words else ""


def cost_text(amounts: Mapping[str, Any]) -> str:
    """Return an amount in words: epsilon, and delta if positive."""
    epsilon, delta = amounts.get("epsilon"), amounts.get("delta")
    words = "no finite epsilon" if epsilon is None else f"ε {float(epsilon):.6g}"
    return words + (f", δ {float(delta):.6g}" if delta and float(delta) > 0 else "")


def policy_text(value: object) -> str:
    """Return an owner's declaration as text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return number_text(value)
    if isinstance(value, list):
        return (
            ", ".join(map(policy_text, value))
            if not any(isinstance(element, list) for element in value)
            else str(plain(value))
        )
    return "" if value is None else str(value).strip("'") if isinstance(value, str) else str(plain(value))


def event_text(event: object, deep: int = 0) -> str:
    """Return the mechanisms of a release, one per line."""
    if not isinstance(event, Mapping):
        return "" if event is None else str(plain(event))
    details = ", ".join(
        f"{name} {plain(value)}" for name, value in event.items() if name not in ("mechanism", "events")
    )
    line = f"{'  ' * deep}{event.get('mechanism', '')}{': ' * bool(details)}{details}"
    inner = event.get("events")
    return "\n".join([line, *(event_text(part, deep + 1) for part in (inner if isinstance(inner, list) else ()))])


def when(text: object) -> Element | None:
    """Return a time of the ledger, to the minute."""
    if not isinstance(text, str) or len(text) < 16:
        return None
    return h("time", {"datetime": text}, f"{text[:10]} {text[11:16]} UTC")


def meter(spent: object, cap: object, text: object) -> Element:
    """Return a spent amount as text, with a bar if both numbers are known."""
    has_numbers = all(isinstance(number, int | float) and not isinstance(number, bool) for number in (spent, cap))
    bar = None
    if has_numbers and float(cap) > 0:  # type: ignore[arg-type]
        share = min(1.0, max(0.0, float(spent) / float(cap)))  # type: ignore[arg-type]
        kind = "full" if share >= 0.9 else "much" if share >= 0.7 else ""
        box = {"viewBox": "0 0 100 6", "preserveAspectRatio": "none", "class": f"meter {kind}", "aria-hidden": "true"}
        shape = {"x": 0, "y": 0, "height": 6, "rx": 3}
        bar = h(
            "svg", box, h("rect", {**shape, "width": 100, "class": "of"}),
            h("rect", {**shape, "width": f"{100 * share:.2f}", "class": "is"}),
        )  # fmt: skip
    return h("div", {"class": "spent"}, h("span", {}, text), bar)


def own_budget(budget: Mapping[str, Any]) -> Element:
    """Show a dataset's budget: limit, spent, and remaining."""
    spent, cap = budget.get("epsilon_spent"), budget.get("epsilon_cap")
    if budget.get("rho_cap") is not None:
        spent, cap, letter = budget.get("rho_spent"), budget["rho_cap"], "ρ"
    else:
        letter = "ε"
    amount = "no finite bound" if spent is None else f"{letter} {number_text(float(spent))}"
    of = f" of {number_text(float(cap))} spent" if cap is not None else " spent; the budget of the dataset is the limit"
    releases = budget.get("releases")
    count = "" if releases is None else f", in {releases} release{'s' * (releases != 1)}"
    lines = [meter(spent, cap, [h("strong", {}, amount), of, count])]
    if budget.get("delta_cap") is not None:
        share = f"δ {float(budget.get('delta_spent') or 0):.3g} of {float(budget['delta_cap']):.3g} spent"
        lines.append(meter(budget.get("delta_spent"), budget["delta_cap"], share))
    if budget.get("total_budget"):
        sums = f"{budget.get('total_spent')} of {budget['total_budget']}"
        text = f"All together: {sums}; {budget.get('total_remaining')} left"
        lines.append(h("div", {"class": "hint"}, text))
    return h("div", {}, lines)


def alert(problem: Problem, sql: str | None = None, *, taking: bool = False, focused: bool = True) -> Element:
    """Return a refusal: problem, place in the statement, and fix; `taking` adds a button that uses the fix."""
    document = problem.document
    position, hint = document.get("position"), document.get("hint")
    where: list[object] = []
    if sql is not None and isinstance(position, int) and 0 <= position <= len(sql):
        line = sql.count("\n", 0, position) + 1
        start = sql.rfind("\n", 0, position) + 1
        end = sql.find("\n", position)
        text = sql[start : end if end >= 0 else len(sql)]
        column = position - start
        first = max(0, column - 60)
        where = [
            h("p", {}, f"Line {line}, character {column + 1}:"),
            h("pre", {"class": "where"}, f"{text[first : column + 60]}\n{' ' * (column - first)}^"),
        ]
    step: object = None
    if isinstance(hint, str):
        take = h("button", {"name": "take", "value": hint, "class": "quiet"}, "Use it") if taking else None
        step = h("p", {}, "Instead: ", h("code", {"class": "wraps"}, hint), " ", take)
    return h(
        "div",
        {"class": "alert", "role": "alert", "id": "refusal", "tabindex": "-1", "autofocus": focused},
        h("p", {}, h("strong", {}, str(document.get("code"))), " ", _sentence(str(document.get("title")))),
        where,
        step,
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]

// Completion, and the price before asking. Every page works without this file.
"use strict";

const editor = document.getElementById("sql");

if (editor) {
  const form = editor.form;
  const price = document.getElementById("price");
  const words = new Set(JSON.parse(editor.dataset.words));
  const datasets = JSON.parse(editor.dataset.datasets);
  const known = new Set();

  // The price: asked for when the writer pauses, and never twice for one text. A pause of a second keeps it below what
  // the gateway allows of refusals.
  let pause = 0;
  let last = question();

  function question() {
    const fields = new URLSearchParams(new FormData(form));
    fields.delete("key");
    return fields.toString();
  }

  async function showPrice() {
    const asked = question();
    if (asked === last) return;
    last = asked;
    try {
      const answer = await fetch("/ask/price", { method: "POST", body: new URLSearchParams(asked) });
      if (answer.redirected || asked !== question()) return;
      price.innerHTML = await answer.text(); // written by the server, which escapes everything
    } catch {
      price.textContent = "";
    }
  }

  form.addEventListener("input", () => {
    clearTimeout(pause);
    pause = setTimeout(showPrice, 1000);
  });

  // Completion: a list below the editor that Alt and the arrow keys move in; Tab or Enter take what is chosen.
  const list = document.createElement("ul");
  list.id = "words";
  list.className = "words";
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Words that fit here");
  editor.after(list);
  editor.setAttribute("aria-controls", "words");
  editor.setAttribute("aria-autocomplete", "list");
  let chosen = -1;

  function begun() {
    const before = editor.value.slice(0, editor.selectionStart);
    return /[\p{L}_][\p{L}\p{N}_]*$/u.exec(before)?.[0] ?? "";
  }

  async function learn() {
    for (const name of datasets) {
      if (known.has(name) || !editor.value.includes(name)) continue;
      known.add(name);
      const answer = await fetch("/words?" + new URLSearchParams({ dataset: name }));
      if (answer.ok && !answer.redirected) for (const word of await answer.json()) words.add(word);
    }
  }

  function choose(place) {
    chosen = place;
    [...list.children].forEach((item, at) => item.setAttribute("aria-selected", String(at === chosen)));
    if (chosen >= 0) editor.setAttribute("aria-activedescendant", list.children[chosen].id);
    else editor.removeAttribute("aria-activedescendant");
  }

  function show() {
    const start = begun();
    const fit = start.length < 1 ? [] : [...words]
      .filter((word) => word.toLowerCase().startsWith(start.toLowerCase()) && word !== start)
      .slice(0, 8);
    list.replaceChildren(...fit.map((word, place) => {
      const item = document.createElement("li");
      item.id = `word-${place}`;
      item.setAttribute("role", "option");
      item.textContent = word;
      item.addEventListener("mousedown", (event) => {
        event.preventDefault();
        take(word);
      });
      return item;
    }));
    choose(-1);
  }

  function take(word) {
    const end = editor.selectionStart;
    editor.setRangeText(word, end - begun().length, end, "end");
    list.replaceChildren();
    choose(-1);
    editor.dispatchEvent(new Event("input", { bubbles: true }));
  }

  editor.addEventListener("input", () => {
    learn().then(show, () => {});
    show();
  });

  editor.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      form.requestSubmit(form.querySelector("button[value=price]"));
      return;
    }
    const count = list.children.length;
    if (!count) return;
    if (event.key === "Escape") {
      list.replaceChildren();
      choose(-1);
    } else if (event.altKey && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      event.preventDefault();
      const step = event.key === "ArrowDown" ? 1 : -1;
      choose(chosen < 0 && step < 0 ? count - 1 : (chosen + step + count) % count);
    } else if (chosen >= 0 && (event.key === "Enter" || event.key === "Tab")) {
      event.preventDefault();
      take(list.children[chosen].textContent);
    }
  });

  learn().catch(() => {});
}

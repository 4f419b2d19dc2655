// A table that each column sorts, by mouse and keyboard; rows may open and show details.

import { element, freshId, scrolls } from "./dom.js";
import { count } from "./words.js";

// A column has `title`, `value` of a row (what is compared; null is last), `show` (what stands there), and perhaps
// `hint`, `text` (it is no number, and sorts upwards first) or `wide`. `id` and `details` are functions of a row.
export function sortedTable({ name, columns, rows, order, id = null, details = null, most = Infinity }) {
  const body = element("tbody");
  const heads = columns.map((column, i) => head(column, () => sortBy(i)));
  const more = element("button", { type: "button", class: "more", on: { click: () => show(Infinity) } });
  const made = new Map();
  let sorted = rows;
  let shown = most;

  function rowOf(row) {
    if (!made.has(row)) made.set(row, tableRow(row, columns, id, details));
    return made.get(row);
  }

  function show(limit) {
    shown = limit;
    body.replaceChildren(...sorted.slice(0, shown).flatMap((row) => rowOf(row).elements()));
    more.hidden = sorted.length <= shown;
    more.textContent = `Show all ${count(sorted.length)} rows; these are the first ${count(shown)} in this order`;
  }

  function sortBy(i, direction = opposite(heads[i].getAttribute("aria-sort"), columns[i])) {
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    heads[i].setAttribute("aria-sort", direction);
    sorted = ordered(rows, columns[i].value, direction);
    show(shown);
  }

  sortBy(
    columns.findIndex(({ key }) => key === order.key),
    order.direction,
  );
  const table = element(
    "table",
    { class: "sorted" },
    element("caption", {}, name),
    element("thead", {}, element("tr", {}, heads)),
    body,
  );
  return {
    element: element("div", {}, scrolls(table, name), more),
    reveal(row) {
      if (!body.contains(rowOf(row).line)) show(Infinity);
      rowOf(row).open(true);
    },
    openAll: () => sorted.slice(0, shown).forEach((row) => rowOf(row).open(true)),
  };
}

function head({ title, hint, text, wide }, sort) {
  const button = element("button", { type: "button", title: hint, on: { click: sort } }, title);
  return element("th", { scope: "col", class: wide ? "wide" : text ? "text" : "number" }, button);
}

// A second press turns the order; numbers begin with the largest, texts with A.
function opposite(now, { text }) {
  if (now) return now === "ascending" ? "descending" : "ascending";
  return text ? "ascending" : "descending";
}

function ordered(rows, value, direction) {
  const sign = direction === "ascending" ? 1 : -1;
  return [...rows].sort((one, other) => {
    const [a, b] = [value(one) ?? null, value(other) ?? null];
    if (a === null || b === null) return (a === null) - (b === null);
    return sign * (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b);
  });
}

function tableRow(row, columns, id, details) {
  const line = element(
    "tr",
    { id: id?.(row) },
    columns.map((column, i) => cell(column, row, i)),
  );
  if (!details) return { line, open() {}, elements: () => [line] };
  const name = freshId("details");
  const button = element("button", { type: "button", class: "opens", "aria-expanded": "false", "aria-controls": name });
  const first = line.firstElementChild;
  button.append(...first.childNodes);
  first.append(button);
  const inner = element("td", { colspan: columns.length });
  const below = element("tr", { id: name, class: "details", hidden: true }, inner);

  function open(wanted) {
    if (!inner.hasChildNodes()) inner.append(details(row)); // made when first seen: many rows are never opened
    below.hidden = !wanted;
    button.setAttribute("aria-expanded", String(wanted));
  }

  button.addEventListener("click", () => open(below.hidden));
  return { line, open, elements: () => [line, below] };
}

function cell({ show, text, wide }, row, i) {
  const kind = wide ? "wide" : text ? "text" : "number";
  return element(i === 0 ? "th" : "td", { class: kind, scope: i === 0 ? "row" : null }, show(row));
}

// A small table that nothing sorts.
export function plainTable(titles, rows, name = null) {
  const head = titles.map((title) => element("th", { scope: "col" }, title));
  const lines = rows.map((row) =>
    element(
      "tr",
      {},
      row.map((one) => element("td", {}, one)),
    ),
  );
  const table = element(
    "table",
    { class: "plain" },
    name && element("caption", {}, name),
    element("thead", {}, element("tr", {}, head)),
    element("tbody", {}, lines),
  );
  return scrolls(table, name ?? titles.join(", "));
}

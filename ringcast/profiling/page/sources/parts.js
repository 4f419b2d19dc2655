// The parts into which all time is divided, in the order and the colours that they have everywhere on this page.

import { element } from "./dom.js";
import { percent, time } from "./words.js";

export const PROGRAM = { key: "program", title: "Program", meaning: "the program itself, outside ringcast" };
export const PARTS = [
  { key: "late", title: "Late", meaning: "waiting for a rank that has not made the call yet" },
  { key: "moving", title: "Moving", meaning: "bytes under way; in calls of few bytes all that is not late" },
  { key: "link", title: "Link", meaning: "within a call, waiting for the network or for another rank’s part of it" },
  { key: "combining", title: "Combining", meaning: "copying data, and operators such as sum" },
  { key: "python", title: "Python", meaning: "ringcast’s own Python around the calls" },
  { key: "awaited", title: "Awaited", meaning: "in wait(), for requests that are still under way" },
];

// A bar of these parts of `row`, as long as they are of `whole`; read out as a text.
export function bar(row, parts, whole) {
  const there = parts.filter(({ key }) => row[key] > 0);
  const words = there.map(({ key, title }) => `${title} ${time(row[key])}`).join(", ");
  return element(
    "div",
    { class: "bar", role: "img", "aria-label": words || "no time", title: words },
    there.map(({ key }) =>
      element("span", {
        class: `part ${key}`,
        style: { width: `${(100 * row[key]) / Math.max(whole, 1e-30)}%` },
      }),
    ),
  );
}

// A bar of one amount, and the amount in words.
export function gauge(value, most, kind, words) {
  return element(
    "span",
    { class: "gauge" },
    element(
      "span",
      { class: "track", "aria-hidden": "true" },
      element("span", { class: kind, style: { width: `${most ? (100 * value) / most : 0}%` } }),
    ),
    element("span", { class: "amount" }, words),
  );
}

// The sums of all ranks, with the meaning of each part: the legend of all bars.
export function legend(sums) {
  const all = [PROGRAM, ...PARTS];
  const whole = all.reduce((sum, { key }) => sum + sums[key], 0);
  return element(
    "dl",
    { class: "legend" },
    all.map(({ key, title, meaning }) =>
      element(
        "div",
        {},
        element("dt", {}, element("span", { class: `swatch ${key}`, "aria-hidden": "true" }), title),
        element(
          "dd",
          {},
          element("b", {}, percent(sums[key], whole)),
          ` ${time(sums[key])}`,
          element("span", { class: "meaning" }, meaning),
        ),
      ),
    ),
  );
}

// The parts of which a row has some: a table needs no column of zeros.
export function spent(rows, parts) {
  return parts.filter(({ key }) => rows.some((row) => row[key] > 0));
}

export function sumOf(rows, keys) {
  return Object.fromEntries(keys.map((key) => [key, rows.reduce((sum, row) => sum + (row[key] ?? 0), 0)]));
}

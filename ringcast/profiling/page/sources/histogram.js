// How long the calls of a site took: bars of powers of two.

import { drawn, figure, scrolls } from "./dom.js";
import { plainTable } from "./sorted_table.js";
import { count, shortCount, time } from "./words.js";

const [HEIGHT, LOWER, UPPER, STEP] = [120, 22, 14, 28];

export function histogram(site) {
  const rows = site.histogram ?? [];
  if (!rows.length) return null;
  const bins = filled(rows);
  const most = Math.max(...bins.map(([, calls]) => calls));
  const width = Math.max(bins.length * STEP + 28, 120);
  const picture = drawn(
    "svg",
    {
      viewBox: `0 0 ${width} ${HEIGHT + LOWER + UPPER}`,
      width,
      class: "histogram",
      role: "img",
      "aria-label": words(rows),
    },
    bins.map(([from, calls], i) => bin(from, calls, i, (HEIGHT * calls) / most)),
    drawn("line", { x1: 0, x2: width, y1: HEIGHT + UPPER, y2: HEIGHT + UPPER, class: "axis" }),
  );
  const table = plainTable(
    ["From", "Calls of all ranks"],
    rows.map(([from, calls]) => [time(from), count(calls)]),
  );
  return figure(scrolls(picture, "Histogram"), "Times of a call", table);
}

// With the empty bins between others, unless they are very many.
function filled(rows) {
  const found = [];
  for (const [from, calls] of rows) {
    for (let i = 0; found.length && from > 3 * found.at(-1)[0] && i < 12; i += 1) found.push([2 * found.at(-1)[0], 0]);
    found.push([from, calls]);
  }
  return found;
}

function bin(from, calls, i, height) {
  const x = 6 + i * STEP;
  const middle = x + STEP / 2;
  return [
    drawn("rect", { x: x + 2, y: UPPER + HEIGHT - height, width: STEP - 4, height, class: "bin" }),
    calls ? drawn("text", { x: middle, y: UPPER + HEIGHT - height - 3, class: "label" }, shortCount(calls)) : null,
    i % 2
      ? null
      : drawn("text", { x: x + 2, y: HEIGHT + UPPER + 15, class: "label start" }, time(from).replace(/\.\d+/, "")),
  ];
}

function words(rows) {
  const all = rows.reduce((sum, row) => sum + row[1], 0);
  const [from, calls] = rows.reduce((best, row) => (row[1] > best[1] ? row : best));
  return (
    `Times of ${count(all)} calls of all ranks: from ${time(rows[0][0])} to ${time(2 * rows.at(-1)[0])}; ` +
    `most often, ${count(calls)} times, ${time(from)} to ${time(2 * from)}.`
  );
}

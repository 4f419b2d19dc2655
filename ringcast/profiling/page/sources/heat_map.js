// A matrix as colours: senders down, receivers across. The pointer, or the arrow keys, read out a cell.

import { element, figure, swatch } from "./dom.js";
import { plainTable } from "./sorted_table.js";
import { colour, fitted, repaints } from "./theme.js";
import { hideTip, showTip } from "./tooltip.js";
import { several } from "./words.js";

const [MOST, SIDE, LEFT, TOP, CHARACTER] = [20, 400, 34, 40, 7];
const SHADES = 7;
const WIDE = 100; // a larger ratio of values is shown by their logarithms
const ROOM = 56; // pixels of a cell that holds its value

export function heatMap(name, names, cells, show) {
  const scale = scaleOf(cells.map(([, , value]) => value));
  const canvas = element("canvas", {
    tabindex: "0",
    role: "application",
    "aria-roledescription": "matrix",
    "aria-label": `${name}: arrow keys move from cell to cell`,
  });
  const status = element("p", { class: "status", role: "status" });
  const map = {
    names,
    scale,
    show,
    values: new Map(cells.map(([from, to, value]) => [from * names.length + to, value])),
    at: null,
  };
  const draw = () => paint(canvas, map);
  listen(canvas, map, draw, status);
  const picture = element("div", { class: "heat" }, canvas);
  repaints(picture, draw);
  return figure([picture, legend(scale, show), status], name, table(names, cells, show));
}

function scaleOf(values) {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const wide = most > WIDE * least;
  const from = wide ? Math.log(least) : 0;
  const to = wide ? Math.log(most) : most;
  // The smallest is not as pale as nothing.
  const share = (value) => (to === from ? 1 : Math.max(((wide ? Math.log(value) : value) - from) / (to - from), 0));
  return {
    shade: (value) => Math.min(1 + Math.floor(share(value) * SHADES), SHADES),
    bound: (i) => {
      const value = from + ((to - from) * i) / SHADES;
      return wide ? Math.exp(value) : value;
    },
  };
}

function side(names) {
  return Math.max(5, Math.min(64, Math.floor(SIDE / names.length)));
}

function margin(names) {
  return Math.max(LEFT, Math.min(110, 16 + CHARACTER * Math.max(...names.map((name) => name.length))));
}

function paint(canvas, { names, scale, show, values, at }) {
  const [cell, left] = [side(names), margin(names)];
  const context = fitted(canvas, left + cell * names.length + 2, TOP + cell * names.length + 2);
  const shades = Array.from({ length: SHADES + 1 }, (_, i) => colour(`heat-${i}`));
  const gap = cell > 8 ? 1 : 0;
  context.font = `11px ${colour("font")}`;
  for (let i = 0; i < names.length ** 2; i += 1) {
    const [row, column] = [Math.floor(i / names.length), i % names.length];
    const value = values.get(i);
    const shade = value === undefined ? 0 : scale.shade(value);
    context.fillStyle = shades[shade];
    context.fillRect(left + column * cell, TOP + row * cell, cell - gap, cell - gap);
    if (value !== undefined && cell >= ROOM) {
      context.fillStyle = colour(shade > SHADES / 2 ? "heat-ink-strong" : "heat-ink-weak");
      context.textAlign = "center";
      context.fillText(show(value), left + (column + 0.5) * cell, TOP + (row + 0.5) * cell + 4, cell - 6);
    }
  }
  labels(context, names, cell, left);
  if (at !== null) {
    context.strokeStyle = colour("focus");
    context.lineWidth = 2;
    context.strokeRect(left + (at % names.length) * cell, TOP + Math.floor(at / names.length) * cell, cell, cell);
  }
}

function labels(context, names, cell, left) {
  const every = Math.ceil(16 / cell);
  const across = Math.ceil((10 + CHARACTER * Math.max(...names.map((name) => name.length))) / cell);
  context.fillStyle = colour("quiet");
  context.textAlign = "left";
  context.fillText("from ↓ to →", 0, 12);
  names.forEach((name, i) => {
    context.textAlign = "right";
    if (i % every === 0) context.fillText(name, left - 6, TOP + (i + 0.5) * cell + 4, left - 8);
    context.textAlign = cell >= 24 ? "center" : "left";
    if (i % across === 0 && (i + across <= names.length || across === 1 || i === 0))
      context.fillText(name, left + (cell >= 24 ? (i + 0.5) * cell : i * cell), TOP - 6);
  });
}

function listen(canvas, map, draw, status) {
  const n = map.names.length;
  const words = (i) => {
    const [from, to] = [map.names[Math.floor(i / n)], map.names[i % n]];
    const value = map.values.get(i);
    return `${from} → ${to}: ${value === undefined ? "nothing" : map.show(value)}`;
  };
  const move = (at) => {
    map.at = at;
    draw();
  };
  canvas.addEventListener("pointermove", (event) => {
    const [cell, left] = [side(map.names), margin(map.names)];
    const [column, row] = [Math.floor((event.offsetX - left) / cell), Math.floor((event.offsetY - TOP) / cell)];
    const inside = column >= 0 && row >= 0 && column < n && row < n;
    if (!inside) hideTip();
    else showTip([words(row * n + column)], event.clientX, event.clientY);
  });
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("blur", () => move(null));
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -n, ArrowDown: n }[event.key];
    if (!step || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const wanted = map.at === null ? 0 : map.at + step;
    const column = (map.at ?? 0) % n;
    const leaves = Math.abs(step) === 1 && n > 1 && (column + step < 0 || column + step >= n) && map.at !== null;
    if (wanted >= 0 && wanted < n * n && !leaves) move(wanted);
    status.textContent = words(map.at);
  });
}

function legend(scale, show) {
  const steps = Array.from({ length: SHADES }, (_, i) =>
    element(
      "li",
      {},
      swatch(`var(--heat-${i + 1})`),
      element("span", { class: "bound" }, i || scale.bound(0) ? `≥ ${show(scale.bound(i))}` : "> 0"),
    ),
  );
  return element(
    "ul",
    { class: "shades", "aria-label": "Colours" },
    element("li", {}, swatch("var(--heat-0)"), element("span", { class: "bound" }, "none")),
    steps,
  );
}

function table(names, cells, show) {
  const largest = [...cells].sort((a, b) => b[2] - a[2]).slice(0, MOST);
  const rows = largest.map(([from, to, value]) => [names[from], names[to], show(value)]);
  const which = cells.length > MOST ? `The ${MOST} largest of ${several(cells.length, "pair")}` : "All pairs";
  return plainTable(["From", "To", "Value"], rows, which);
}

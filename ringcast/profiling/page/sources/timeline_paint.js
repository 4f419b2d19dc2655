// The timeline as a picture: a row for each rank, a box for each call in the colour of its site. While a call waits
// for a rank that has not made it yet its box is hatched.

import { colour, fitted } from "./theme.js";
import { tickTime, ticks } from "./words.js";

export const LEFT = 58;
export const TOP = 26;
// Pixels: between ticks, half a label, a box with a name, a hatched box.
const [BETWEEN, ROOM, NAMED, HATCHED] = [90, 26, 44, 4];

export function rowHeight(rows) {
  return rows <= 8 ? 30 : rows <= 20 ? 22 : rows <= 40 ? 14 : rows <= 80 ? 10 : 7;
}

export function paint(canvas, width, { rows, view, colourOf, nameOf, focused, selected }) {
  const high = rowHeight(rows.length);
  const context = fitted(canvas, width, TOP + high * rows.length + 6);
  const inner = width - LEFT;
  const x = (time) => LEFT + ((time - view.from) / view.width) * inner;
  const brush = { context, x, high, inks: new Map(), font: colour("font"), paper: colour("paper"), colourOf, nameOf };
  context.font = `11px ${brush.font}`;
  axis(brush, view, inner, rows.length);
  rows.forEach((row, i) => label(brush, row.rank, TOP + i * high));
  context.save();
  context.beginPath();
  context.rect(LEFT, 0, inner, TOP + high * rows.length + 6);
  context.clip();
  rows.forEach((row, i) => events(brush, row, TOP + i * high, view));
  for (const [event, name] of [
    [selected, "ink"],
    [focused, "focus"],
  ])
    outline(brush, rows, event, name);
  context.restore();
}

function axis({ context, x, high }, view, inner, count) {
  const { step, found } = ticks(view.from, view.to, inner / BETWEEN);
  context.textAlign = "center";
  for (const tick of found) {
    context.fillStyle = colour("line");
    context.fillRect(Math.round(x(tick)), TOP - 6, 1, high * count + 6);
    context.fillStyle = colour("quiet");
    if (x(tick) < LEFT + inner - ROOM) context.fillText(tickTime(tick, step), Math.max(x(tick), LEFT + ROOM), 12);
  }
}

// Where rows are low, every fourth rank has its number.
function label({ context, high }, rank, y) {
  if (high <= 9 && rank % 4) return;
  context.fillStyle = colour("quiet");
  context.textAlign = "right";
  context.fillText(high > 20 ? `rank ${rank}` : rank, LEFT - 8, y + boxHeight(high) / 2 + 4);
}

function boxHeight(high) {
  return high - (high > 12 ? 4 : high > 8 ? 2 : 1);
}

function events(brush, row, y, view) {
  const { x, high } = brush;
  const height = boxHeight(high);
  let drawn = -Infinity; // pixels before this are done: thousands of calls may share one
  for (const event of row.within(view.from, view.to)) {
    const [left, right] = [Math.max(x(event.start), LEFT - 2), Math.min(x(event.end), LEFT + 20_000)];
    if (right < drawn) continue;
    box(brush, event, { left, right: Math.max(right, left + 1), y, height });
    drawn = Math.max(right, left + 0.5);
  }
}

function box(brush, event, { left, right, y, height }) {
  const { context, x } = brush;
  const ink = inkOf(brush, brush.colourOf(event.site));
  const ready = event.ready === null ? left : Math.min(Math.max(x(event.ready), left), right);
  if (ready > left) {
    context.fillStyle = ready - left > HATCHED ? ink.hatched : ink.pale;
    context.fillRect(left, y, ready - left, height);
  }
  context.fillStyle = ink.full;
  context.fillRect(ready, y, Math.max(right - ready, 0.5), height);
  if (height < 12 || right - ready < NAMED) return;
  context.fillStyle = brush.paper;
  context.textAlign = "left";
  const name = brush.nameOf(event.site);
  if (context.measureText(name).width < right - ready - 8) context.fillText(name, ready + 5, y + height / 2 + 4);
}

// The colour of a site: full, pale, and as lines on paper.
function inkOf({ context, inks }, name) {
  if (!inks.has(name)) {
    const full = colour(name);
    inks.set(name, { full, pale: colour(`${name}-pale`), hatched: hatched(context, full, colour(`${name}-pale`)) });
  }
  return inks.get(name);
}

function hatched(context, full, pale) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const lines = tile.getContext("2d");
  lines.fillStyle = pale;
  lines.fillRect(0, 0, 6, 6);
  lines.strokeStyle = full;
  lines.lineWidth = 1.2;
  for (const shift of [-6, 0, 6]) {
    lines.moveTo(shift - 1, 7);
    lines.lineTo(shift + 7, -1);
  }
  lines.stroke();
  return context.createPattern(tile, "repeat");
}

function outline({ context, x, high }, rows, event, name) {
  const i = event ? rows.findIndex(({ rank }) => rank === event.rank) : -1;
  if (i < 0) return;
  context.strokeStyle = colour(name);
  context.lineWidth = 2;
  const left = x(event.start);
  context.strokeRect(left - 1, TOP + i * high - 2, Math.max(x(event.end) - left, 2) + 2, high);
}

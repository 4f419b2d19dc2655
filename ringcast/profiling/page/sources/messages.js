// The messages of a call: ranks down, rounds across, an arrow for each, as in the drawings of the documents.

import { drawn, figure, scrolls } from "./dom.js";
import { plainTable } from "./sorted_table.js";
import { count, several, size } from "./words.js";

const LABELLED = 20; // most ranks and rounds with room for labels
const TABLED = 200; // rows
const FEW = 6; // ranks that have a colour each
const [LEFT, TOP, RIGHT] = [34, 22, 8];

export function messages(rounds, hue) {
  const plan = planOf(rounds);
  const name = caption(rounds, plan.many);
  const { width, height, labelled } = plan;
  const kind = labelled ? "rounds" : "rounds dense";
  const picture = drawn(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, width, height, class: kind, role: "img", "aria-label": name },
    grid(plan),
    rounds.messages.map((one) => message(one, plan, hue)),
  );
  return figure(scrolls(picture, "Messages"), name, table(rounds.messages));
}

// Where the ranks and the rounds are.
function planOf(rounds) {
  const ranks = rounds.drawn ?? rounds.size;
  const many = 1 + Math.max(...rounds.messages.map(([round]) => round));
  const labelled = ranks <= LABELLED && many <= LABELLED;
  const across = labelled ? 108 : Math.max(24, Math.min(96, 560 / many));
  const down = labelled ? 26 : ranks <= LABELLED ? 20 : 9;
  return {
    ranks,
    many,
    labelled,
    across,
    width: LEFT + across * many + RIGHT,
    height: TOP + down * ranks,
    x: (round) => LEFT + across * round,
    y: (rank) => TOP + down * (rank + 0.5),
  };
}

function message([round, from, to, bytes], { ranks, labelled, across, x, y }, hue) {
  const [reach, head] = labelled ? [0.6, 7] : [0.86, 4];
  const label = { x: x(round) + across * (reach + 0.04), y: y(to) + 4, class: "label start" };
  return drawn(
    "g",
    { style: { color: `var(--${ranks <= FEW ? `site-${from}` : hue})` } },
    drawn("title", {}, `round ${round}: ${from} to ${to}, ${size(bytes)}`),
    arrow(x(round) + 3, y(from), x(round) + across * reach, y(to), head),
    labelled ? drawn("text", label, size(bytes)) : null,
  );
}

function table(all) {
  const rows = all.slice(0, TABLED).map(([round, from, to, bytes]) => [round, from, to, size(bytes)]);
  const name = rows.length < all.length ? `The first ${TABLED} messages` : "All messages";
  return plainTable(["Round", "From", "To", "Bytes"], rows, name);
}

function caption({ size: ranks, drawn: shown, messages: all }, many) {
  const some = shown
    ? `; only the ${several(all.length, "message")} between the first ${shown} of ${count(ranks)} ranks`
    : "";
  return `Messages of one call: ranks down, ${several(many, "round")} across${some}`;
}

function grid({ ranks, many, x, y, width, height }) {
  const every = ranks <= LABELLED ? 1 : 8;
  const each = Math.ceil(many / 24);
  return [
    Array.from({ length: ranks }, (_, rank) => [
      drawn("line", { x1: x(0), x2: width - RIGHT, y1: y(rank), y2: y(rank), class: "rank-line" }),
      rank % every ? null : drawn("text", { x: x(0) - 8, y: y(rank) + 4, class: "label end" }, rank),
    ]),
    Array.from({ length: many + 1 }, (_, round) => [
      drawn("line", { x1: x(round), x2: x(round), y1: TOP, y2: height, class: "round-line" }),
      round < many && round % each === 0
        ? drawn("text", { x: (x(round) + x(round + 1)) / 2, y: 12, class: "label" }, round)
        : null,
    ]),
  ];
}

function arrow(x1, y1, x2, y2, head) {
  const far = Math.hypot(x2 - x1, y2 - y1);
  const [along, aside] = [(x2 - x1) / far, (y2 - y1) / far];
  const at = (back, side) =>
    `${(x2 - back * along - side * aside).toFixed(1)},${(y2 - back * aside + side * along).toFixed(1)}`;
  return [
    drawn("line", {
      x1,
      y1,
      x2: (x2 - head * 0.7 * along).toFixed(1),
      y2: (y2 - head * 0.7 * aside).toFixed(1),
      class: "arrow",
    }),
    drawn("polygon", { points: `${at(0, 0)} ${at(head, head * 0.42)} ${at(head, -head * 0.42)}`, class: "head" }),
  ];
}

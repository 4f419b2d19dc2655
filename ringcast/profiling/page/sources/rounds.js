// The rounds of a call: the messages as the algorithm has them, and the times of one call that was observed.

import { drawn, element, figure } from "./dom.js";
import { measured } from "./measured.js";
import { gauge } from "./parts.js";
import { plainTable } from "./sorted_table.js";
import { count, several, size, time } from "./words.js";

const LABELLED = 20; // most ranks and rounds with room for labels
const TABLED = 200; // rows
const FEW = 6; // ranks that have a colour each

export function roundsOf(site, hue) {
  const { rounds } = site;
  return element(
    "div", { class: "rounds" },
    comparison(site),
    rounds?.messages.length ? element("div", { class: "columns" }, messages(rounds, hue), measured(site, hue)) : element("p", { class: "quiet" }, "There is no drawing of its rounds."),
  );
}

function comparison({ rounds, algorithm, nblocks, net, predicted }) {
  const known = [["Measured", net, "moving"], ["Predicted", predicted, "program"]].filter(([, seconds]) => seconds !== null && seconds !== undefined);
  const most = Math.max(...known.map(([, seconds]) => seconds));
  return [
    algorithm ? element("p", {}, "Algorithm ", element("b", {}, rounds?.algorithm ?? algorithm), `, ${several(rounds?.nblocks ?? nblocks ?? 1, "block")}.`) : null,
    known.length ? element("dl", { class: "compare" }, known.map(([name, seconds, kind]) => element(
      "div", {}, element("dt", {}, name), element("dd", {}, gauge(seconds, most, kind, time(seconds))),
    ))) : null,
    known.length ? element("p", { class: "quiet" }, known[0][0] === "Measured"
      ? "Measured is the median, from the moment at which all ranks that it needs had made the call; predicted is by the cost model."
      : "Predicted is by the cost model.") : null,
  ];
}

function messages(rounds, hue) {
  const ranks = rounds.drawn ?? rounds.size;
  const many = 1 + Math.max(...rounds.messages.map(([round]) => round));
  const labelled = ranks <= LABELLED && many <= LABELLED;
  const [across, down] = labelled ? [108, 26] : [Math.max(24, Math.min(96, 560 / many)), ranks <= LABELLED ? 20 : 9];
  const [left, top] = [34, 22];
  const [width, height] = [left + across * many + 8, top + down * ranks];
  const x = (round) => left + across * round;
  const y = (rank) => top + down * (rank + 0.5);
  const picture = drawn(
    "svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: labelled ? "rounds" : "rounds dense", role: "img", "aria-label": caption(rounds, many) },
    grid({ ranks, many, x, y, width, height, top, labelled }),
    rounds.messages.map(([round, from, to, bytes]) => drawn(
      "g", { class: ranks <= FEW ? `from-${from}` : "from-any", style: ranks <= FEW ? {} : { color: `var(--${hue})` } },
      drawn("title", {}, `round ${round}: ${from} to ${to}, ${size(bytes)}`),
      arrow(x(round) + 3, y(from), x(round) + across * (labelled ? 0.6 : 0.86), y(to), labelled ? 7 : 4),
      labelled ? drawn("text", { x: x(round) + across * 0.64, y: y(to) + 4, class: "label start" }, size(bytes)) : null,
    )),
  );
  const rows = rounds.messages.slice(0, TABLED).map(([round, from, to, bytes]) => [round, from, to, size(bytes)]);
  const table = plainTable(["Round", "From", "To", "Bytes"], rows, rows.length < rounds.messages.length ? `The first ${TABLED} messages` : "All messages");
  return figure(scrolls(picture, "Messages"), caption(rounds, many), table);
}

function caption({ size: ranks, drawn: shown, messages: all }, many) {
  const some = shown ? `; only the ${several(all.length, "message")} between the first ${shown} of ${count(ranks)} ranks` : "";
  return `Messages of one call: ranks down, ${several(many, "round")} across${some}`;
}

export function scrolls(picture, name) {
  return element("div", { class: "scrolls", tabindex: "0", role: "group", "aria-label": name }, picture);
}

function grid({ ranks, many, x, y, width, height, top, labelled }) {
  const every = labelled || ranks <= LABELLED ? 1 : 8;
  const each = Math.ceil(many / 24);
  return [
    Array.from({ length: ranks }, (_, rank) => [
      drawn("line", { x1: x(0), x2: width - 8, y1: y(rank), y2: y(rank), class: "rank-line" }),
      rank % every ? null : drawn("text", { x: x(0) - 8, y: y(rank) + 4, class: "label end" }, rank),
    ]),
    Array.from({ length: many + 1 }, (_, round) => [
      drawn("line", { x1: x(round), x2: x(round), y1: top, y2: height, class: "round-line" }),
      round < many && round % each === 0 ? drawn("text", { x: (x(round) + x(round + 1)) / 2, y: 12, class: "label" }, round) : null,
    ]),
  ];
}

function arrow(x1, y1, x2, y2, head) {
  const far = Math.hypot(x2 - x1, y2 - y1);
  const [along, aside] = [(x2 - x1) / far, (y2 - y1) / far];
  const at = (back, side) => `${(x2 - back * along - side * aside).toFixed(1)},${(y2 - back * aside + side * along).toFixed(1)}`;
  return [
    drawn("line", { x1, y1, x2: (x2 - head * 0.7 * along).toFixed(1), y2: (y2 - head * 0.7 * aside).toFixed(1), class: "arrow" }),
    drawn("polygon", { points: `${at(0, 0)} ${at(head, head * 0.42)} ${at(head, -head * 0.42)}`, class: "head" }),
  ];
}

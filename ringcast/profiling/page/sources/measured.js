// The rounds of one observed call as bars: ranks down, time across, and the predicted end of the call as a line.

import { drawn, figure, known, quiet, scrolls } from "./dom.js";
import { plainTable } from "./sorted_table.js";
import { several, tickTime, ticks, time } from "./words.js";

const [LEFT, TOP, WIDTH, TABLED] = [34, 22, 460, 200];

export function measured({ rounds, predicted }, hue) {
  if (!rounds.measured.length) return quiet("The times of its rounds were not recorded.");
  const ranks = [...new Set(rounds.measured.map(([rank]) => rank))].sort((a, b) => a - b);
  const last = Math.max(...rounds.measured.map(([, , , end]) => end), predicted ?? 0, 1e-9);
  const down = ranks.length <= 20 ? 26 : 9;
  const height = TOP + down * ranks.length;
  const x = (seconds) => LEFT + (WIDTH * seconds) / (last * 1.03);
  const words = caption(rounds, ranks, predicted);
  const picture = drawn(
    "svg",
    {
      viewBox: `0 0 ${LEFT + WIDTH + 6} ${height + 4}`,
      width: LEFT + WIDTH + 6,
      height: height + 4,
      role: "img",
      "aria-label": words,
    },
    axis(last, x, height),
    rounds.measured.map((row) => bar(row, ranks, down, x, hue)),
    ranks.map((rank, i) =>
      down > 9 || i % 8 === 0
        ? drawn("text", { x: LEFT - 8, y: TOP + down * (i + 0.5) + 4, class: "label end" }, rank)
        : null,
    ),
    known(predicted)
      ? drawn("line", { x1: x(predicted), x2: x(predicted), y1: TOP - 4, y2: height + 4, class: "predicted" })
      : null,
  );
  const rows = rounds.measured
    .slice(0, TABLED)
    .map(([rank, round, start, end]) => [rank, round, time(start), time(end)]);
  const table = plainTable(["Rank", "Round", "Start", "End"], rows, `${several(rows.length, "round")} of ranks`);
  const holder = scrolls(picture, "Times of rounds");
  return figure(holder, `${words}${known(predicted) ? " (dashed)" : ""}`, table);
}

function caption({ drawn: some, measured: all }, ranks, predicted) {
  const which = some ? ` on the first ${several(ranks.length, "rank")}` : "";
  const took = time(Math.max(...all.map(([, , , end]) => end)));
  const wanted = known(predicted) ? `, predicted were ${time(predicted)}` : "";
  return `Times of the rounds of one recorded call${which}, from its first start; it took ${took}${wanted}`;
}

function bar([rank, round, start, end], ranks, down, x, hue) {
  const [height, width] = [down - (down > 9 ? 6 : 2), Math.max(x(end) - x(start), 1)];
  const y = TOP + down * ranks.indexOf(rank) + (down - height) / 2;
  return drawn(
    "g",
    { style: { color: `var(--${round % 2 ? hue : `${hue}-pale`})` } },
    drawn("title", {}, `rank ${rank}, round ${round}: ${time(start)} to ${time(end)}`),
    drawn("rect", { x: x(start), y, width, height, class: "timed", style: { stroke: `var(--${hue})` } }),
    down > 9 && width > 16
      ? drawn(
          "text",
          { x: x(start) + width / 2, y: y + height / 2 + 4, class: round % 2 ? "label on-full" : "label" },
          round,
        )
      : null,
  );
}

function axis(last, x, height) {
  const { step, found } = ticks(0, last, 5);
  return found.map((tick) => [
    drawn("line", { x1: x(tick), x2: x(tick), y1: TOP - 4, y2: height, class: "round-line" }),
    drawn("text", { x: x(tick), y: 12, class: tick ? "label" : "label start" }, tickTime(tick, step)),
  ]);
}

// The rounds of a call: its messages as the algorithm has them, and the times of one call that was observed.

import { element, known, quiet } from "./dom.js";
import { measured } from "./measured.js";
import { messages } from "./messages.js";
import { gauge } from "./parts.js";
import { several, time } from "./words.js";

const MEASURED = "Measured is the median of a call, from the moment at which all ranks that it needs had made it too.";
const PREDICTED = "Predicted is by the cost model, which chooses algorithms.";

export function roundsOf(site, hue) {
  const { rounds } = site;
  return element(
    "div",
    { class: "rounds" },
    algorithm(site),
    comparison(site),
    rounds?.messages.length || rounds?.measured.length
      ? element("div", { class: "columns" }, drawing(rounds, hue), measured(site, hue))
      : quiet("Its rounds were not recorded."),
  );
}

function drawing(rounds, hue) {
  if (rounds.messages.length) return messages(rounds, hue);
  return quiet("Its messages are not drawn: there are too many ranks, or other calls took more time.");
}

function algorithm(site) {
  const name = site.rounds?.algorithm || site.algorithm;
  if (!name) return null;
  const blocks = several(site.rounds?.nblocks ?? site.nblocks ?? 1, "block");
  return element("p", {}, "Algorithm ", element("b", {}, name), `, ${blocks}.`);
}

function comparison({ net, predicted }) {
  const times = [
    ["Measured", net, "moving", MEASURED],
    ["Predicted", predicted, "program", PREDICTED],
  ].filter(([, seconds]) => known(seconds));
  if (!times.length) return null;
  const most = Math.max(...times.map(([, seconds]) => seconds));
  const line = ([name, seconds, kind]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, gauge(seconds, most, kind, time(seconds))));
  return [element("dl", { class: "compare" }, times.map(line)), quiet(times.map(([, , , words]) => words).join(" "))];
}

// The rounds of a call: its messages as the algorithm has them, and the times of one call that was observed.

import { element, known, quiet } from "./dom.js";
import { measured } from "./measured.js";
import { messages } from "./messages.js";
import { gauge } from "./parts.js";
import { several, time } from "./words.js";

const MEASURED = "Measured is the median, from the moment at which all ranks that it needs had made the call.";
const PREDICTED = "Predicted is by the cost model.";

export function roundsOf(site, hue) {
  const { rounds } = site;
  return element(
    "div",
    { class: "rounds" },
    algorithm(site),
    comparison(site),
    rounds?.messages.length
      ? element("div", { class: "columns" }, messages(rounds, hue), measured(site, hue))
      : quiet("There is no drawing of its rounds."),
  );
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

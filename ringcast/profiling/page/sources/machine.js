// Where and how the job ran.

import { element, section } from "./dom.js";
import { plainTable } from "./sorted_table.js";
import { count, ranges, rate, several, time } from "./words.js";

export function machine({
  machine: { versions = {}, protocol, transport, system, network },
  command,
  hosts,
  contexts,
}) {
  const facts = [
    ["Command", command.length ? element("code", {}, command.join(" ")) : "unknown"],
    ["System", system],
    ["Transport", transport],
    ["Protocol", protocol],
    ...Object.entries(versions),
    ...constants(network),
  ];
  return section(
    "machine",
    "Machine",
    element(
      "dl",
      { class: "pairs" },
      facts
        .filter(([, value]) => value)
        .map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))),
    ),
    hosts.length
      ? plainTable(
          ["Host", "Ranks", "Processors"],
          hosts.map(({ name, ranks, cpus }) => [name, ranges(ranks), count(cpus)]),
          "Hosts",
        )
      : null,
    communicators(contexts),
  );
}

function constants(network) {
  if (!network) return [];
  return [
    ["Latency of a message", `${time(network.alpha)} (alpha)`],
    ["Rate of a link", `${rate(1 / network.beta)} (1 / beta)`],
    ["Rate of combining", `${rate(1 / network.gamma)} (1 / gamma)`],
  ].filter(([, words]) => !/NaN|Infinity/.test(words));
}

function communicators(contexts) {
  const parts = Object.entries(contexts).filter(([number]) => number !== "1");
  if (!parts.length) return null;
  const rows = parts.map(([, { size, ranks }]) => [
    several(size, "rank"),
    ranges(ranks) + (ranks.length < size ? ", …" : ""),
  ]);
  return plainTable(["Size", "Ranks"], rows, "Communicators beside the world");
}

// All that is known of a call site: its data, the distribution of its times, its ranks, and its rounds.

import { element, known, quiet } from "./dom.js";
import { gauge } from "./parts.js";
import { histogram } from "./histogram.js";
import { roundsOf } from "./rounds.js";
import { plainTable } from "./sorted_table.js";
import { count, percent, ranges, several, size, time } from "./words.js";

// `members` are the ranks of its communicator.
export function siteDetails(site, members, hue) {
  return element(
    "div",
    { class: "site" },
    element(
      "div",
      { class: "columns" },
      element("div", {}, facts(site, members), lateness(site), blame(site)),
      histogram(site),
      byRank(site),
    ),
    element("h3", {}, "Rounds"),
    roundsOf(site, hue),
  );
}

function facts(site, members) {
  const all = [
    ["File", site.file && `${site.file}:${site.line}`],
    ["Kind", site.kind],
    ["Collective", site.collective === site.name ? null : site.collective],
    ["Algorithm", site.algorithm && `${site.algorithm}, ${several(site.nblocks ?? 1, "block")}`],
    ["Data", site.dtype && [site.shape, site.dtype].filter(Boolean).join(" ")],
    ["Operator", site.op],
    ["Moved", `${size(site.bytes_out)} sent, ${size(site.bytes_in)} received by all ranks in all calls`],
    ["Root", site.root],
    ["Communicator", communicator(site, members)],
    ["Variants", site.variants > 1 ? `${count(site.variants)} (other data or ranks); the one that took the most time is described here` : null],
    ["Failed", site.failed > 0 ? several(site.failed, "call") : null],
    ["Beside the program", site.hidden > 0 ? `${time(site.hidden)} under way while the ranks computed` : null],
  ];
  return element(
    "dl",
    { class: "pairs" },
    all
      .filter(([, value]) => known(value) && value !== "")
      .map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))),
  );
}

function communicator(site, members) {
  const size = several(site.ranks, "rank");
  if (site.context === "1") return `the world, ${size}`;
  if (!members) return size;
  return `${size}: ${ranges(members.ranks)}${members.ranks.length < members.size ? ", …" : ""}`;
}

function lateness(site) {
  if (!known(site.sampled) || site.sampled >= site.calls) return null;
  return quiet(
    `Lateness was recorded in ${count(site.sampled)} of ${several(site.calls, "call")}, and is scaled up to all.`,
  );
}

function byRank(site) {
  if (!site.by_rank?.length) return null;
  const longest = Math.max(...site.by_rank.map((row) => row[2]));
  const rows = site.by_rank.map(([rank, calls, whole, late]) => [
    rank,
    count(calls),
    gauge(whole, longest, "moving", time(whole)),
    gauge(late, longest, "late", time(late)),
  ]);
  return element(
    "div",
    {},
    plainTable(["Rank", "Calls", "Time", "Late"], rows, "By rank"),
    site.more_ranks ? quiet(`These took the most time; ${count(site.more_ranks)} other ranks are left out.`) : null,
  );
}

function blame(site) {
  if (!site.blame?.length) return null;
  const [most, all] = [site.blame[0][2], site.blame.reduce((sum, row) => sum + row[2], 0)];
  const rows = site.blame.map(([rank, calls, seconds]) => [
    rank,
    several(calls, "call"),
    gauge(seconds, most, "late", time(seconds)),
    percent(seconds, all),
  ]);
  return plainTable(["Rank", "Came last to", "Others waited", "Share"], rows, "For whom ranks waited");
}

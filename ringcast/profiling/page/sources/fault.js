// The first screen: what was slow, or failed, in words, and what to do about it.

import { element, quiet, section } from "./dom.js";
import { PARTS, PROGRAM, bar, legend, sumOf } from "./parts.js";
import { callName, count, ranges, several, time } from "./words.js";

const ADVICE = 5; // at first

export function heading(profile) {
  const facts = [
    several(profile.ranks.length + profile.missing.length, "rank"),
    several(profile.hosts.length, "host"),
    time(profile.span),
    profile.began && new Date(1000 * profile.began).toISOString().slice(0, 19).replace("T", " ") + " UTC",
  ];
  return [
    element("p", { class: "brand" }, "ringcast profile"),
    element("h1", {}, title(profile)),
    element("p", { class: "facts" }, facts.filter(Boolean).join(" · ")),
  ];
}

export function title(profile) {
  const program = profile.command.find((word) => word.endsWith(".py"));
  if (program) return program;
  const simulated = profile.command[0] === "ringcast" && profile.command[1] === "simulate";
  return simulated ? `A simulated ${profile.sites[0]?.name ?? "call"}` : "A job of ringcast";
}

// `reveal` shows the row of a call or of a rank, before a link leads there.
export function fault(profile, reveal) {
  return section(
    "fault",
    "In words",
    profile.failure && element("p", { class: "failure" }, element("b", {}, "The job failed: "), profile.failure),
    element("p", { class: "summary" }, profile.summary),
    facts(profile),
    advice(profile, reveal),
    whole(profile),
  );
}

function facts({ missing, notes, timeline }) {
  const lines = [...notes];
  if (missing.length) {
    const [which, them] = missing.length === 1 ? ["rank", "it"] : ["the ranks", "them"];
    lines.unshift(`Nothing is known of ${which} ${ranges(missing)}: no sum here includes ${them}.`);
  }
  if (timeline.stride > 1) lines.push(`The timeline has one of ${count(timeline.stride)} calls, and the slowest of each line on each rank.`);
  if (!lines.length) return null;
  return element(
    "ul",
    { class: "notes", "aria-label": "Notes on this profile" },
    lines.map((line) => element("li", {}, line)),
  );
}

function advice(profile, reveal) {
  if (!profile.advice.length) return quiet("No rule of the advice found a fault.");
  const list = (entries, start) =>
    element(
      "ol",
      { class: "advice", start },
      entries.map((one) => entry(one, profile, reveal)),
    );
  const [first, others] = [profile.advice.slice(0, ADVICE), profile.advice.slice(ADVICE)];
  return [
    element("h3", {}, "What to do"),
    list(first, 1),
    others.length
      ? element("details", {}, element("summary", {}, `${count(others.length)} more`), list(others, ADVICE + 1))
      : null,
  ];
}

function entry({ rule, text, do: todo, site: id, rank, seconds }, profile, reveal) {
  const site = profile.siteOf.get(id);
  const named = profile.ranks.find((one) => one.rank === rank);
  return element(
    "li",
    {},
    element("p", { class: "finding" }, element("span", { class: "rule" }, rule), " ", text),
    element("p", { class: "todo" }, todo),
    element(
      "p",
      { class: "where" },
      seconds > 0 ? element("span", {}, `${time(seconds)}, the sum of all ranks`) : null,
      site ? element("a", { href: `#site-${id}`, on: { click: () => reveal.site(site) } }, callName(site)) : null,
      named ? element("a", { href: `#rank-${rank}`, on: { click: () => reveal.rank(named) } }, `rank ${rank}`) : null,
    ),
  );
}

function whole({ ranks }) {
  const all = [PROGRAM, ...PARTS];
  const sums = sumOf(
    ranks,
    all.map(({ key }) => key),
  );
  const total = all.reduce((sum, { key }) => sum + sums[key], 0);
  return [element("h3", {}, "Where the time of all ranks went"), bar(sums, all, total), legend(sums)];
}

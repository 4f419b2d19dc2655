// The ranks: which waits, and for which the others wait.

import { element, quiet, section } from "./dom.js";
import { PARTS, PROGRAM, bar, gauge, spent } from "./parts.js";
import { sortedTable } from "./sorted_table.js";
import { count, ranges, size, time } from "./words.js";

const MOST = 64; // rows at first
const HIDDEN = {
  key: "hidden",
  title: "Hidden",
  meaning: "Time of requests that were under way while the program did something else",
};

export function ranks(profile) {
  if (!profile.ranks.length) {
    return { element: section("ranks", "Ranks", quiet("No rank has written a profile.")), reveal() {} };
  }
  const many = profile.ranks.length > MOST;
  const table = sortedTable({
    name: "Ranks: where the time of each went, and how long others waited for it",
    columns: columns(profile.ranks),
    rows: profile.ranks,
    order: many ? { key: "blamed", direction: "descending" } : { key: "rank", direction: "ascending" },
    id: ({ rank }) => `rank-${rank}`,
    most: MOST,
  });
  return { ...table, element: section("ranks", "Ranks", inWords(profile), table.element) };
}

function inWords({ ranks: all, missing }) {
  const [waited, blamed] = ["late", "blamed"].map((key) =>
    all.reduce((best, rank) => (rank[key] > best[key] ? rank : best)),
  );
  const lines = [];
  if (blamed.blamed > 0) lines.push(`Others waited longest for rank ${blamed.rank}: ${time(blamed.blamed)} in all.`);
  if (waited.late > 0)
    lines.push(`Rank ${waited.rank} waited longest for others: ${time(waited.late)} of its ${time(waited.span)}.`);
  if (missing.length) lines.push(`Not in this table: ${missing.length === 1 ? "rank" : "ranks"} ${ranges(missing)}.`);
  return lines.length ? element("p", {}, lines.join(" ")) : null;
}

function columns(all) {
  const longest = Math.max(...all.map(({ span }) => span));
  const most = Math.max(...all.map(({ blamed }) => blamed));
  const number = (key, title, show, hint) => ({
    key,
    title,
    hint,
    value: (rank) => rank[key],
    show: (rank) => show(rank[key]),
  });
  const word = (key, title) => ({ key, title, text: true, value: (rank) => rank[key], show: (rank) => rank[key] });
  const failures = all.some(({ error }) => error)
    ? [{ ...word("error", "Failure"), show: ({ error }) => element("span", { class: "wrong" }, error) }]
    : [];
  return [
    { ...number("rank", "Rank", String), text: true }, // ranks begin with the lowest
    ...failures,
    {
      key: "share",
      title: "Where the time went",
      wide: true,
      hint: "Sorts by the share outside ringcast",
      value: (rank) => rank.program / Math.max(rank.span, 1e-30),
      show: (rank) => bar(rank, [PROGRAM, ...PARTS], longest),
    },
    {
      key: "blamed",
      title: "Others waited for it",
      hint: "Time that other ranks have waited for this one",
      value: ({ blamed }) => blamed,
      show: ({ blamed }) => gauge(blamed, most, "late", time(blamed)),
    },
    ...spent(all, [PROGRAM, ...PARTS, HIDDEN]).map(({ key, title, meaning }) => number(key, title, time, meaning)),
    number("calls", "Calls", count),
    number("sent", "Sent", size),
    number("received", "Received", size),
    word("host", "Host"),
    { ...number("pid", "PID", String), text: true },
  ];
}

// The calls of the program, by the line that makes them.

import { element, quiet, section, swatch } from "./dom.js";
import { PARTS, bar, spent } from "./parts.js";
import { siteDetails } from "./site_details.js";
import { sortedTable } from "./sorted_table.js";
import { about, count, fileName, place, size, time } from "./words.js";

const MOST = 100; // rows at first

export function sites(profile, colourOf) {
  if (!profile.sites.length) {
    return { element: section("calls", "Calls", quiet("The program made no call.")), reveal() {}, openAll() {} };
  }
  const table = sortedTable({
    name:
      "Each row is a line of the program that makes calls. Times are sums of all its calls on all ranks, " +
      "but median, slowest, net and predicted are those of one call on one rank.",
    columns: columns(profile, colourOf),
    rows: profile.sites,
    order: { key: "time", direction: "descending" },
    id: (site) => `site-${site.id}`,
    details: (site) => siteDetails(site, profile.contexts[site.context], colourOf(site.id)),
    most: MOST,
  });
  return { ...table, element: section("calls", "Calls", table.element) };
}

function columns(profile, colourOf) {
  const longest = Math.max(...profile.sites.map((site) => site.time));
  const times = (key, title, hint) => ({
    key,
    title,
    hint,
    value: (site) => site[key],
    show: (site) => time(site[key]),
  });
  return [
    {
      key: "call",
      title: "Call",
      text: true,
      value: (site) => `${fileName(site)}:${site.line}`,
      show: (site) => called(site, colourOf),
    },
    {
      key: "share",
      title: "Where the time went",
      wide: true,
      hint: "Sorts by the share that is late",
      value: (site) => site.late / Math.max(site.time, 1e-30),
      show: (site) => bar(site, PARTS, longest),
    },
    times("time", "Time", "Of all ranks and all calls"),
    ...spent(profile.sites, PARTS).map(({ key, title, meaning }) => times(key, title, meaning)),
    {
      key: "calls",
      title: "Calls",
      hint: "Of one rank",
      value: (site) => site.calls,
      show: (site) => count(site.calls),
    },
    {
      key: "bytes",
      title: "Bytes",
      hint: "Sent by all ranks in all calls, or received, where that is more",
      value: (site) => Math.max(site.bytes_out, site.bytes_in),
      show: (site) => size(Math.max(site.bytes_out, site.bytes_in)),
    },
    {
      ...times("median", "Median", "Of a call, from the moment at which the rank made it; ≈ where only a digit is known"),
      show: (site) => (site.median_is_rough ? about(site.median) : time(site.median)),
    },
    times("slowest", "Slowest", "Of a call, from the moment at which the rank made it"),
    times("net", "Net", "Median of a call, from the moment at which all ranks that it needs had made it too"),
    times("predicted", "Predicted", "By the cost model, to compare with net"),
  ];
}

function called(site, colourOf) {
  return [
    swatch(`var(--${colourOf(site.id)})`),
    element(
      "span",
      { class: "call" },
      element("b", {}, site.name),
      element("span", { class: "place", title: site.file }, place(site)),
    ),
  ];
}

// The slowest calls of the timeline as a table: what the picture says, for those who do not see it.

import { element } from "./dom.js";
import { sortedTable } from "./sorted_table.js";
import { callName, time } from "./words.js";

const MOST = 20;

export function slowest(profile, rows, open) {
  const length = ({ start, end }) => end - start;
  const late = ({ start, end, ready }) => (ready === null ? null : Math.max(0, Math.min(ready, end) - start));
  const events = rows
    .flatMap((row) => row.events)
    .sort((a, b) => length(b) - length(a))
    .slice(0, MOST);
  const button = (event) =>
    element(
      "button",
      { type: "button", class: "link", on: { click: () => open(event) } },
      callName(profile.siteOf.get(event.site)),
    );
  const { element: table } = sortedTable({
    name: `The ${events.length} slowest calls of the timeline`,
    columns: [
      { key: "call", title: "Call", text: true, value: ({ site }) => callName(profile.siteOf.get(site)), show: button },
      { key: "rank", title: "Rank", text: true, value: ({ rank }) => rank, show: ({ rank }) => rank },
      { key: "start", title: "Start", text: true, value: ({ start }) => start, show: ({ start }) => time(start) },
      { key: "length", title: "Time", value: length, show: (event) => time(length(event)) },
      {
        key: "late",
        title: "Late",
        value: late,
        show: (event) => time(late(event)),
        hint: "Until the last rank had made the call",
      },
    ],
    rows: events,
    order: { key: "length", direction: "descending" },
  });
  return table;
}

// The page, in the order in which it is read.

import { unpack } from "./data.js";
import { element } from "./dom.js";
import { fault, heading, title } from "./fault.js";
import { machine } from "./machine.js";
import { prepareForPaper } from "./printing.js";
import { ranks } from "./ranks.js";
import { sites } from "./sites.js";
import { siteColours } from "./theme.js";
import { timeline } from "./timeline.js";
import { traffic } from "./traffic.js";
import { legible } from "./words.js";

const SECTIONS = [
  ["fault", "In words"],
  ["calls", "Calls"],
  ["ranks", "Ranks"],
  ["traffic", "Bytes"],
  ["timeline", "Timeline"],
  ["machine", "Machine"],
];

const profile = unpack(JSON.parse(document.getElementById("profile").textContent));
const colourOf = siteColours(profile.sites);
const calls = sites(profile, colourOf);

const byRank = ranks(profile);
const reveal = { site: calls.reveal, rank: byRank.reveal };

document.title = legible(`Profile of ${title(profile)}`);
document.getElementById("top").append(...heading(profile));
document.getElementById("top").after(
  element(
    "nav",
    { "aria-label": "Sections" },
    SECTIONS.map(([id, name]) => element("a", { href: `#${id}` }, name)),
  ),
);
document
  .getElementById("page")
  .append(
    fault(profile, reveal),
    calls.element,
    byRank.element,
    traffic(profile),
    timeline(profile, colourOf, reveal),
    machine(profile),
  );
prepareForPaper(calls.openAll);

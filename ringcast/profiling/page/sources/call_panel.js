// A call that was opened in the timeline, and the rounds of its site.

import { element } from "./dom.js";
import { roundsOf } from "./rounds.js";
import { callName } from "./words.js";

export function callPanel(event, site, words, hue, reveal) {
  return element(
    "article",
    { "aria-label": "The call that is open" },
    element("h3", {}, callName(site), ` on rank ${event.rank}`),
    element("p", {}, words, "."),
    site
      ? [
          element(
            "p",
            {},
            element(
              "a",
              { href: `#site-${site.id}`, on: { click: () => reveal.site(site) } },
              "Its row among the calls",
            ),
          ),
          roundsOf(site, hue),
        ]
      : null,
  );
}

// On paper nothing is closed, and all is in light colours.

import { repaint } from "./theme.js";

// `open` opens what the page itself has closed.
export function prepareForPaper(open) {
  addEventListener("beforeprint", () => {
    document.documentElement.dataset.print = "";
    open();
    for (const one of document.querySelectorAll("details")) one.open = true;
    repaint();
  });
  addEventListener("afterprint", () => {
    delete document.documentElement.dataset.print;
    repaint();
  });
}

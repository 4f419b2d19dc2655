// One text beside the pointer, for pictures; screen readers get the same by the pictures' own status line.

import { element } from "./dom.js";

const tip = element("div", { class: "tip", "aria-hidden": "true", hidden: true });

export function showTip(lines, x, y) {
  if (!tip.isConnected) document.body.append(tip);
  tip.replaceChildren(...lines.map((line) => element("div", {}, line)));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = Math.min(x + 14, document.documentElement.clientWidth - width - 8);
  const below = y + 16 + height < window.innerHeight;
  tip.style.setProperty("left", `${Math.max(left, 8)}px`);
  tip.style.setProperty("top", `${below ? y + 16 : y - height - 12}px`);
}

export function hideTip() {
  tip.hidden = true;
}

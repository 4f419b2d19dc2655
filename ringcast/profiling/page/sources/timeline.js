// The timeline: zoomed by wheel, buttons and keys, moved by dragging and arrows. A call is read out when the pointer
// or the keys come to it, and opened by a click or Enter.

import { callPanel } from "./call_panel.js";
import { element, freshId, quiet, section, swatch } from "./dom.js";
import { slowest } from "./slowest.js";
import { repaints } from "./theme.js";
import { LEFT, TOP, paint, rowHeight } from "./timeline_paint.js";
import { Row } from "./timeline_rows.js";
import { View } from "./timeline_view.js";
import { hideTip, showTip } from "./tooltip.js";
import { callName, count, moment, time } from "./words.js";

const [NEARER, FARTHER, STEP, SLACK, DRAGGED] = [0.6, 1 / 0.6, 0.2, 3, 4];
const KEYS =
  "Keys, once the timeline has the focus: + and − zoom, ← and → move, 0 shows all; " +
  "↑ and ↓ choose a rank, “,” and “.” the call before and after, Enter opens it. " +
  "The wheel zooms after a click into the timeline, or with Ctrl.";

export function timeline(profile, colourOf, reveal) {
  const rows = profile.timeline.rows.map((row) => new Row(row));
  if (!rows.length) return section("timeline", "Timeline", quiet("No call was recorded."));
  const help = freshId("help");
  const canvas = element("canvas", {
    class: "timeline",
    tabindex: "0",
    role: "application",
    "aria-roledescription": "timeline",
    "aria-label": "Calls of each rank over time",
    "aria-describedby": help,
  });
  const status = element("p", { class: "status", role: "status" });
  const panel = element("div", { class: "panel" });
  const span = Math.max(profile.span, ...rows.map((row) => row.latest.at(-1)));
  const state = {
    rows,
    view: new View(span, span / 1e6),
    focused: null,
    selected: null,
    colourOf,
    nameOf: (id) => profile.siteOf.get(id)?.name ?? "",
  };
  const shown = element("span", { class: "shown" });
  const overview = element("span");
  const act = actions(state, { profile, canvas, status, panel, shown, overview, reveal });
  const holder = element("div", { class: "canvas" }, canvas);
  repaints(holder, act.draw);
  listenToPointer(canvas, state, act);
  listenToKeys(canvas, state, act);
  return section(
    "timeline",
    "Timeline",
    element(
      "p",
      {},
      `${count(rows.reduce((sum, { events }) => sum + events.length, 0))} calls. ` +
        "A box is a call; it is hatched while its rank waits for one that has not made the call yet.",
    ),
    toolbar(act, shown),
    element("div", { class: "overview", "aria-hidden": "true" }, overview),
    holder,
    status,
    legend(profile, colourOf),
    element("p", { id: help, class: "quiet help" }, KEYS),
    panel,
    slowest(profile, rows, (event) => act.open(event, true)),
  );
}

function actions(state, { profile, canvas, status, panel, shown, overview, reveal }) {
  const { view, rows } = state;
  let asked = 0;
  const draw = () => {
    const width = canvas.parentElement.clientWidth;
    if (width) paint(canvas, width, state);
    shown.textContent = `${moment(view.from, view.width)} to ${moment(view.to, view.width)}`;
    overview.style.setProperty("left", `${(100 * view.from) / view.span}%`);
    overview.style.setProperty("width", `${(100 * view.width) / view.span}%`);
    Object.assign(canvas.dataset, { from: view.from, to: view.to });
  };
  // Several events may come before the next picture.
  const soon = () => {
    cancelAnimationFrame(asked);
    asked = requestAnimationFrame(draw);
  };
  const words = (event) => lines(event, profile.siteOf.get(event.site)).join("; ");
  return {
    draw,
    soon,
    words,
    lines: (event) => lines(event, profile.siteOf.get(event.site)),
    zoom(factor, at) {
      view.zoom(factor, at);
      soon();
    },
    pan(seconds) {
      view.pan(seconds);
      soon();
    },
    step(share) {
      view.pan(share * view.width);
      soon();
    },
    whole() {
      view.whole();
      soon();
    },
    focus(event) {
      if (!event) return;
      state.focused = event;
      view.reveal(event);
      status.textContent = words(event);
      soon();
    },
    hover(event) {
      if (event === state.focused) return;
      state.focused = event;
      soon();
    },
    open(event, around = false) {
      state.selected = event;
      if (around) view.around(event);
      panel.replaceChildren(
        callPanel(event, profile.siteOf.get(event.site), words(event), state.colourOf(event.site), reveal),
      );
      status.textContent = words(event);
      soon();
      if (around) canvas.scrollIntoView({ block: "center" });
    },
    eventAt(x, y) {
      const row = rows[Math.floor((y - TOP) / rowHeight(rows.length))];
      if (!row || x < LEFT || y < TOP) return null;
      return row.at(timeAt(canvas, view, x), (SLACK * view.width) / (canvas.clientWidth - LEFT));
    },
  };
}

function lines({ rank, start, end, ready }, site) {
  const waited = ready === null ? null : Math.max(0, Math.min(ready, end) - start);
  return [
    `${callName(site)}, rank ${rank}`,
    `${moment(start, end - start)} to ${moment(end, end - start)}: ${time(end - start)}`,
    waited === null
      ? "lateness unknown"
      : waited > 0
        ? `${time(waited)} until the last rank had made the call`
        : "waited for no rank",
  ];
}

function timeAt(canvas, view, x) {
  return view.from + ((x - LEFT) / (canvas.clientWidth - LEFT)) * view.width;
}

function listenToPointer(canvas, state, act) {
  const { view } = state;
  let drag = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    canvas.focus({ preventScroll: true });
    canvas.setPointerCapture(event.pointerId);
    drag = { x: event.offsetX, from: view.from, moved: false };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (drag) {
      drag.moved ||= Math.abs(event.offsetX - drag.x) > DRAGGED;
      if (drag.moved)
        act.pan(drag.from - ((event.offsetX - drag.x) / (canvas.clientWidth - LEFT)) * view.width - view.from);
      hideTip();
      return;
    }
    const found = act.eventAt(event.offsetX, event.offsetY);
    act.hover(found);
    if (found) showTip(act.lines(found), event.clientX, event.clientY);
    else hideTip();
  });
  canvas.addEventListener("pointerup", (event) => {
    const found = drag && !drag.moved ? act.eventAt(event.offsetX, event.offsetY) : null;
    drag = null;
    if (found) act.open(found);
  });
  canvas.addEventListener("pointercancel", () => {
    drag = null;
  });
  canvas.addEventListener("pointerleave", () => {
    hideTip();
    if (document.activeElement !== canvas) act.hover(null);
  });
  canvas.addEventListener(
    "wheel",
    (event) => {
      // A page that is scrolled past the timeline must not stop there.
      if (document.activeElement !== canvas && !event.ctrlKey) return;
      event.preventDefault();
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) act.pan((event.deltaX / canvas.clientWidth) * view.width);
      else act.zoom(1.0015 ** event.deltaY, timeAt(canvas, view, event.offsetX));
    },
    { passive: false },
  );
}

function listenToKeys(canvas, state, act) {
  const { rows, view } = state;
  const rowOf = (event) => rows.findIndex(({ rank }) => rank === event?.rank);
  const toRow = (step) => {
    const now = rowOf(state.focused);
    const row = rows[now < 0 ? 0 : Math.min(Math.max(now + step, 0), rows.length - 1)];
    return row.nearest(state.focused ? state.focused.start : view.from);
  };
  const inRow = (step) =>
    state.focused ? rows[rowOf(state.focused)].next(state.focused, step) : rows[0].nearest(view.from);
  const keys = {
    "+": () => act.zoom(NEARER),
    "=": () => act.zoom(NEARER),
    "-": () => act.zoom(FARTHER),
    0: act.whole,
    Home: act.whole,
    ArrowLeft: () => act.step(-STEP),
    ArrowRight: () => act.step(STEP),
    ArrowUp: () => act.focus(toRow(-1)),
    ArrowDown: () => act.focus(toRow(1)),
    ",": () => act.focus(inRow(-1)),
    ".": () => act.focus(inRow(1)),
    Enter: () => state.focused && act.open(state.focused),
  };
  canvas.addEventListener("keydown", (event) => {
    if (!keys[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    keys[event.key]();
  });
}

function toolbar(act, shown) {
  const button = (name, sign, press) =>
    element("button", { type: "button", "aria-label": name, title: name, on: { click: press } }, sign);
  return element(
    "div",
    { class: "toolbar", role: "group", "aria-label": "Time that is shown" },
    button("Nearer", "+", () => act.zoom(NEARER)),
    button("Farther", "−", () => act.zoom(FARTHER)),
    button("Earlier", "←", () => act.step(-STEP)),
    button("Later", "→", () => act.step(STEP)),
    button("All of the job", "All", act.whole),
    shown,
  );
}

function legend(profile, colourOf) {
  const named = profile.sites.filter((site) => colourOf(site.id) !== "site-other");
  const item = (hue, words) => element("li", {}, swatch(`var(--${hue})`), words);
  return element(
    "ul",
    { class: "key", "aria-label": "Colours of the calls" },
    named.map((site) => item(colourOf(site.id), callName(site))),
    named.length < profile.sites.length ? item("site-other", "other calls") : null,
  );
}

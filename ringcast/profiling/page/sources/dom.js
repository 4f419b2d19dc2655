// Elements are made here only: tags and attributes are ours, and all text becomes text. No script here parses HTML.

import { legible } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";

// Children are nodes, texts, lists of them, or null for none.
export function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function drawn(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") for (const [event, act] of Object.entries(value)) made.addEventListener(event, act);
    // The page's policy forbids style attributes, but not styles that its own script sets.
    else if (name === "style")
      for (const [property, one] of Object.entries(value)) made.style.setProperty(property, one);
    else if (value === true) made.setAttribute(name, "");
    else if (known(value) && value !== false) made.setAttribute(name, value);
  }
  for (const child of children.flat(Infinity)) {
    if (known(child)) made.append(child instanceof Node ? child : legible(child));
  }
  return made;
}

export function section(id, title, ...children) {
  const heading = `${id}-title`;
  return element("section", { id, "aria-labelledby": heading }, element("h2", { id: heading }, title), ...children);
}

// A picture with its name, and a text that says the same as a table, closed until it is wanted or printed.
export function figure(picture, caption, table = null) {
  return element(
    "figure",
    {},
    element("figcaption", {}, caption),
    picture,
    table && element("details", { class: "as-table" }, element("summary", {}, "The same as a table"), table),
  );
}

// What is too wide for the page scrolls by itself, also by keys.
export function scrolls(wide, name) {
  return element("div", { class: "scrolls", tabindex: "0", role: "group", "aria-label": name }, wide);
}

export function quiet(...words) {
  return element("p", { class: "quiet" }, ...words);
}

// A square in a colour, beside the words for it.
export function swatch(background) {
  return element("span", { class: "swatch", style: { background }, "aria-hidden": "true" });
}

export function known(value) {
  return value !== null && value !== undefined;
}

let numbered = 0;

export function freshId(word) {
  numbered += 1;
  return `${word}-${numbered}`;
}

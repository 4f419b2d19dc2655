// Colours for canvases, which the style sheet cannot reach; painted again when they, or the width, change.

const painters = new Set();

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// Let `paint` run when `holder` is laid out, and whenever it is as wide as before no longer, or colours change.
export function repaints(holder, paint) {
  let width = -1;
  painters.add(paint);
  new ResizeObserver(() => {
    if (holder.clientWidth !== width) requestAnimationFrame(paint);
    width = holder.clientWidth;
  }).observe(holder);
}

export function repaint() {
  for (const paint of painters) paint();
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);

// Give a canvas its size in the pixels of the screen; what is drawn is counted in the page's.
export function fitted(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.setProperty("width", `${width}px`);
  canvas.style.setProperty("height", `${height}px`);
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

const HUES = 8; // --site-0 to --site-7; call sites that take less time are grey

// The colour of each call site: those that take most time have one of their own.
export function siteColours(sites) {
  const colours = new Map(sites.map((site, i) => [site.id, i < HUES ? `site-${i}` : "site-other"]));
  return (id) => colours.get(id) ?? "site-other";
}

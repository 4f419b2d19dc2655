// Bytes and rates between ranks, and between hosts.

import { element, quiet, section } from "./dom.js";
import { heatMap } from "./heat_map.js";
import { rate, size } from "./words.js";

export function traffic(profile) {
  const pictures = profile.matrices
    .flatMap((matrix) => [
      matrix.bytes.length ? heatMap(`Bytes between ${matrix.of}`, matrix.names, matrix.bytes, size) : null,
      matrix.rates.length
        ? heatMap(`Rates between ${matrix.of} (medians, while bytes were under way)`, matrix.names, matrix.rates, rate)
        : null,
    ])
    .filter(Boolean);
  if (!pictures.length) return section("traffic", "Bytes between ranks", quiet("No rank sent a byte to another."));
  return section("traffic", "Bytes between ranks", element("div", { class: "columns matrices" }, pictures));
}

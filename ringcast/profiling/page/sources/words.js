// Numbers and names as people read them.

const TIMES = [
  [1, "s"],
  [1e-3, "ms"],
  [1e-6, "µs"],
  [1e-9, "ns"],
];
const SIZES = [
  [1e12, "TB"],
  [1e9, "GB"],
  [1e6, "MB"],
  [1e3, "kB"],
  [1, "B"],
];
const UNKNOWN = "–";
const SPACE = "\u00a0"; // a number stays with its unit

// Characters that are not shown, or that change the order in which others are: a name must not look like another one.
const TRICKS = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]|\p{Surrogate}/gu;

export function legible(text) {
  return String(text).replace(TRICKS, (sign) => {
    const code = sign.codePointAt(0);
    // Python keeps a byte that is no text as the surrogate 0xdc00 + byte.
    if (code >= 0xdc80 && code <= 0xdcff) return `\\x${(code - 0xdc00).toString(16)}`;
    return code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
  });
}

// Three digits, as 12.3 or 4.00; of a thousand or more all, as 6,163.
function digits(value) {
  const size = Math.abs(value);
  if (size >= 999.5) return count(Math.round(value));
  return value.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
}

function scaled(value, units, per = "") {
  if (value === null || value === undefined) return UNKNOWN;
  if (value === 0) return "0";
  const [unit, name] = units.find(([one]) => Math.abs(value) >= 0.9995 * one) ?? units.at(-1);
  const quotient = name === "B" ? Math.round(value) : value / unit; // a part of a byte is none
  const shown = Number.isInteger(quotient) ? count(quotient) : digits(quotient);
  return `${shown}${SPACE}${name}${per}`;
}

export const time = (seconds) => scaled(seconds, TIMES);
// A time of which no more than the first digit is known.
export function about(seconds) {
  const [unit, name] = TIMES.find(([one]) => seconds >= 0.95 * one) ?? TIMES.at(-1);
  return `≈${SPACE}${Number((seconds / unit).toPrecision(1))}${SPACE}${name}`;
}

export const size = (bytes) => scaled(bytes, SIZES);
export const rate = (perSecond) => scaled(perSecond, SIZES, "/s");

// The project's pages write 4,096 whatever the reader's language.
export function count(number) {
  return number === null || number === undefined ? UNKNOWN : number.toLocaleString("en-US");
}

// A number where there is little room, as 102k.
export function shortCount(number) {
  const [unit, sign] = number >= 999_500 ? [1e6, "M"] : [1e3, "k"];
  return number < 10_000 ? count(number) : `${Number((number / unit).toPrecision(3))}${sign}`;
}

export function percent(part, whole) {
  if (!whole) return UNKNOWN;
  const share = (100 * part) / whole;
  return `${share >= 9.95 || share === 0 ? share.toFixed(0) : share.toFixed(1)}${SPACE}%`;
}

export function several(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

// 0 to 3, 7, 9 for [0, 1, 2, 3, 7, 9].
export function ranges(numbers, most = 12) {
  const found = [];
  for (const number of [...numbers].sort((a, b) => a - b)) {
    const last = found.at(-1);
    if (last && number === last[1] + 1) last[1] = number;
    else found.push([number, number]);
  }
  const named = found.slice(0, most).map(([a, b]) => (a === b ? `${a}` : b === a + 1 ? `${a}, ${b}` : `${a} to ${b}`));
  return named.join(", ") + (found.length > most ? ", …" : "");
}

export function fileName(site) {
  return site.file.slice(site.file.lastIndexOf("/") + 1);
}

// The line of a call, as solver.py:41; "" where it has none, as in a simulation.
export function place(site) {
  return site.file && `${fileName(site)}:${site.line}`;
}

export function callName(site) {
  if (!site) return "a call without a row";
  return site.file ? `${site.name} at ${place(site)}` : site.name;
}

// Round numbers for an axis of `length`, at most about `most` of them.
export function ticks(from, to, most) {
  const rough = (to - from) / Math.max(most, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough) ?? 10 * power;
  const found = [];
  for (let i = Math.ceil(from / step - 1e-9); i * step <= to * (1 + 1e-12); i += 1) found.push(i * step);
  return { step, found };
}

// A moment, with as many digits as tell it from others about `length` before or after: 1.20431 s.
export function moment(seconds, length) {
  return tickTime(seconds, 10 ** Math.floor(Math.log10(Math.max(length, 1e-9) / 20)));
}

// A time on an axis with this distance of its ticks: 1.204 s beside 1.206 s.
export function tickTime(seconds, step) {
  const [unit, name] = TIMES.find(([one]) => Math.max(Math.abs(seconds), step) >= 0.9995 * one) ?? TIMES.at(-1);
  const places = Math.min(Math.max(0, -Math.floor(Math.log10(step / unit) + 1e-9)), 9);
  return `${(seconds / unit).toFixed(places)}${SPACE}${name}`;
}

// The profile of this page, as ringcast/profiling/page/compact.py has packed it.

const NONE = {
  command: [],
  span: 0,
  failure: "",
  missing: [],
  notes: [],
  machine: {},
  hosts: [],
  contexts: {},
  matrices: [],
  advice: [],
  summary: "",
  sites: [],
};

export function unpack(packed) {
  return {
    ...NONE,
    ...packed,
    ranks: rows(packed.ranks ?? {}),
    timeline: {
      stride: packed.timeline.stride,
      rows: packed.timeline.rows.map(([rank, numbers]) => ({
        rank,
        events: events(rank, numbers, packed.timeline.tick),
      })),
    },
    siteOf: new Map(packed.sites.map((site) => [site.id, site])),
  };
}

function rows(columns) {
  const keys = Object.keys(columns);
  const length = keys.length ? columns[keys[0]].length : 0;
  return Array.from({ length }, (_, i) => Object.fromEntries(keys.map((key) => [key, columns[key][i]])));
}

function events(rank, numbers, tick) {
  const found = [];
  let at = 0;
  for (let i = 0; i < numbers.length; i += 4) {
    const [site, later, length, wait] = numbers.slice(i, i + 4);
    at += later;
    const start = at * tick;
    found.push({ rank, site, start, end: (at + length) * tick, ready: wait < 0 ? null : (at + wait) * tick });
  }
  return found;
}

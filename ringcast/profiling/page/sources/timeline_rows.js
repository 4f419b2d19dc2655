// The events of a rank, found by time. They are in the order of their starts, and may overlap: requests do.

export class Row {
  constructor({ rank, events }) {
    Object.assign(this, { rank, events, latest: [] });
    let latest = -Infinity;
    for (const { end } of events) this.latest.push((latest = Math.max(latest, end)));
  }

  // The number of the first event that ends after `time`, or that others before it may hide.
  firstAfter(time) {
    return lowest(this.events.length, (i) => this.latest[i] >= time);
  }

  // The events within these times, in order.
  *within(from, to) {
    for (let i = this.firstAfter(from); i < this.events.length && this.events[i].start <= to; i += 1) {
      if (this.events[i].end >= from) yield this.events[i];
    }
  }

  // The event at a time, or the nearest one that is less than `slack` away.
  at(time, slack) {
    let best = null;
    let distance = slack;
    for (const event of this.within(time - slack, time + slack)) {
      const far = Math.max(event.start - time, time - event.end, 0);
      if (far <= distance) [best, distance] = [event, far];
    }
    return best;
  }

  // The event that starts before or after this one.
  next(event, step) {
    return this.events[this.events.indexOf(event) + step] ?? null;
  }

  nearest(time) {
    const i = Math.min(this.firstAfter(time), this.events.length - 1);
    return this.events[i] ?? null;
  }
}

function lowest(count, holds) {
  let [low, high] = [0, count];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

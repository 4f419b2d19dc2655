// The part of the job's time that the timeline shows.

export class View {
  constructor(span, shortest) {
    Object.assign(this, { span, shortest, from: 0, to: span });
  }

  get width() {
    return this.to - this.from;
  }

  // Times smaller are nearer; `at` stays where it is.
  zoom(factor, at = (this.from + this.to) / 2) {
    const width = Math.min(Math.max(this.width * factor, this.shortest), this.span);
    this.show(at - ((at - this.from) * width) / this.width, width);
  }

  pan(seconds) {
    this.show(this.from + seconds, this.width);
  }

  whole() {
    this.show(0, this.span);
  }

  // An event, with some of what is around it.
  around({ start, end }) {
    const width = Math.min(Math.max(4 * (end - start), this.shortest), this.span);
    this.show((start + end) / 2 - width / 2, width);
  }

  reveal({ start, end }) {
    if (start < this.from || end > this.to) this.show((start + end) / 2 - this.width / 2, this.width);
  }

  show(from, width) {
    this.from = Math.min(Math.max(from, 0), this.span - width);
    this.to = this.from + width;
  }
}

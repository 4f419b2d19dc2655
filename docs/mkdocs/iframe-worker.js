// The search of a page that was opened as a file: browsers start no Worker there, so its script runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      const inside = frame.contentWindow
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      const script = inside.document.createElement("script")
      script.src = address
      this.inside = new Promise(resolve => script.addEventListener("load", () => resolve(inside)))
      inside.document.body.append(script)
    }

    async postMessage(data) {
      (await this.inside).dispatchEvent(new MessageEvent("message", { data }))
    }
  }
}

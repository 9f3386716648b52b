// Browsers refuse workers in pages that are opened from a folder. Then the search of the site runs
// in a hidden frame, as a worker would. The theme's search recognizes it by its name.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inner = frame.contentWindow;
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inner.document.createElement("script");
      this.started = new Promise((resolve) => script.addEventListener("load", () => resolve(inner)));
      script.src = url;
      inner.document.body.append(script);
    }

    async postMessage(data) {
      (await this.started).dispatchEvent(new MessageEvent("message", { data }));
    }
  };
  window.Worker = window.IFrameWorker;
}

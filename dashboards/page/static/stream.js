import * as Token from "./token.js";

// Server-sent events, read with fetch, since an EventSource sends no Authorization header. A stream
// that breaks or stays silent too long is reopened and resumes after the last event with an ID.
export class Stream {
  static FIRST = 1000; // ms until a stream is reopened, doubled at each attempt
  static MOST = 30000; // ms, maximum of that
  static SILENCE = 15000; // ms until a silent stream counts as dead
  static LONGEST = 64 << 20; // maximum length of a line in characters

  // take(name, value) is called for each event, lost() when a connection ends.
  constructor(path, { take, lost }) {
    Object.assign(this, { path, take, lost, seen: "", closed: false, wait: Stream.FIRST });
    this.run();
  }

  close() {
    this.closed = true;
    this.connection?.abort();
    this.wake?.();
  }

  async run() {
    while (!this.closed) {
      const asked = await this.connect().catch(() => 0); // retried after any error
      if (this.closed) return;
      this.lost();
      await new Promise((resolve) => {
        this.wake = resolve;
        setTimeout(resolve, Math.max(asked, this.wait * (0.5 + Math.random() / 2)));
      });
      this.wait = Math.min(2 * this.wait, Stream.MOST);
    }
  }

  // connect reads one connection to its end. It returns the server's retry delay in ms.
  async connect() {
    this.connection = new AbortController();
    const response = await Token.request(this.path, {
      signal: this.connection.signal, headers: { Accept: "text/event-stream", ...(this.seen && { "Last-Event-ID": this.seen }) },
    });
    if (!response.ok) {
      response.body?.cancel();
      return (Number(response.headers.get("Retry-After")) || 0) * 1000;
    }
    this.parts = [];
    this.length = 0;
    this.event = { name: "", id: null, data: [] };
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const silence = setTimeout((connection) => connection.abort(), Stream.SILENCE, this.connection);
      const { done, value } = await reader.read().finally(() => clearTimeout(silence));
      if (done || this.closed) return 0;
      this.read(value);
    }
  }

  read(text) {
    let from = 0;
    for (let end = text.indexOf("\n"); end >= 0; end = text.indexOf("\n", from)) {
      this.parts.push(text.slice(from, end));
      this.line(this.parts.join(""));
      this.parts = [];
      this.length = 0;
      from = end + 1;
    }
    this.parts.push(text.slice(from));
    this.length += text.length - from;
    if (this.length > Stream.LONGEST) throw new Error("a line without end");
  }

  line(text) {
    const { event } = this;
    if (text === "") return this.dispatch();
    const at = text.indexOf(":");
    const field = at < 0 ? text : text.slice(0, at);
    const value = at < 0 ? "" : text.slice(text[at + 1] === " " ? at + 2 : at + 1);
    if (field === "event") event.name = value;
    else if (field === "id") event.id = value;
    else if (field === "data") event.data.push(value);
  }

  dispatch() {
    const { name, id, data } = this.event;
    this.event = { name: "", id: null, data: [] };
    if (id !== null) this.seen = id;
    if (this.closed || !data.length) return;
    this.wait = Stream.FIRST;
    try {
      this.take(name, JSON.parse(data.join("\n")));
    } catch (error) {
      reportError(error); // an error in one event must not end the stream
    }
  }
}

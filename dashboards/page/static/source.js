"use strict";

// Where bundles come from: the page itself (a report), or the API beside it.
const Source = (() => {
  let live = false;
  let timer = 0;
  let request = null;

  // fetchBundle asks for one signal at one level over the selected range, and opens
  // the answer. A newer request ends an older one.
  async function fetchBundle(signal, level) {
    request?.abort();
    request = new AbortController();
    const { signal: aborted } = request;
    try {
      const extent = await ask("api/v1/extent", {}, aborted);
      if (extent.empty) throw new Error("Nothing is stored yet.");
      const chosen = extent.signals.some((s) => s.name === signal) ? signal : extent.signals[0].name;
      const length = BigInt(Panels.find("range").value) * 1000000000n;
      const query = { signal: chosen, level: level || "location" };
      if (length) {
        const from = BigInt(extent.last_ns) - length;
        query.from = String(from > BigInt(extent.first_ns) ? from : extent.first_ns);
      }
      const bundle = await ask("api/v1/bundle", query, aborted);
      Panels.banner("");
      App.open(bundle);
    } catch (error) {
      if (error.name !== "AbortError") Panels.banner(error.message);
      throw error;
    }
  }

  async function ask(path, query, aborted) {
    let response;
    try {
      response = await fetch(`${path}?${new URLSearchParams(query)}`, { signal: aborted, cache: "no-store" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Error("The server does not answer: what is shown may be old.");
    }
    const answer = await response.json().catch(() => ({}));
    if (!response.ok) throw new Error(answer.detail || `The server answered ${response.status}.`);
    return answer;
  }

  const refresh = () => fetchBundle(App.view.signal, App.view.level).catch(() => {});

  function follow(on) {
    clearInterval(timer);
    timer = on ? setInterval(refresh, 10000) : 0;
    if (on) refresh();
  }

  function start() {
    const inline = Panels.find("bundle");
    if (inline) {
      App.open(JSON.parse(inline.textContent));
      return Promise.resolve();
    }
    live = true;
    Panels.find("live").hidden = false;
    Panels.find("range").addEventListener("change", refresh);
    Panels.find("reload").addEventListener("click", refresh);
    Panels.find("follow").addEventListener("change", (event) => follow(event.target.checked));
    return refresh();
  }

  return { start, fetchBundle, canFetch: () => live };
})();

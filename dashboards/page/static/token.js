// The token that a server requires from clients without a certificate. It is kept only for this
// tab, until the tab is closed. It is sent in a header and never in an address, since addresses are
// logged, kept in histories, and sent to others.

import { find } from "./panels.js";
import * as Source from "./source.js";

const KEY = "csigscope-token";
let token = load();
let asking = null; // promise while the dialog is open
let dismissed = false; // the user closed the dialog without a token

function load() {
  try {
    return sessionStorage.getItem(KEY) || "";
  } catch {
    return ""; // the browser stores nothing: the token lasts as long as the page
  }
}

function keep(text) {
  token = text;
  try {
    if (text) sessionStorage.setItem(KEY, text);
    else sessionStorage.removeItem(KEY);
  } catch {
    return; // as in load
  }
}

const send = (path, options, text) => fetch(path, {
  ...options, cache: "no-store", headers: { ...options.headers, ...(text && { Authorization: `Bearer ${text}` }) },
});

// request is fetch with the token. If the server refuses it, the page asks for another one and the
// request waits.
export async function request(path, options) {
  for (;;) {
    await asking;
    options.signal?.throwIfAborted();
    if (dismissed) throw new Error("This server requires a token.");
    const used = token;
    const response = await send(path, options, used);
    if (response.status !== 401) return response;
    response.body?.cancel();
    if (used === token && !asking) ask(used ? "The server no longer accepts the token." : "");
  }
}

// ask opens the dialog with an error text.
function ask(wrong) {
  dismissed = false;
  asking = new Promise((resolve) => { find("token").addEventListener("close", resolve, { once: true }); });
  asking.then(() => {
    asking = null;
    dismissed ||= !token;
    show();
  });
  keep("");
  complain(wrong);
  find("token").showModal();
}

function complain(text) {
  find("token-wrong").textContent = text;
  find("token-text").ariaInvalid = String(Boolean(text));
  find("token-text").select();
}

// give tries the entered token.
async function give(event) {
  event.preventDefault();
  const text = find("token-text").value.trim();
  if (!/^[!-~]+$/.test(text)) return complain("A token has letters, digits and signs, and no spaces.");
  try {
    const response = await send("api/v1/health", {}, text);
    response.body?.cancel();
    if (response.status === 401) return complain("The server refused this token.");
    if (response.status === 429) return complain("Too many tries: wait a while.");
  } catch {
    return complain("The server does not answer.");
  }
  if (!find("token").open) return; // closed in the meantime
  keep(text);
  find("token-text").value = "";
  find("token").close();
}

// show offers to forget the token, or to enter one after the dialog was closed.
function show() {
  const button = find("token-forget");
  button.hidden = !token && !dismissed;
  button.textContent = token ? "Forget token" : "Give token";
  button.title = token ? "Forget the token, and clear the page" : "This server requires a token";
}

// forget removes the token and all data that it gave access to.
function forget() {
  keep("");
  location.reload();
}

function again() {
  dismissed = false;
  Source.navigate();
}

export function start() {
  find("token-form").addEventListener("submit", give);
  find("token-cancel").addEventListener("click", () => find("token").close());
  find("token-forget").addEventListener("click", () => (token ? forget() : again()));
  show();
}

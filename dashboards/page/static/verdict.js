// The verdict in words above the matrices: the server's sentences, each of which shows its cells.

import * as Address from "./address.js";
import * as App from "./app.js";
import * as Live from "./live.js";
import { element, find } from "./panels.js";
import * as Source from "./source.js";

const SHOWN = 6; // maximum number of statements
let request = null;
let asked = null; // range of the verdict that is shown or coming; null after a failure
let coming = Promise.resolve();
let chosen = ""; // place of the statement whose cells are shown

// ask requests the verdict on a model's range; switched says that the model differs from the last one only
// in its signal or level. Drawings do not wait for it.
export function ask(model, switched) {
  const range = Live.streamed() ? [] : Address.seconds(model.windows[0], model.end());
  const question = String(range);
  if (switched && question && question === asked) return; // a verdict covers all signals
  asked = question;
  request?.abort();
  request = new AbortController();
  coming = load(range, request.signal);
}

// settled resolves when the requested verdict is shown.
export const settled = () => coming;

async function load(range, aborted) {
  try {
    show(await Source.ask("api/v1/verdict", [...range, ["top", String(SHOWN)]], aborted));
  } catch (error) {
    if (aborted.aborted) return; // for a newer one
    asked = null;
    show({ kind: "no_data", text: `No verdict: ${error.message}`, statements: [] });
  }
}

function show({ kind, text, notes = [], statements = [], total = 0, rest_places: calm = 0 }) {
  find("verdict").hidden = !text;
  find("verdict").dataset.kind = kind;
  find("verdict-text").textContent = text;
  const more = (n, text) => (n > 0 ? `${n} more ${n > 1 ? "places" : "place"} ${text}.` : "");
  find("verdict-list").replaceChildren(...statements.map(line));
  find("verdict-notes").textContent = [
    more(total - statements.length, "had fewer heavy observations"),
    more(calm, "had heavy observations, but too few to count as congested; cells behind them may still have been congested"), ...notes,
  ].filter(Boolean).join(" ");
}

// line returns a statement as a button. A second press shows all cells again.
function line(statement) {
  const { place, text, state, since } = statement;
  const button = element("button", state, element("b", "", place), text.slice(place.length));
  button.type = "button";
  button.dataset.place = place;
  button.ariaPressed = String(chosen === place);
  button.title = `${state === "congested" ? `Congested${since ? ` since ${since}` : ""}. ` : ""}Show only its cells`;
  button.addEventListener("click", () => press(statement));
  return element("li", "", button);
}

function press(statement) {
  chosen = chosen === statement.place ? "" : statement.place;
  mark();
  App.showStatement(chosen ? statement : null);
}

// forget deselects the statement whose cells are no longer shown.
export function forget() {
  chosen = "";
  mark();
}

function mark() {
  for (const button of find("verdict-list").querySelectorAll("button")) button.ariaPressed = String(button.dataset.place === chosen);
}

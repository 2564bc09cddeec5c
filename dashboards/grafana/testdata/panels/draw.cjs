"use strict";
// Reads dashboards, and the frames that their panels' queries gave, from standard input, and
// writes what each panel is to show: names, texts, colours and links as Grafana makes them.

const { readFileSync } = require("node:fs");
const { createTheme, formattedValueToString, getFieldDisplayName } = require("@grafana/data");
const { interpolator } = require("./interpolate.cjs");
const { start, apply } = require("./apply.cjs");

start();
const theme = createTheme({ colors: { mode: "dark" } });

/** What a link opens, as a browser and Grafana's dashboards read its address. */
function opened({ title, href }) {
  const { pathname, searchParams } = new URL(href, "http://grafana.example");
  return { title, href, path: pathname, query: Object.fromEntries(searchParams) };
}

function shown(field, frames, frame, value, rowIndex) {
  const { text, prefix, suffix, color } = field.display(value);
  return {
    text: formattedValueToString({ text, prefix, suffix }),
    color,
    number: typeof value === "number" ? value : null,
    missing: value == null,
    links: (field.getLinks?.({ valueRowIndex: rowIndex }) ?? []).map(opened),
  };
}

async function draw({ panel, frames }, replace) {
  const data = await apply(panel, frames, replace, theme);
  return {
    title: replace(panel.title, undefined, "text"),
    frames: data.map((frame) => ({
      fields: frame.fields.map((field) => ({
        name: field.name,
        title: getFieldDisplayName(field, frame, data),
        type: field.type,
        unit: field.config.unit ?? "",
        labels: field.labels ?? {},
        values: field.values.map((value, row) => shown(field, data, frame, value, row)),
      })),
    })),
  };
}

async function main() {
  const { asked, variables, range } = JSON.parse(readFileSync(0, "utf8"));
  const replace = interpolator(variables, range);
  const drawn = [];
  for (const one of asked) drawn.push(await draw(one, replace));
  process.stdout.write(JSON.stringify(drawn));
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});

// Draws one dashboard for a picture, outside of Grafana: its panels at their places, with
// Grafana's own components where a package has them. Nothing of this is shipped.

import { createRoot } from "react-dom/client";
import { cacheFieldDisplayNames, createTheme, dateTime, ThemeContext } from "@grafana/data";
import { GlobalStyles, PanelChrome } from "@grafana/ui";
import { start, apply } from "../panels/apply.cjs";
import { interpolator } from "../panels/interpolate.cjs";
import { Heatmap } from "./heatmap.jsx";
import { load } from "./matrix.jsx";
import { Series, Stats, Table } from "./panels.jsx";
import { Timeline } from "./timeline.jsx";

// In pixels.
const width = 1800;
const cell = 30;
const gap = 8;
const header = 96;

// Panels whose drawing is a part of Grafana's application say so.
const approximate = ["heatmap", "state-timeline"];

const kinds = { heatmap: Heatmap, stat: Stats, "state-timeline": Timeline, table: Table, timeseries: Series };

/** The place of a panel in Grafana's grid of 24 columns, in pixels. */
function place({ x, y, w, h }) {
  const column = (width - gap) / 24;
  return { position: "absolute", left: gap + x * column, top: header + y * (cell + gap), width: w * column - gap, height: h * (cell + gap) - gap };
}

function Panel({ panel, title, frames, style, theme, timeRange, replace }) {
  if (panel.type === "row") {
    return <div style={{ ...style, color: theme.colors.text.primary, fontSize: 16, fontWeight: 500, lineHeight: style.height + "px" }}>{"⌄ " + title}</div>;
  }
  const Kind = kinds[panel.type];
  const note = <span style={{ color: theme.colors.text.secondary, fontSize: 12, paddingLeft: 8 }}>drawn here by uPlot alone</span>;
  return (
    <div style={style}>
      <PanelChrome title={title} titleItems={approximate.includes(panel.type) && note} width={style.width} height={style.height} padding={panel.type === "table" ? "none" : "md"}>
        {(width, height) => <Kind {...{ panel, frames, width, height, theme, timeRange, replace }} />}
      </PanelChrome>
    </div>
  );
}

function Header({ title, choices, theme }) {
  const chip = { background: theme.colors.background.secondary, border: `1px solid ${theme.colors.border.medium}`, borderRadius: 2, padding: "4px 8px", marginRight: 8 };
  return (
    <div style={{ padding: "12px 8px", color: theme.colors.text.primary, fontSize: 14 }}>
      <div style={{ fontSize: 18, fontWeight: 500, marginBottom: 14 }}>{title}</div>
      {choices.map(([label, value]) => (
        <span key={label} style={chip}><span style={{ color: theme.colors.text.secondary }}>{label}</span>&ensp;{value}</span>
      ))}
    </div>
  );
}

async function main() {
  start();
  kinds["csigscope-matrix-panel"] = await load();
  const { board, asked, variables, range, from, to } = await (await fetch("data.json")).json();
  const theme = createTheme({ colors: { mode: "dark" } });
  const timeRange = { from: dateTime(from), to: dateTime(to), raw: { from: dateTime(from), to: dateTime(to) } };
  const replace = interpolator(variables, range);
  const panels = [];
  for (const { panel, frames } of asked) {
    const data = panel.type === "row" ? [] : await apply(panel, frames ?? [], replace, theme);
    cacheFieldDisplayNames(data);
    panels.push({ panel, frames: data, title: replace(panel.title, undefined, "text") });
  }
  const choices = board.templating.list
    .filter((v) => v.hide !== 2)
    .map((v) => [v.label, variables.find(({ name }) => name === v.name)?.text])
    .filter(([, text]) => text);
  const bottom = Math.max(...panels.map(({ panel: { gridPos } }) => gridPos.y + gridPos.h));
  const height = header + bottom * (cell + gap);
  createRoot(document.getElementById("root")).render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <div style={{ position: "relative", width, height, background: theme.colors.background.canvas }}>
        <Header title={board.title} choices={choices} theme={theme} />
        {panels.map(({ panel, frames, title }) => (
          <Panel key={panel.id} {...{ panel, frames, title, theme, timeRange, replace }} style={place(panel.gridPos)} />
        ))}
      </div>
    </ThemeContext.Provider>,
  );
  window.scene = { width, height };
}

main();

// The panel state timeline, for frames of a time and a state.

import { FieldType, getFieldDisplayName } from "@grafana/data";
import { area, Rows } from "./plot.jsx";

/** Spans of equal states, as values of the option mergeValues become. */
function spans(times, states, end) {
  const list = [];
  states.forEach((state, i) => {
    const to = times[i + 1] ?? end;
    if (list.at(-1)?.state === state) list.at(-1).to = to;
    else list.push({ state, from: times[i], to });
  });
  return list;
}

export function Timeline({ panel, frames, width, height, theme, timeRange }) {
  const fields = frames.map((frame) => frame.fields.find((f) => f.type === FieldType.string));
  const labels = fields.map((f, i) => getFieldDisplayName(f, frames[i], frames));
  const { rowHeight } = panel.options;
  const draw = (u) => {
    const ratio = devicePixelRatio;
    u.ctx.font = `${12 * ratio}px ${theme.typography.fontFamily}`;
    u.ctx.textAlign = "left";
    u.ctx.textBaseline = "middle";
    fields.forEach((f, i) => {
      const times = frames[i].fields.find((t) => t.type === FieldType.time).values;
      for (const { state, from, to } of spans(times, f.values, timeRange.to.valueOf())) {
        const r = area(u, i, from, to);
        const { color, text } = f.display(state);
        u.ctx.globalAlpha = f.config.custom.fillOpacity / 100;
        u.ctx.fillStyle = color;
        const height = r.height * rowHeight;
        u.ctx.fillRect(r.x, r.y + (r.height - height) / 2, r.width, height);
        u.ctx.globalAlpha = 1;
        if (u.ctx.measureText(text).width + 8 * ratio > r.width) continue;
        u.ctx.fillStyle = theme.colors.getContrastText(color, 3);
        u.ctx.fillText(text, r.x + 4 * ratio, r.y + r.height / 2);
      }
    });
  };
  return <Rows {...{ labels, draw, width, height, theme, timeRange }} />;
}

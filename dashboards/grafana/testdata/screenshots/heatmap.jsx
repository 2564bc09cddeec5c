// The panel heatmap, for frames of one field a row and times that end a cell.

import * as schemes from "d3-scale-chromatic";
import { FieldType, getFieldDisplayName, getValueFormat, formattedValueToString } from "@grafana/data";
import { area, Rows } from "./plot.jsx";

const legend = 22;

// Of Grafana's schemes those that a dark theme turns round: the lowest value is darkest.
const turned = ["Oranges"];

export function Heatmap({ panel, frames, width, height, theme, timeRange }) {
  const { color, filterValues, cellGap, yAxis, cellValues } = panel.options;
  const rows = frames[0].fields.filter((f) => f.type === FieldType.number);
  const ends = frames[0].fields.find((f) => f.type === FieldType.time).values;
  const length = ends[1] - ends[0];
  const most = color.max ?? Math.max(...rows.flatMap((f) => f.values));
  const scheme = schemes["interpolate" + color.scheme];
  const shade = (share) => scheme(turned.includes(color.scheme) ? 1 - share : share);
  const format = (value) => formattedValueToString(getValueFormat(cellValues.unit)(value));
  const draw = (u) => {
    rows.forEach((f, i) => f.values.forEach((value, at) => {
      if (value <= filterValues.le) return;
      const r = area(u, i, ends[at] - length, ends[at]);
      u.ctx.fillStyle = shade(Math.floor(Math.min(value / most, 1) * (color.steps - 1)) / (color.steps - 1));
      u.ctx.fillRect(r.x + cellGap, r.y + cellGap, r.width - cellGap, r.height - cellGap);
    }));
  };
  const stops = Array.from({ length: 9 }, (_, i) => shade(i / 8)).join(", ");
  return (
    <>
      <Rows {...{ labels: rows.map((f) => getFieldDisplayName(f, frames[0], frames)), upward: !yAxis.reverse, draw, width, theme, timeRange }} height={height - legend} />
      <div style={{ display: "flex", gap: 8, alignItems: "center", fontSize: 12, color: theme.colors.text.secondary }}>
        {format(0)}<span style={{ width: 160, height: 8, background: `linear-gradient(to right, ${stops})` }} />{format(most)}{color.max && " and more"}
      </div>
    </>
  );
}

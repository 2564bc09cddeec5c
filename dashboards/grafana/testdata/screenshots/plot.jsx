// A plot by uPlot, with Grafana's axes: what Grafana's own heatmap and state timeline are
// made of, whose drawing is a part of its application and of no package.

import { UPlotChart, UPlotConfigBuilder } from "@grafana/ui";
import { AxisPlacement, ScaleDirection, ScaleOrientation } from "@grafana/schema";
import { useMemo } from "react";

/** The width that labels need at an axis, by the font that there is: Grafana's own is not. */
function widest(labels, theme) {
  const context = document.createElement("canvas").getContext("2d");
  context.font = `12px ${theme.typography.fontFamily}`;
  return Math.ceil(Math.max(...labels.map((label) => context.measureText(label).width))) + 12;
}

/**
 * Rows draws rows of these labels, the first at the top unless upward, over the range of
 * time. draw is given uPlot, and paints into its canvas.
 */
export function Rows({ labels, upward, draw, width, height, theme, timeRange }) {
  const config = useMemo(() => {
    const builder = new UPlotConfigBuilder("utc");
    builder.addScale({ scaleKey: "x", isTime: true, orientation: ScaleOrientation.Horizontal, direction: ScaleDirection.Right, range: [timeRange.from.valueOf(), timeRange.to.valueOf()] });
    builder.addScale({ scaleKey: "y", orientation: ScaleOrientation.Vertical, direction: upward ? ScaleDirection.Up : ScaleDirection.Down, range: [0, labels.length] });
    builder.addAxis({ scaleKey: "x", isTime: true, placement: AxisPlacement.Bottom, timeZone: "utc", theme, grid: { show: false } });
    builder.addAxis({
      scaleKey: "y", placement: AxisPlacement.Left, theme, grid: { show: false }, ticks: { show: false }, size: widest(labels, theme),
      splits: () => labels.map((_, i) => i + 0.5), values: (_, splits) => splits.map((at) => labels[Math.floor(at)]),
    });
    builder.addSeries({ scaleKey: "y", theme, pathBuilder: () => null, show: true });
    builder.addHook("draw", (u) => {
      u.ctx.save();
      u.ctx.beginPath();
      u.ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
      u.ctx.clip();
      draw(u);
      u.ctx.restore();
    });
    return builder;
  }, []);
  const data = useMemo(() => [[timeRange.from.valueOf(), timeRange.to.valueOf()], [0, labels.length]], []);
  return <UPlotChart {...{ config, data, width, height }} />;
}

/** The rectangle of row i from one time to another, in the canvas's pixels. */
export function area(u, i, from, to) {
  const x = u.valToPos(from, "x", true);
  const [a, b] = [u.valToPos(i, "y", true), u.valToPos(i + 1, "y", true)];
  return { x, y: Math.min(a, b), width: u.valToPos(to, "x", true) - x, height: Math.abs(b - a) };
}

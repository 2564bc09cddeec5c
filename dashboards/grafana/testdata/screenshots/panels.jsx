// Panels that Grafana's package @grafana/ui has the drawing of.

import { getFieldDisplayValues } from "@grafana/data";
import { BigValue, TimeSeries } from "@grafana/ui";
import { TableNG } from "@grafana/ui/unstable";

export function Table({ panel, frames, width, height, timeRange }) {
  if (!frames[0]?.length) return <Empty text={panel.fieldConfig.defaults.noValue} />;
  const { cellHeight, showHeader, frozenColumns } = panel.options;
  return (
    <TableNG {...{ width, height, timeRange, cellHeight }} data={frames[0]} noHeader={!showHeader} frozenColumns={frozenColumns?.left} fieldConfig={panel.fieldConfig} structureRev={1} enableVirtualization={false} />
  );
}

export function Series({ panel, frames, width, height, timeRange }) {
  if (!frames.some((frame) => frame.length)) return <Empty text={panel.fieldConfig.defaults.noValue} />;
  return <TimeSeries {...{ frames, width, height, timeRange }} timeZone="utc" legend={panel.options.legend} options={panel.options} structureRev={1} />;
}

export function Stats({ panel, frames, width, height, theme, replace }) {
  const { colorMode, graphMode, justifyMode, textMode, wideLayout, reduceOptions, text } = panel.options;
  const values = getFieldDisplayValues({ data: frames, theme, reduceOptions, replaceVariables: replace, fieldConfig: panel.fieldConfig, timeZone: "utc" });
  return (
    <div style={{ display: "flex", gap: 8 }}>
      {values.map(({ display }, i) => (
        <BigValue key={i} value={display} width={width / values.length - 8} height={height} {...{ theme, colorMode, graphMode, justifyMode, textMode, wideLayout, text }} />
      ))}
    </div>
  );
}

function Empty({ text }) {
  return <div style={{ display: "grid", placeItems: "center", height: "100%", opacity: 0.6 }}>{text ?? "No data"}</div>;
}

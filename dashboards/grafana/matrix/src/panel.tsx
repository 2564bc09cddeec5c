import React, { useEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";
import { formattedValueToString, type Field, type PanelProps } from "@grafana/data";
import { locationService } from "@grafana/runtime";
import { Button, Checkbox, Portal, useTheme2, VizTooltipContainer } from "@grafana/ui";

import { css, gradient, mix, parse, theme as colorsOf, type RGB, type Theme, type ThemeName } from "../../../page/static/color.js";
import { Matrix, type At } from "../../../page/static/matrix.js";
import { Palette } from "../../../page/static/palette.js";
import { cellsOf, draw, groupsOf, meanOf, type Drawing } from "./data";
import type { Options } from "./options";
import { view } from "./shared";
import { fitting, lines, type Format } from "./text";

const BAR = 32; // height of the controls above the matrix, CSS pixels
const LEGEND = 44; // height of the legend below it, two lines
const SHOWN = 8; // maximum number of locations in the legend
const STATES = ["too few", "no data"]; // last entries of the legend

export function MatrixPanel({ data, width, height, options }: PanelProps<Options>) {
  const kept = useRef(new Map<string, RGB>()).current;
  const shared = useSyncExternalStore(view.subscribe, view.get);
  const { congested, folded, inside } = shared;
  const all = useMemo(() => cellsOf(data.series), [data.series]);
  const groups = useMemo(() => groupsOf(data.series), [data.series]);
  const mean = meanOf(data.series);
  const drawing = useMemo(
    () => draw(all ?? [], groups, { congested, folded, inside }, { unit: mean?.config.unit ?? "", direction: options.direction, colors: options.colors ?? {}, kept }),
    [all, groups, congested, folded, inside, mean?.config.unit, options.direction, options.colors, kept],
  );
  // An empty answer of the data source is a frame without fields.
  if (!all?.length) return <Message>no data in this range: silence, not health</Message>;
  return (
    <div style={{ width, height, overflow: "hidden" }}>
      <Controls drawing={drawing} />
      {drawing.rows.length && drawing.columns.length ? (
        <Canvas drawing={drawing} kind={options.kind} width={width} height={height - BAR - LEGEND} format={formatOf(mean)} />
      ) : (
        <div style={{ height: height - BAR - LEGEND }}><Message>no cell with heavy observations in this range</Message></div>
      )}
      <Legend drawing={drawing} options={options} width={width} format={formatOf(mean)} />
    </div>
  );
}

const formatOf = (field: Field | undefined): Format => (value) => (field?.display ? formattedValueToString(field.display(value)) : String(value));

function Message({ children }: { children: React.ReactNode }) {
  return <div style={{ display: "grid", placeItems: "center", height: "100%" }}>{children}</div>;
}

function Controls({ drawing }: { drawing: Drawing }) {
  const { congested, folded, inside } = useSyncExternalStore(view.subscribe, view.get);
  return (
    <div style={{ height: BAR, display: "flex", gap: 16, alignItems: "center", whiteSpace: "nowrap" }}>
      <Checkbox label="only with heavy" value={congested} onChange={(e) => view.set({ congested: e.currentTarget.checked })} />
      {drawing.pods && <Checkbox label="by pod" value={folded} onChange={(e) => view.set({ folded: e.currentTarget.checked, inside: null })} />}
      {inside && <Button size="sm" variant="secondary" icon="arrow-left" onClick={() => view.set({ inside: null })}>{inside.src} to {inside.dst}</Button>}
      <span style={{ marginLeft: "auto" }}>{drawing.congested} of {drawing.known} cells congested{drawing.left > 0 && `, ${drawing.left} groups left out`}</span>
    </div>
  );
}

function Canvas({ drawing, kind, width, height, format }: { drawing: Drawing; kind: Options["kind"]; width: number; height: number; format: Format }) {
  const { isDark, colors } = useTheme2();
  const { pointer, highlight, folded, inside } = useSyncExternalStore(view.subscribe, view.get);
  const canvas = useRef<HTMLCanvasElement>(null);
  const matrix = useRef<Matrix | null>(null);
  const [mouse, setMouse] = useState<{ x: number; y: number } | null>(null);
  const scale = window.devicePixelRatio || 1;
  const palette = useMemo(
    () => new Palette(themed(isDark ? "dark" : "light", colors.background.primary, colors.text.secondary, colors.text.maxContrast), drawing.places),
    [isDark, colors, drawing.places],
  );
  const at = useMemo(() => place(drawing, pointer), [drawing, pointer]);

  // Cells are drawn when they change, and kept: the pointer alone costs a copy of the picture.
  const drawn = useRef<HTMLCanvasElement | null>(null);
  useEffect(() => {
    if (!canvas.current) return;
    const m = (matrix.current = new Matrix(canvas.current, kind));
    m.layout(drawing.rows, drawing.columns, { width, height, scale });
    m.dress(palette);
    const lit = drawing.places.findIndex((p) => p.id === highlight);
    m.draw(drawing.cells, { highlight: lit < 0 ? null : new Set([lit]) });
    drawn.current = document.createElement("canvas");
    [drawn.current.width, drawn.current.height] = [canvas.current.width, canvas.current.height];
    drawn.current.getContext("2d")?.drawImage(canvas.current, 0, 0);
  }, [kind, drawing, width, height, scale, palette, highlight]);
  useEffect(() => {
    if (!matrix.current || !drawn.current) return;
    matrix.current.context.clearRect(0, 0, drawn.current.width, drawn.current.height);
    matrix.current.context.drawImage(drawn.current, 0, 0);
    matrix.current.outlines(drawing.cells, { pointer: at }, palette.theme);
  }, [kind, drawing, width, height, scale, palette, highlight, at]);

  const hit = (e: React.MouseEvent) => {
    const box = e.currentTarget.getBoundingClientRect();
    // Grafana may zoom its panels; the matrix counts in its own pixels.
    const zoom = (canvas.current?.clientWidth || box.width) / (box.width || 1);
    return matrix.current?.hit((e.clientX - box.left) * zoom, (e.clientY - box.top) * zoom) ?? null;
  };
  const move = (e: React.MouseEvent) => {
    const on = hit(e);
    setMouse(on ? { x: e.clientX, y: e.clientY } : null);
    // The same cell must stay the same object, else every move of the mouse would draw both matrices.
    const next = on && { src: drawing.rows[on.row].name, dst: drawing.columns[on.column].name };
    const now = view.get().pointer;
    if (next?.src !== now?.src || next?.dst !== now?.dst) view.set({ pointer: next });
  };
  const leave = () => {
    setMouse(null);
    view.set({ pointer: null });
  };
  const click = (e: React.MouseEvent) => {
    const on = hit(e);
    if (!on) return;
    const [src, dst] = [drawing.rows[on.row].name, drawing.columns[on.column].name];
    if (folded && !inside) view.set({ inside: { src, dst } });
    else locationService.partial({ "var-src": src, "var-dst": dst, "var-location": "" });
  };
  return (
    <div style={{ height }}>
      <canvas ref={canvas} onMouseMove={move} onMouseLeave={leave} onClick={click} style={{ cursor: "crosshair" }} />
      {mouse && pointer && at && (
        <Portal>
          <VizTooltipContainer position={mouse} offset={{ x: 12, y: 12 }}>
            {lines(pointer, drawing.under(at), format).map((line, i) => <div key={i} style={i === 0 ? { fontWeight: 600 } : undefined}>{line}</div>)}
          </VizTooltipContainer>
        </Portal>
      )}
    </div>
  );
}

/** place returns the position of a cell in a drawing, or null if it is not there. */
function place(drawing: Drawing, pointer: { src: string; dst: string } | null): At | null {
  if (!pointer) return null;
  const row = drawing.rows.findIndex((r) => r.name === pointer.src);
  const column = drawing.columns.findIndex((c) => c.name === pointer.dst);
  return row < 0 || column < 0 ? null : { row, column };
}

/** themed returns the page's colours on Grafana's background. */
function themed(name: ThemeName, ground: string, text: string, strong: string): Theme {
  const theme = colorsOf(name);
  return { ...theme, ground: /^#[0-9a-f]{6}$/i.test(ground) ? parse(ground) : theme.ground, text, strong };
}

function Legend({ drawing, options, width, format }: { drawing: Drawing; options: Options; width: number; format: Format }) {
  const { isDark } = useTheme2();
  const { highlight } = useSyncExternalStore(view.subscribe, view.get);
  const name: ThemeName = isDark ? "dark" : "light";
  const bar: React.CSSProperties = { height: LEGEND, display: "flex", flexWrap: "wrap", columnGap: 12, alignContent: "center", alignItems: "center", overflow: "hidden", whiteSpace: "nowrap", fontSize: 12 };
  if (options.kind === "mean") {
    const { low, high } = drawing.scale;
    const ends = options.direction === "min" ? [high, low] : [low, high];
    return (
      <div style={bar}>
        <span>{format(ends[0])}</span>
        <span style={{ width: 160, height: 10, background: gradient(name, "right") }} />
        <span>{format(ends[1])}, worst</span>
        <States name={name} />
      </div>
    );
  }
  const labels = drawing.places.map((p) => `${p.rank} ${p.id} ${Math.round(100 * p.share)} %`);
  const shown = fitting(labels, SHOWN, ["clear", ...STATES], width);
  return (
    <div style={bar}>
      {drawing.places.slice(0, shown).map((p, i) => (
        <button key={p.id} onClick={() => view.set({ highlight: highlight === p.id ? "" : p.id })} aria-pressed={highlight === p.id} title="let its cells stand out"
          style={{ all: "unset", cursor: "pointer", opacity: highlight && highlight !== p.id ? 0.4 : 1 }}>
          <Swatch color={css(p.rgb)} /> {labels[i]}
        </button>
      ))}
      {drawing.places.length > shown && <span>and {drawing.places.length - shown} more</span>}
      <span><Swatch color={css(colorsOf(name).clear)} /> clear</span>
      <States name={name} />
    </div>
  );
}

function States({ name }: { name: ThemeName }) {
  const { few, hatch, ground } = colorsOf(name);
  const stripes = `repeating-linear-gradient(135deg, ${css(hatch)} 0 1px, ${css(mix(hatch, ground, 0))} 1px 4px)`;
  return <><span><Swatch color={css(few)} /> {STATES[0]}</span><span><Swatch color={stripes} /> {STATES[1]}</span></>;
}

const Swatch = ({ color }: { color: string }) => <span style={{ display: "inline-block", width: 12, height: 12, verticalAlign: "-2px", background: color }} />;

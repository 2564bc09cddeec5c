import * as Color from "./color.js";
import * as Fabric from "./fabric.js";
import * as Format from "./format.js";

// The map of the fabric: stages are rows, and each port's half of a link is colored by the number
// of congested cells whose mode is the port, at the level location whatever that of the matrices is. A
// location of several ports colors all of them, dashed, since the actual one is unknown.
export class FabricMap {
  static LEFT = 74; // room for stage names

  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
  }

  // layout fits the map into a width in CSS pixels. It returns false if no devices are known.
  layout(model, width, scale, theme) {
    this.model = model;
    this.scale = scale;
    this.theme = theme;
    this.plan = Fabric.place(model, width, FabricMap.LEFT);
    this.ground = null;
    if (!this.plan) return false;
    this.byName = new Map(this.plan.ports.map((p) => [p.name, p]));
    this.width = width;
    this.canvas.width = Math.floor(width * scale);
    this.canvas.height = Math.ceil(this.plan.height * scale);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${this.plan.height}px`;
    return true;
  }

  // count returns, for each location, the number of congested cells of a frame whose mode it is.
  count(frame) {
    const counts = new Uint32Array(this.model.locations.length);
    const { heavy } = frame.columns;
    for (const row of frame.rows) {
      if (row < 0 || !(heavy[row] > 0)) continue;
      const mode = frame.mode(row, "location");
      if (mode >= 0 && frame.state(row) === "congested") counts[mode]++;
    }
    return new Map([...counts.entries()].filter(([, n]) => n > 0));
  }

  // draw draws a frame, whose modes may lack the level location; lit has locations of the given level.
  draw(frame, level, { waiting, highlight: lit }) {
    if (!this.plan) return;
    const g = this.context;
    this.ground ||= this.drawGround();
    this.blind = Boolean(frame.columns.rows) && !frame.columns.modes.location;
    this.known = Boolean(frame.columns.rows) && !this.blind && !waiting;
    this.counts = this.blind ? new Map() : this.count(frame);
    this.most = Math.max(0, ...this.counts.values());
    g.setTransform(1, 0, 0, 1, 0, 0);
    g.clearRect(0, 0, this.canvas.width, this.canvas.height);
    g.drawImage(this.ground, 0, 0);
    g.scale(this.scale, this.scale);
    g.globalAlpha = waiting ? 0.25 : 1;
    // The most frequent ones are drawn last, above the others.
    for (const [index, n] of [...this.counts].sort((a, b) => a[1] - b[1])) this.mark(index, n, !lit || lit.has(this.model.lift(index, level)));
    g.globalAlpha = 1;
    this.names(g);
  }

  color(n) {
    return Color.css(Color.ramp(this.theme, 0.35 + (0.65 * n) / this.most));
  }

  // mark colors a location: a port, its candidate ports, or a device.
  mark(index, n, strong) {
    const g = this.context;
    const location = this.model.locations[index];
    g.strokeStyle = g.fillStyle = this.color(n);
    g.lineWidth = strong ? 2 + (3 * n) / this.most : 1;
    const device = this.plan.devices.get(location.device);
    const port = this.byName.get(location.name);
    if (port) return this.link(port);
    if (device && device.index === index) return g.fillRect(device.x - device.width / 2, device.y, device.width, Fabric.BOX);
    g.setLineDash([4, 3]);
    for (const name of location.candidates || []) if (this.byName.has(name)) this.link(this.byName.get(name));
    g.setLineDash([]);
  }

  link(p) {
    const g = this.context;
    g.beginPath();
    g.moveTo(p.x, p.y);
    g.lineTo(p.endX, p.endY);
    g.stroke();
  }

  drawGround() {
    const ground = document.createElement("canvas");
    ground.width = this.canvas.width;
    ground.height = this.canvas.height;
    const g = ground.getContext("2d");
    const neutral = Color.theme(this.theme);
    g.scale(this.scale, this.scale);
    g.strokeStyle = Color.css(neutral.few);
    g.globalAlpha = Math.max(0.12, Math.min(0.8, 200 / this.plan.ports.length));
    g.lineWidth = 1;
    g.beginPath();
    for (const p of this.plan.ports) {
      g.moveTo(p.x, p.y);
      g.lineTo(p.endX, p.endY);
    }
    g.stroke();
    g.globalAlpha = 1;
    g.fillStyle = Color.css(neutral.clear);
    for (const d of this.plan.devices.values()) g.fillRect(d.x - d.width / 2, d.y, d.width, Fabric.BOX);
    g.fillStyle = neutral.strong;
    g.font = "11px system-ui, sans-serif";
    g.textBaseline = "middle";
    for (const { stage, devices } of this.plan.stages) g.fillText(stage || "?", 0, devices[0].y + Fabric.BOX / 2, FabricMap.LEFT - 8);
    this.named = [...this.plan.devices.values()].filter((d) => g.measureText(d.name).width < d.width - 4);
    return ground;
  }

  // names writes device names where they fit.
  names(g) {
    g.fillStyle = Color.theme(this.theme).text;
    g.font = "11px system-ui, sans-serif";
    g.textBaseline = "middle";
    g.textAlign = "center";
    for (const d of this.named) g.fillText(d.name, d.x, d.y + Fabric.BOX / 2);
    g.textAlign = "left";
  }

  // hit returns the location at a point in CSS pixels, or -1. Devices precede links.
  hit(x, y) {
    if (!this.plan) return -1;
    for (const d of this.plan.devices.values()) {
      if (Math.abs(x - d.x) <= d.width / 2 && y >= d.y && y <= d.y + Fabric.BOX) return d.index;
    }
    let best = -1;
    let least = 6;
    for (const p of this.plan.ports) {
      const away = distance(x, y, p);
      if (away < least) [best, least] = [p.index, away];
    }
    return best;
  }

  // middle returns a point on a port's half of a link in CSS pixels, or null if the name is not a
  // port.
  middle(name) {
    const p = this.byName?.get(name);
    return p ? { x: p.x + 0.6 * (p.endX - p.x), y: p.y + 0.6 * (p.endY - p.y) } : null;
  }

  // about returns a location's details for people.
  about(index) {
    const location = this.model.locations[index];
    const port = this.byName.get(location.name);
    const own = [...(this.counts || [])].filter(([i]) => i === index || (!port && this.model.locations[i].device_index === index));
    const several = [...(this.counts || [])].filter(([i]) => i !== index && port && this.model.locations[i].candidates?.includes(port.name));
    const cells = (list) => {
      const n = list.reduce((sum, [, more]) => sum + more, 0);
      return `${Format.count(n)} ${n === 1 ? "cell" : "cells"}`;
    };
    const rows = [["bottleneck of", this.known ? cells(own) + (port ? "" : ", with its ports") : "not known"]];
    if (several.length) rows.push(["one of several", `for ${cells(several)}`]);
    if (port?.peer) rows.push(["to", port.mate ? port.mate.name : port.peer]);
    if (location.capacity_bps) rows.push(["capacity", Format.quantity(location.capacity_bps, "bit/s")]);
    return rows;
  }
}

// distance from a point to a port's half of a link.
function distance(x, y, p) {
  const [dx, dy] = [p.endX - p.x, p.endY - p.y];
  const t = Math.max(0, Math.min(1, ((x - p.x) * dx + (y - p.y) * dy) / (dx * dx + dy * dy || 1)));
  return Math.hypot(x - p.x - t * dx, y - p.y - t * dy);
}

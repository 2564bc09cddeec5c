// The devices and links of a fabric, derived from its locations' names: each device's row, and the
// position of each port's half of a link. Units are those of a map of the given width.

const ROW = 86; // distance between rows
export const BOX = 20; // height of a device
const STUB = 18; // length of a link with an unknown peer
const TOP = 26;
// Row names for fabrics whose ports have no peers, lowest first.
const USUAL = ["host", "tor", "rack", "leaf", "agg", "pod", "fabric", "spine", "superspine", "core"];

const natural = new Intl.Collator("en", { numeric: true }).compare;

// read returns the devices of a model's locations by name, or null if there are none.
function read(model) {
  const devices = new Map();
  model.locations.forEach((location, index) => {
    if (location.kind !== "port" || !location.device) return;
    const known = devices.get(location.device) || { name: location.device, stage: location.stage || "", ports: [], index: location.device_index };
    known.ports.push({ index, name: location.name, orientation: location.orientation || "", peer: location.peer || "", device: known });
    devices.set(location.device, known);
  });
  return devices.size ? devices : null;
}

// heights returns each device's distance from the hosts, as far as peers show it. A port whose peer
// is not a device faces a host.
function heights(devices) {
  const height = new Map();
  let edge = [...devices.values()].filter((d) => d.ports.some((p) => p.peer && !devices.has(p.peer)));
  for (let level = 0; edge.length; level++) {
    edge.forEach((d) => height.set(d, level));
    const next = new Set(edge.flatMap((d) => d.ports.map((p) => devices.get(p.peer))).filter((d) => d && !height.has(d)));
    edge = [...next];
  }
  return height;
}

// rows returns the stages, highest first, each with its devices in order of names.
function rows(devices) {
  const height = heights(devices);
  const stages = new Map();
  for (const d of devices.values()) stages.set(d.stage, [...(stages.get(d.stage) || []), d]);
  const rank = ([stage, list]) => {
    const above = list.map((d) => height.get(d)).filter((h) => h !== undefined);
    return above.length ? Math.max(...above) * USUAL.length : USUAL.findIndex((name) => stage.toLowerCase().startsWith(name));
  };
  return [...stages].sort((a, b) => rank(b) - rank(a) || natural(a[0], b[0]))
    .map(([stage, list]) => ({ stage, devices: list.sort((a, b) => natural(a.name, b.name)) }));
}

// place assigns a box to every device and half of a link to every port.
export function place(model, width, left) {
  const devices = read(model);
  if (!devices) return null;
  const stages = rows(devices);
  stages.forEach(({ devices: list }, row) => {
    const room = (width - left) / list.length;
    list.forEach((d, i) => {
      d.width = Math.max(2, Math.min(room * 0.78, 110));
      d.x = left + (i + 0.5) * room;
      d.y = TOP + row * ROW;
      d.row = row;
      spread(d);
    });
  });
  const ports = [...devices.values()].flatMap((d) => d.ports);
  const taken = new Set();
  for (const p of ports) join(p, devices, taken);
  return { stages, devices, ports, height: TOP + (stages.length - 1) * ROW + BOX + STUB + 14 };
}

// spread places ports along the edges of their device, down ports below it.
function spread(d) {
  for (const down of [true, false]) {
    const side = d.ports.filter((p) => (p.orientation === "down") === down).sort((a, b) => natural(a.name, b.name));
    side.forEach((p, i) => {
      p.x = d.x - d.width / 2 + ((i + 0.5) * d.width) / side.length;
      p.y = d.y + (down ? BOX : 0);
      p.down = down;
    });
  }
}

// join finds the other end of a port's link: the first port of the peer that faces back and is not
// joined yet. Half of the link belongs to this port.
function join(p, devices, taken) {
  const back = devices.get(p.peer)?.ports.find((other) => other.peer === p.device.name && (other.mate === p || !taken.has(other)));
  if (back && (!p.mate || p.mate === back)) {
    [p.mate, back.mate] = [back, p];
    taken.add(back).add(p);
  }
  if (p.mate) [p.endX, p.endY] = [(p.x + p.mate.x) / 2, (p.y + p.mate.y) / 2];
  else [p.endX, p.endY] = [p.x, p.y + (p.down ? STUB : -STUB)];
}

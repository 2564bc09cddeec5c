// The panel plugin as it ships, which Grafana loads as a module of AMD.

import * as data from "@grafana/data";
import * as ui from "@grafana/ui";
import * as react from "react";

// What its clicks do is a part of Grafana's application; nobody clicks on a picture.
const runtime = { locationService: { partial() {} } };

/** load is the component of the plugin's panel, for frames that its queries gave. */
export async function load() {
  const modules = { "@grafana/data": data, "@grafana/runtime": runtime, "@grafana/ui": ui, react };
  let Panel;
  window.define = (names, make) => { Panel = make(...names.map((name) => modules[name])).plugin.panel; };
  await new Promise((loaded, failed) => {
    document.head.append(Object.assign(document.createElement("script"), { src: "matrix.js", onload: loaded, onerror: failed }));
  });
  return function Matrix({ panel, frames, width, height, timeRange }) {
    return <Panel {...{ width, height, timeRange }} options={panel.options} data={{ series: frames, timeRange, state: "Done" }} />;
  };
}

"use strict";
// Bundles the harness into the folder that is named, and lays the panel plugin beside it, as it ships.

const { build } = require("esbuild");
const { copyFileSync } = require("node:fs");
const { join } = require("node:path");

/** What tests have beside this folder shares the harness's copy of Grafana's packages. */
const shared = {
  name: "shared",
  setup(b) {
    b.onResolve({ filter: /^(@grafana\/data|rxjs)$/ }, ({ path, kind }) =>
      kind === "require-call" ? b.resolve(path, { kind: "import-statement", resolveDir: __dirname }) : undefined);
  },
};

build({
  entryPoints: [join(__dirname, "main.jsx")],
  outdir: process.argv[2],
  bundle: true,
  jsx: "automatic",
  define: { "process.env.NODE_ENV": '"production"', global: "window" },
  external: ["monaco-editor", "monaco-editor/*"], // is loaded by an editor that no picture has
  plugins: [shared],
  logLevel: "silent",
}).then(() => copyFileSync(join(__dirname, "../../matrix/dist/module.js"), join(process.argv[2], "matrix.js")))
  .catch((error) => { console.error(error); process.exitCode = 1; });

// Builds the plugin into dist: one module in the form that Grafana loads, which shares React and
// Grafana's own packages with it. The same sources give the same bytes.
import { copyFileSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "dist");
const shared = ["@grafana/data", "@grafana/runtime", "@grafana/ui", "react"];

mkdirSync(out, { recursive: true });
await build({
  absWorkingDir: here,
  entryPoints: ["src/module.ts"],
  outfile: join(out, "module.js"),
  bundle: true,
  minify: true,
  legalComments: "none",
  format: "cjs",
  target: "es2022",
  external: shared,
  banner: { js: `define(${JSON.stringify(shared)}, (...modules) => { const module = { exports: {} }; const require = (name) => modules[${JSON.stringify(shared)}.indexOf(name)];` },
  footer: { js: "return module.exports; });" },
});
for (const file of ["plugin.json", "logo.svg"]) copyFileSync(join(here, "src", file), join(out, file));

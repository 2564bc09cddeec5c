// Bundles the tests, which are TypeScript, and runs them with Node's own runner.
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = mkdtempSync(join(tmpdir(), "matrix-"));
try {
  await build({
    absWorkingDir: here, entryPoints: ["data.test.ts", "shared.test.ts", "text.test.ts"], outdir: out, bundle: true,
    format: "esm", platform: "node", outExtension: { ".js": ".mjs" }, external: ["node:*"],
  });
  const { status } = spawnSync(process.execPath, ["--test", out], { stdio: "inherit" });
  process.exitCode = status ?? 1;
} finally {
  rmSync(out, { recursive: true });
}

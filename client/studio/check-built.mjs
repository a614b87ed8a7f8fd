// Builds into a temporary folder and compares it with the committed files.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const BUILDS = [
  { config: "vite.config.ts", out: "STUDIO_OUT", committed: "../../server/gradwire_server/web/static" },
  { config: "vite.embedded.config.ts", out: "STUDIO_EMBEDDED_OUT", committed: "../gradwire/_graph/embedded" },
];
const files = (folder) =>
  new Map(
    readdirSync(folder, { recursive: true, withFileTypes: true })
      .filter((each) => each.isFile())
      .map((each) => join(each.parentPath, each.name))
      .map((path) => [path.slice(folder.length + 1), readFileSync(path)]),
  );
for (const { config, out, committed } of BUILDS) {
  const fresh = mkdtempSync(join(tmpdir(), "studio-"));
  try {
    execFileSync("npx", ["vite", "build", "-c", config, "--logLevel", "error"], {
      env: { ...process.env, [out]: fresh },
      stdio: "inherit",
    });
    const [one, other] = [files(fileURLToPath(new URL(committed, import.meta.url))), files(fresh)];
    const stale = [...new Set([...one.keys(), ...other.keys()])].filter(
      (name) => !other.get(name)?.equals(one.get(name) ?? Buffer.alloc(0)),
    );
    if (stale.length) {
      console.error(`stale files of Studio: ${stale.join(", ")}; run \`make studio-pages\``);
      process.exitCode = 1;
    }
  } finally {
    rmSync(fresh, { recursive: true });
  }
}

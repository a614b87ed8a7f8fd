// A plugin that writes the licences of the packages in the bundle beside it.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

const PACKAGE = /^(.*\/node_modules\/((?:@[^/]+\/)?[^/]+))\//;

export function licenses(fileName) {
  return {
    name: "licenses",
    apply: "build",
    generateBundle(_options, bundle) {
      const found = new Map();
      for (const chunk of Object.values(bundle)) {
        for (const id of chunk.type === "chunk" ? Object.keys(chunk.modules) : []) {
          const match = PACKAGE.exec(id.replaceAll("\\", "/"));
          if (match) found.set(match[2], match[1]);
        }
      }
      const texts = [...found]
        .sort(([one], [other]) => (one < other ? -1 : 1))
        .map(([name, folder]) => text(name, folder));
      this.emitFile({ type: "asset", fileName, source: texts.join("\n\n") });
    },
  };
}

function text(name, folder) {
  const about = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const file = existsSync(folder) && readdirSync(folder).find((each) => /^licen[cs]e/i.test(each));
  const terms = file ? readFileSync(join(folder, file), "utf8").trim() : `Licence: ${about.license}`;
  return `${name} ${about.version}\n${"-".repeat(40)}\n${terms}\n`;
}

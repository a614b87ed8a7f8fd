// What the browser tests share about pages: axe, and pictures for the docs.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import type { Page } from "playwright-core";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
export const SHOTS = process.env.STUDIO_SHOTS; // a folder for pictures of the pages

/** A picture of the page for the docs. */
export async function shot(now: Page, name: string): Promise<void> {
  if (SHOTS) await now.screenshot({ path: join(SHOTS, `studio-${name}.png`) });
}

/** What axe finds against WCAG 2.2 AA, as "rule: element". */
export async function faults(now: Page): Promise<string[]> {
  await now.evaluate(AXE);
  return now.evaluate(async () => {
    const { axe } = globalThis as unknown as {
      axe: { run(options: object): Promise<{ violations: { id: string; nodes: { html: string }[] }[] }> };
    };
    const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
    const { violations } = await axe.run({ runOnly: tags });
    return violations.flatMap((each) => each.nodes.map((node) => `${each.id}: ${node.html.slice(0, 200)}`));
  });
}

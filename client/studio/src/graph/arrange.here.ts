// Arrange, in the page itself: an embedded graph has no address, so it can start no worker.
import type { Arranger } from "./arranged";
import { layOut } from "./layout";

export type { Arranged, Arranger } from "./arranged";

export function startArranger(): Arranger {
  return {
    ask(sizes, edges, answer) {
      try {
        answer({ layout: layOut(sizes, edges), problem: "" });
      } catch (error) {
        answer({ layout: null, problem: error instanceof Error ? error.message : String(error) });
      }
    },
    close: () => undefined,
  };
}

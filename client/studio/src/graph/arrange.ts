// Arrange: lays graphs out in a worker, so that the page stays responsive. Only the latest question is answered.
import { startWorker } from "../trusted";
import type { Arranged, Arranger } from "./arranged";
import workerUrl from "./layout.worker.ts?worker&url";

export type { Arranged, Arranger } from "./arranged";

export function startArranger(): Arranger {
  const worker = startWorker(workerUrl);
  let number = 0;
  return {
    ask(sizes, edges, answer) {
      const mine = ++number;
      worker.onmessage = (event: MessageEvent<{ number: number } & Partial<Arranged>>) => {
        const { layout = null, problem = "" } = event.data;
        if (event.data.number === mine) answer({ layout, problem });
      };
      worker.postMessage({ number: mine, sizes, edges });
    },
    close: () => worker.terminate(),
  };
}

// The layout in a thread of its own, so that the page stays responsive. One question, one answer.
import { type Edge, layOut, type Point } from "./layout";

addEventListener("message", (event: MessageEvent<{ number: number; sizes: Point[]; edges: Edge[] }>) => {
  const { number, sizes, edges } = event.data;
  try {
    postMessage({ number, layout: layOut(sizes, edges) });
  } catch (error) {
    postMessage({ number, problem: error instanceof Error ? error.message : String(error) });
  }
});

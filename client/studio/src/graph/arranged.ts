// What places a graph's boxes: in a worker on a page, in the page itself where there can be none.
import type { Edge, Layout, Point } from "./layout";

export interface Arranged {
  layout: Layout | null;
  /** Why there is no layout. */
  problem: string;
}

export interface Arranger {
  ask: (sizes: Point[], edges: Edge[], answer: (found: Arranged) => void) => void;
  close: () => void;
}

// Data of trainings: the gateway's runs, and the points of the series that are shown, asked for again as they grow.

/** Posts JSON to an endpoint of the gateway. Throws an Error with a sentence. */
export type Post = (path: string, body: object) => Promise<Response>;

export type Kind = "scalars" | "images" | "histograms" | "texts";
/** All kinds, in the order in which they are drawn. */
export const KINDS: readonly Kind[] = ["scalars", "images", "histograms", "texts"];

export interface Run {
  name: string;
  /** How many points each tag has had. */
  scalars: Record<string, number>;
  histograms: Record<string, number>;
  images: Record<string, number>;
  texts: Record<string, number>;
}

export interface Listing {
  /** Whether the gateway has a folder of event files. */
  configured: boolean;
  runs: Run[];
  problems: string[];
  /** Whether there is more to read. */
  more: boolean;
}

/** [step, wall time, value]; a value that is no finite number is null. */
export type ScalarPoint = [number, number, number | null];
/** [step, wall time, [left, right, count, …]]. */
export type HistogramPoint = [number, number, number[]];
/** [step, wall time, width, height]. */
export type ImagePoint = [number, number, number, number];
/** [step, wall time, text]. */
export type TextPoint = [number, number, string];
export type Point = ScalarPoint | HistogramPoint | ImagePoint | TextPoint;

const MOST_AT_ONCE = 64;

/** The key of a series. */
export function keyOf(kind: Kind, run: string, tag: string): string {
  return JSON.stringify([kind, run, tag]);
}

/** Tags of a kind in any of the runs, sorted. */
export function tagsOf(runs: readonly Run[], kind: Kind): string[] {
  return [...new Set(runs.flatMap((run) => Object.keys(run[kind])))].sort((a, b) =>
    a.localeCompare(b, "en", { numeric: true }),
  );
}

/** The points of the series that a page shows. */
export class Store {
  private readonly held = new Map<string, { seen: number; points: Point[] }>();

  constructor(private readonly post: Post) {}

  /** The runs. Throws an Error with a sentence. */
  async list(): Promise<Listing> {
    return (await this.post("training/list", {})).json() as Promise<Listing>;
  }

  /** Fetch those of the series that have grown. Forgets the others. Throws an Error with a sentence. */
  async follow(runs: readonly Run[], shown: readonly { kind: Kind; tag: string }[]): Promise<void> {
    const wanted = new Map<string, { name: [Kind, string, string]; seen: number }>();
    for (const { kind, tag } of shown)
      for (const run of runs) {
        const seen = run[kind][tag];
        if (seen !== undefined) wanted.set(keyOf(kind, run.name, tag), { name: [kind, run.name, tag], seen });
      }
    for (const key of this.held.keys()) if (!wanted.has(key)) this.held.delete(key);
    const grown = [...wanted].filter(([key, { seen }]) => this.held.get(key)?.seen !== seen);
    for (let first = 0; first < grown.length; first += MOST_AT_ONCE) {
      const part = grown.slice(first, first + MOST_AT_ONCE);
      const answer = await this.post("training/read", { series: part.map(([, { name }]) => name) });
      const told = (await answer.json()) as { series: (Point[] | null)[] };
      part.forEach(([key, { seen }], i) => this.held.set(key, { seen, points: told.series[i] ?? [] }));
    }
  }

  /** The points of a series, as last fetched. */
  points<P extends Point>(kind: Kind, run: string, tag: string): P[] {
    return (this.held.get(keyOf(kind, run, tag))?.points ?? []) as P[];
  }

  /** An image as it was written. Throws an Error with a sentence. */
  async image(run: string, tag: string, step: number): Promise<Blob> {
    return (await this.post("training/image", { run, tag, step })).blob();
  }
}

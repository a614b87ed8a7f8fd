// The graph beside the code: that of the last result, or of a chosen variable, in the graph page's view.
import { useMemo, useState } from "preact/hooks";
import { type Graph, lastRoot } from "../graph/model";
import { sourceOf } from "../graph/server";
import { GraphView } from "../graph/view";
import type { Result } from "./workspace";

export function PlaygroundGraph(props: { graph: Graph; result: Result }) {
  const { graph, result } = props;
  const [name, setName] = useState("");
  const roots = result.variables.filter(
    (each) => graph.nodeOf.has(each.tensor) && !graph.tensors.get(each.tensor)?.isLeaf,
  );
  const chosen = roots.find((each) => each.name === name);
  const root = chosen?.tensor ?? rootOf(graph, result);
  const source = useMemo(() => sourceOf(result.session), [result.session]);
  if (!graph.nodeOf.has(root)) return <p class="empty">No tensor has a graph: nothing requires grad.</p>;
  return (
    <section aria-label="Graph" class="graph-part">
      <div class="tools">
        <h3>Graph</h3>
        <label>
          of{" "}
          <select value={chosen?.name ?? ""} onChange={(e) => setName(e.currentTarget.value)}>
            <option value="">the last result</option>
            {roots.map((each) => (
              <option key={each.name} value={each.name}>
                {each.name}
              </option>
            ))}
          </select>
        </label>
      </div>
      <GraphView
        key={root}
        graph={graph}
        of={result.session}
        root={root}
        source={source}
        onRoot={(tensor) => setName(roots.find((each) => each.tensor === tensor)?.name ?? "")}
      />
    </section>
  );
}

/** The last tensor with a name, if it has a graph; else the last result of all. */
function rootOf(graph: Graph, result: Result): number {
  const named = graph.tensors.get(result.last);
  return named && !named.isLeaf && graph.nodeOf.has(named.id) ? named.id : lastRoot(graph);
}

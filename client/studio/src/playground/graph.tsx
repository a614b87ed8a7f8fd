// The graph beside the code: that of the last tensor, or of a chosen variable, with the graph page's drawing.
import { useMemo, useState } from "preact/hooks";
import { GraphCanvas } from "../graph/canvas";
import { drawn } from "../graph/cards";
import { Details } from "../graph/details";
import { type Graph, lastRoot } from "../graph/model";
import type { Result } from "./workspace";

const FOLD_FROM = 40;
const NOTHING: ReadonlySet<number> = new Set();

export function PlaygroundGraph(props: { graph: Graph; result: Result }) {
  const { graph, result } = props;
  const [name, setName] = useState("");
  const roots = result.variables.filter(
    (each) => graph.nodeOf.has(each.tensor) && !graph.tensors.get(each.tensor)?.isLeaf,
  );
  const chosen = roots.find((each) => each.name === name);
  const root = chosen?.tensor ?? rootOf(graph, result);
  const node = graph.nodeOf.get(root) ?? 0;
  const [picked, setPicked] = useState(0);
  const drawing = useMemo(() => drawn(graph, node, graph.nodes.size > FOLD_FROM, NOTHING), [graph, node]);
  const card = drawing.cards.findIndex((each) => each.nodes.includes(picked || node));
  if (!drawing.cards.length) return <p class="empty">No tensor has a graph: nothing requires grad.</p>;
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
      <GraphCanvas
        drawing={drawing}
        of={`${result.session} ${root}`}
        chosen={card}
        found={[]}
        centred={{ card: -1, turn: 0 }}
        onChoose={(index) => setPicked(drawing.cards[index]?.id ?? 0)}
        onPoint={() => {}}
      />
      <details>
        <summary>Details of the chosen node</summary>
        <Details
          key={`${picked} ${result.last}`}
          session={result.session}
          graph={graph}
          root={root}
          run={drawing.cards[card]?.nodes ?? []}
          onRoot={() => {}}
          node={graph.nodes.get(drawing.cards[card]?.id ?? 0)}
          tensor={undefined}
        />
      </details>
    </section>
  );
}

/** The last tensor with a name, if it has a graph; else the last result of all. */
function rootOf(graph: Graph, result: Result): number {
  const named = graph.tensors.get(result.last);
  return named && !named.isLeaf && graph.nodeOf.has(named.id) ? named.id : lastRoot(graph);
}

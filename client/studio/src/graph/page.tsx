// The page of graphs: the session's graph in the interactive view.
import { useEffect, useMemo, useState } from "preact/hooks";
import { address, addressOf, go } from "../address";
import { sentence } from "../calls";
import { Chooser, chosenSession } from "../chooser";
import type { Opened } from "../opened";
import { type Graph, lastRoot, withTold } from "./model";
import { fetchGraph } from "./reading";
import { sourceOf } from "./server";
import { GraphView } from "./view";

export function GraphPage() {
  const session = chosenSession();
  return (
    <>
      <h1>Graph</h1>
      <Chooser page="graph" />
      {session && <SessionGraph key={session.id} session={session} />}
    </>
  );
}

function SessionGraph(props: { session: Opened }) {
  const { session } = props;
  const source = useMemo(() => sourceOf(session.id), [session.id]);
  const [graph, setGraph] = useState<Graph | null>(null);
  const [problem, setProblem] = useState("");
  const load = async () => {
    try {
      setGraph(withTold(await fetchGraph(session.id), session.told ?? {}));
      setProblem("");
    } catch (error) {
      setProblem(sentence(error));
    }
  };
  useEffect(() => void load(), [session.id]);
  return (
    <>
      {problem && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
      {graph ? (
        <GraphView
          graph={graph}
          of={session.id}
          root={graph.tensors.has(address.value.tensor) ? address.value.tensor : lastRoot(graph)}
          source={source}
          onRoot={(tensor) => go(addressOf("graph", session.number, tensor))}
          onReload={() => void load()}
        />
      ) : (
        !problem && <p role="status">Reading the graph …</p>
      )}
    </>
  );
}

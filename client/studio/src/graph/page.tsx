// The page of graphs: the session's graph in the interactive view.
import { useEffect, useState } from "preact/hooks";
import { address, addressOf, go } from "../address";
import { sentence } from "../calls";
import { Chooser, chosenSession } from "../chooser";
import type { Opened } from "../opened";
import { type Graph, lastRoot, withTold } from "./model";
import { fetchGraph, readGradient, readValues } from "./reading";
import { GraphView } from "./view";
import { walkOf } from "./walk";

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
  const source = {
    values: (tensor: number) => told(readValues(session.id, tensor)),
    gradient: (tensor: number) => told(readGradient(session.id, tensor)),
    walk: (shown: Graph, root: number) => told(walkOf(session.id, shown, root)),
  };
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

/** A promise whose refusal is a sentence. */
function told<Value>(promise: Promise<Value>): Promise<Value> {
  return promise.catch((error: unknown) => {
    throw new Error(sentence(error));
  });
}

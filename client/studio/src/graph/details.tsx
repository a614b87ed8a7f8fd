// Details: everything about the chosen node or tensor, with its values and its gradient.
import { useEffect, useState } from "preact/hooks";
import { bytesText, counted, idText, messageOf, shapeText } from "../format";
import { opName } from "./cards";
import type { Graph, Node, Tensor } from "./model";
import { Plots } from "./plots";
import type { Values } from "./values";
import type { Step } from "./walk";
import { type Kind, kindOf, why } from "./why";

const MOST_BYTES = 64 << 20; // a larger tensor is not read

const KINDS: Record<Kind, string> = {
  leaf: "a leaf that requires grad",
  retained: "a result that retains its gradient",
  passed: "a result that passes its gradient on",
  constant: "a constant: it does not require grad",
};

/** The lines about a node, for the panel and the pointer's tip. */
export function factsOf(node: Node, line?: string): string[] {
  const facts = line ? [line.trim()] : [];
  if (node.leaf)
    facts.push(`${shapeText(node.leaf.shape)} ${node.leaf.dtype} on ${node.leaf.device}, version ${node.leaf.version}`);
  for (const tensor of node.made)
    facts.push(
      `made tensor ${idText(tensor.id)}: ${shapeText(tensor.shape)} ${tensor.dtype} on ${tensor.device}, version ${tensor.version}`,
    );
  if (!node.leaf)
    facts.push(
      node.freed ? "its saved values were freed by a backward()" : `${bytesText(node.savedBytes)} saved for backward`,
    );
  if (node.saved.length && !node.freed) facts.push(`saves ${node.saved.join(", ")}`);
  if (node.retainsGrad) facts.push("retains the gradient of its result");
  if (node.command) facts.push(`command ${node.command} of writer ${node.writer}`);
  return facts;
}

/** Where values come from: a server, or nothing where there is none. */
export interface Source {
  values: (tensor: number) => Promise<Values>;
  gradient: (tensor: number) => Promise<Values | null>;
  walk: (graph: Graph, root: number) => Promise<Step[]>;
}

interface Props {
  source: Source | null;
  /** The step of a walk that is at this node. */
  step: Step | undefined;
  /** The calls of modules that a folded card stands for. */
  calls: readonly number[];
  onOpen: () => void;
  onClose: (node: number) => void;
  graph: Graph;
  root: number;
  node: Node | undefined;
  /** A tensor chosen from the list, where it has no node. */
  tensor: Tensor | undefined;
  /** Nodes of a folded run. */
  run: number[];
  onRoot: (tensor: number) => void;
}

export function Details(props: Props) {
  const { graph, node, run, source, calls } = props;
  const tensors = node ? [...(node.leaf?.id ? [node.leaf] : []), ...node.made] : props.tensor ? [props.tensor] : [];
  return (
    <section class="details" id="node-details" aria-live="polite" aria-label="Details">
      {calls.length ? (
        <ModuleDetails graph={graph} calls={calls} nodes={run} onOpen={props.onOpen} onClose={props.onClose} />
      ) : run.length > 1 ? (
        <>
          <h2>{counted(run.length, "operation")} without branches</h2>
          <p>{run.map((id) => opName(graph.nodes.get(id)?.name ?? "")).join(" → ")}</p>
          <button type="button" onClick={props.onOpen}>
            Unfold
          </button>
        </>
      ) : node ? (
        <>
          <h2>{node.name}</h2>
          <Around graph={graph} node={node.id} onClose={props.onClose} />
          {props.step && <Arrived step={props.step} />}
          <ul class="facts-list">
            {factsOf(node, graph.lines[node.id]).map((fact) => (
              <li key={fact}>{fact}</li>
            ))}
          </ul>
          {source && node.leaf && !node.leaf.id && (
            <p>The session has no name for this leaf any more, so its values cannot be read.</p>
          )}
          {source && !node.leaf && !node.made.length && (
            <p>No tensor of the session names its result any more, so there are no values to read.</p>
          )}
        </>
      ) : (
        !props.tensor && <p>Choose a node of the drawing or a tensor of the list.</p>
      )}
      {run.length <= 1 &&
        tensors.map((tensor) => (
          <TensorDetails key={tensor.id} {...{ source, graph, tensor }} root={props.root} onRoot={props.onRoot} />
        ))}
    </section>
  );
}

/** The modules around a node, each with a button that folds it. */
function Around(props: { graph: Graph; node: number; onClose: (node: number) => void }) {
  const call = props.graph.calls[props.graph.callOf.get(props.node) ?? -1];
  if (!call) return null;
  return (
    <p>
      In {call.path || "the outermost module"} ({call.kind}){" "}
      <button type="button" class="small" onClick={() => props.onClose(props.node)}>
        Fold it
      </button>
    </p>
  );
}

function ModuleDetails(props: {
  graph: Graph;
  calls: readonly number[];
  nodes: readonly number[];
  onOpen: () => void;
  onClose: (node: number) => void;
}) {
  const { graph, calls } = props;
  const nodes = props.nodes.flatMap((id) => graph.nodes.get(id) ?? []);
  const leaves = nodes.flatMap((node) => node.leaf ?? []);
  const [first, ...more] = calls.map((call) => graph.calls[call]);
  return (
    <>
      <h2>
        {first?.path || first?.kind}
        {more.length > 0 && ` … ${more.at(-1)?.path}`}
      </h2>
      <ul class="facts-list">
        <li>
          {more.length ? `${calls.length} equal calls of ${first?.kind}` : `one call of ${first?.kind}`}:{" "}
          {counted(nodes.length - leaves.length, "operation")}, {counted(leaves.length, "leaf", "leaves")}
        </li>
        <li>{bytesText(nodes.reduce((sum, node) => sum + node.savedBytes, 0))} saved for backward</li>
        <li>
          {counted(leaves.filter((leaf) => leaf.hasGrad).length, "leaf", "leaves")} with a gradient,{" "}
          {leaves.filter((leaf) => !leaf.hasGrad).length} without
        </li>
      </ul>
      <button type="button" onClick={props.onOpen}>
        Unfold
      </button>{" "}
      {(first?.parent ?? -1) >= 0 && (
        <button type="button" onClick={() => props.onClose(nodes[0]?.id ?? 0)}>
          Fold the module around
        </button>
      )}
    </>
  );
}

/** What a walk shows at a node. */
function Arrived(props: { step: Step }) {
  const { gradient, note } = props.step;
  return gradient ? <Plots values={gradient} what="Gradient that arrives" /> : <p class="why">{note}</p>;
}

function TensorDetails(props: {
  source: Source | null;
  graph: Graph;
  tensor: Tensor;
  root: number;
  onRoot: (tensor: number) => void;
}) {
  const { source, graph, tensor, root } = props;
  return (
    <>
      <h3>
        {graph.names[tensor.id] ?? "Tensor"} {idText(tensor.id)}{" "}
        <small>
          {shapeText(tensor.shape)} {tensor.dtype}
        </small>
      </h3>
      <p>
        It is {KINDS[kindOf(tensor)]}
        {tensor.isView ? ", and a view of another" : ""}.
      </p>
      <p class="why">{why(graph, tensor, root)}</p>
      {tensor.id !== root && !tensor.isLeaf && (
        <button type="button" onClick={() => props.onRoot(tensor.id)}>
          Show the graph of this tensor
        </button>
      )}
      {source && <Read key={`v${tensor.id}`} what="Values" tensor={tensor} read={() => source.values(tensor.id)} />}
      {source && tensor.hasGrad && (
        <Read key={`g${tensor.id}`} what="Gradient" tensor={tensor} read={() => source.gradient(tensor.id)} />
      )}
    </>
  );
}

/** Values that are read when shown: small ones at once, large ones after a click. */
function Read(props: { what: string; tensor: Tensor; read: () => Promise<Values | null> }) {
  const { what, tensor } = props;
  const small = tensor.bytes <= 1 << 20;
  const [asked, setAsked] = useState(small);
  const [state, setState] = useState<{ values: Values | null; problem: string }>({ values: null, problem: "" });
  useEffect(() => {
    if (!asked) return;
    let gone = false;
    props.read().then(
      (values) => !gone && setState({ values, problem: values ? "" : "It has no gradient now." }),
      (error: unknown) => !gone && setState({ values: null, problem: messageOf(error) }),
    );
    return () => {
      gone = true;
    };
  }, [asked]);
  if (tensor.bytes > MOST_BYTES)
    return (
      <p>
        {what}: {bytesText(tensor.bytes)} is too large to be shown here.
      </p>
    );
  if (!asked) {
    return (
      <button type="button" onClick={() => setAsked(true)}>
        Read {what.toLowerCase()} ({bytesText(tensor.bytes)})
      </button>
    );
  }
  if (state.problem)
    return (
      <p class="problem" role="alert">
        {state.problem}
      </p>
    );
  return state.values ? <Plots values={state.values} what={what} /> : <p>Reading …</p>;
}

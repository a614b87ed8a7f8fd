// Embedded: the graph in a document of its own, as a notebook shows it. Its data is in the document; it asks nobody.
import { render } from "preact";
import { useState } from "preact/hooks";
import "../studio.css";
import { type Call, elements, type Graph, type Node, SIZES, type Tensor } from "./model";
import { GraphView } from "./view";

/** What the client writes (client/gradwire/_graph/embedding.py). */
interface Data {
  roots: number[];
  calls: Call[];
  nodes: {
    id: number;
    name: string;
    edges: [node: number, output: number][];
    leaf: {
      name: string | null;
      shape: number[];
      dtype: string;
      device: string;
      version: number;
      requiresGrad: boolean;
      hasGrad: boolean;
    } | null;
    savedBytes: number;
    saved: string[];
    freed: boolean;
    retainsGrad: boolean;
    line: string | null;
    call: number;
  }[];
}

/** The graph of the data. A leaf has its node's id: the document knows no tensors. */
export function graphOf(data: Data): Graph {
  const tensors = new Map<number, Tensor>();
  const names: Record<string, string> = {};
  const lines: Record<string, string> = {};
  const nodes = new Map<number, Node>();
  for (const { line, call, leaf, edges, ...node } of data.nodes) {
    const tensor = leaf && {
      ...leaf,
      id: node.id,
      isLeaf: true,
      gradFn: "",
      retainsGrad: false,
      isView: false,
      bytes: elements(leaf.shape) * (SIZES[leaf.dtype] ?? 0),
    };
    if (tensor) tensors.set(node.id, tensor);
    if (leaf?.name) names[node.id] = leaf.name;
    if (line) lines[node.id] = line;
    nodes.set(node.id, {
      ...node,
      edges: edges.map(([to, output]) => ({ node: to, output })),
      leaf: tensor,
      made: [],
      writer: 0,
      command: 0,
    });
  }
  const nodeOf = new Map([...tensors.keys()].map((id) => [id, id]));
  const callOf = new Map(data.nodes.map(({ id, call }) => [id, call]));
  return { tensors, nodes, nodeOf, partial: false, names, lines, calls: data.calls, callOf };
}

function Embedded(props: { data: Data }) {
  const [graph] = useState(() => graphOf(props.data));
  return (
    <GraphView graph={graph} of="embedded" root={0} roots={props.data.roots} source={null} onRoot={() => undefined} />
  );
}

const place = document.getElementById("graph");
const data = document.getElementById("data");
if (place && data) render(<Embedded data={JSON.parse(data.textContent ?? "") as Data} />, place);

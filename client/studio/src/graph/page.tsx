// The page of graphs: a drawing, the list of tensors, and details of what is chosen.
import { useEffect, useMemo, useState } from "preact/hooks";
import { address, addressOf, go } from "../address";
import { sentence } from "../calls";
import { Chooser, chosenSession } from "../chooser";
import { counted, idText, shapeText } from "../format";
import type { Opened } from "../opened";
import { type Column, type Sorting, sorted, VirtualTable } from "../virtual";
import { GraphCanvas } from "./canvas";
import { drawn, found } from "./cards";
import { Details, factsOf } from "./details";
import { type Graph, lastRoot, type Tensor } from "./model";
import { fetchGraph } from "./reading";
import type { Pointed } from "./scene";
import { kindOf } from "./why";

const FOLD_FROM = 40; // nodes from which runs are folded at first

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
      setGraph({ ...(await fetchGraph(session.id)), names: session.names ?? {}, lines: session.lines ?? {} });
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
        <Shown graph={graph} session={session} onReload={() => void load()} />
      ) : (
        !problem && <p role="status">Reading the graph …</p>
      )}
    </>
  );
}

function Shown(props: { graph: Graph; session: Opened; onReload: () => void }) {
  const { graph, session } = props;
  const root = graph.tensors.has(address.value.tensor) ? address.value.tensor : lastRoot(graph);
  const rootNode = graph.nodeOf.get(root) ?? 0;
  const [fold, setFold] = useState(graph.nodes.size > FOLD_FROM);
  const [unfolded, setUnfolded] = useState<ReadonlySet<number>>(new Set());
  const [chosen, setChosen] = useState<{ node: number; tensor: number }>({ node: rootNode, tensor: root });
  const [text, setText] = useState("");
  const [hit, setHit] = useState(0);
  const [pointed, setPointed] = useState<Pointed | null>(null);
  const [centred, setCentred] = useState({ card: -1, turn: 0 });
  const drawing = useMemo(() => drawn(graph, rootNode, fold, unfolded), [graph, rootNode, fold, unfolded]);
  const hits = useMemo(() => found(graph, drawing, text), [graph, drawing, text]);
  const card = drawing.cards.findIndex((each) => each.nodes.includes(chosen.node));
  const centre = (index: number) => setCentred((was) => ({ card: index, turn: was.turn + 1 }));
  const choose = (index: number) => {
    const picked = drawing.cards[index];
    if (picked?.look === "run" && index === card) setUnfolded(new Set([...unfolded, ...picked.nodes]));
    setChosen({ node: picked?.id ?? 0, tensor: 0 });
  };
  const showRoot = (tensor: number) => {
    go(addressOf("graph", session.number, tensor));
    setChosen({ node: graph.nodeOf.get(tensor) ?? 0, tensor });
  };
  const chooseTensor = (tensor: Tensor) => {
    const node = graph.nodeOf.get(tensor.id) ?? 0;
    setChosen({ node, tensor: tensor.id });
    const index = drawing.cards.findIndex((each) => each.nodes.includes(node));
    if (index >= 0) centre(index);
  };
  const nextHit = () => {
    const index = hits[hit % Math.max(1, hits.length)];
    if (index === undefined) return;
    choose(index);
    centre(index);
    setHit(hit + 1);
  };
  const picked = drawing.cards[card];
  const over = pointed ? drawing.cards[pointed.card] : undefined;
  return (
    <div class="graph">
      <div class="tools">
        <label>
          Search{" "}
          <input
            type="search"
            value={text}
            placeholder="operation, shape, tensor"
            onInput={(e) => {
              setText(e.currentTarget.value);
              setHit(0);
            }}
            onKeyDown={(e) => {
              if (e.key === "Enter") nextHit();
            }}
          />
        </label>
        <button type="button" disabled={!hits.length} onClick={nextHit}>
          Next
        </button>
        <span role="status">
          {text
            ? `${hits.length} found`
            : `${counted(drawing.cards.length, "node")}${root ? ` of tensor ${idText(root)}` : ""}`}
        </span>
        <label>
          <input
            type="checkbox"
            checked={fold}
            onChange={(e) => {
              setFold(e.currentTarget.checked);
              setUnfolded(new Set());
            }}
          />{" "}
          Fold runs
        </label>
        <button type="button" onClick={props.onReload}>
          Read again
        </button>
      </div>
      {graph.partial && (
        <p class="problem" role="status">
          The session has more tensors or nodes than this page reads; the drawing is a part.
        </p>
      )}
      <div class="panes">
        <div class="pane-drawing">
          {drawing.cards.length ? (
            <GraphCanvas
              {...{ drawing, centred }}
              of={`${session.id} ${root}`}
              chosen={card}
              found={hits}
              onChoose={choose}
              onPoint={setPointed}
            />
          ) : (
            <p class="empty">
              No tensor of the session has a graph: nothing was computed from a tensor that requires grad.
            </p>
          )}
          {pointed && over && <Tip graph={graph} pointed={pointed} nodes={over.nodes} lines={over.lines} />}
          <Legend />
        </div>
        <aside>
          <Details
            key={`${chosen.node} ${chosen.tensor}`}
            session={session.id}
            graph={graph}
            root={root}
            run={picked?.nodes ?? []}
            onRoot={showRoot}
            node={graph.nodes.get(picked?.look === "run" ? picked.id : chosen.node)}
            tensor={graph.tensors.get(chosen.tensor)}
          />
        </aside>
      </div>
      <Tensors graph={graph} onChoose={chooseTensor} />
    </div>
  );
}

function Tip(props: { graph: Graph; pointed: Pointed; nodes: number[]; lines: string[] }) {
  const { graph, pointed, nodes, lines } = props;
  const node = nodes.length === 1 ? graph.nodes.get(nodes[0] ?? 0) : undefined;
  return (
    <div class="tip" style={{ left: `${pointed.x + 14}px`, top: `${pointed.y + 14}px` }} aria-hidden="true">
      <b>{node?.name ?? lines[0]}</b>
      {(node ? factsOf(node, graph.lines[node.id]) : [...lines.slice(1), "click twice to unfold"]).map((fact) => (
        <div key={fact}>{fact}</div>
      ))}
    </div>
  );
}

function Legend() {
  return (
    <ul class="legend" aria-label="Legend">
      <li class="leaf">leaf, has a gradient</li>
      <li class="leaf none">leaf, gradient None</li>
      <li class="retained">retained gradient</li>
      <li class="retained none">retains, still None</li>
      <li class="op">operation: gradient passed on</li>
      <li class="freed">freed by a backward()</li>
    </ul>
  );
}

/** All tensors of the session: the drawing's words for those who cannot see it, and the way to tensors without a graph. */
function Tensors(props: { graph: Graph; onChoose: (tensor: Tensor) => void }) {
  const [sorting, setSorting] = useState<Sorting>({ key: "id", down: false });
  const columns: Column<Tensor>[] = [
    {
      key: "id",
      title: "Tensor",
      number: true,
      sort: (each) => each.id,
      cell: (each) => (
        <button type="button" class="small" onClick={() => props.onChoose(each)}>
          {idText(each.id)}
        </button>
      ),
    },
    { key: "shape", title: "Shape", sort: (each) => each.bytes, cell: (each) => shapeText(each.shape) },
    { key: "dtype", title: "Dtype", sort: (each) => each.dtype, cell: (each) => each.dtype },
    { key: "kind", title: "Kind", sort: kindOf, cell: kindOf },
    { key: "made", title: "Made by", wide: true, sort: (each) => each.gradFn, cell: (each) => each.gradFn || "–" },
    {
      key: "grad",
      title: "Gradient",
      sort: (each) => Number(each.hasGrad),
      cell: (each) => (each.hasGrad ? "yes" : "None"),
    },
  ];
  const rows = useMemo(() => sorted([...props.graph.tensors.values()], columns, sorting), [props.graph, sorting]);
  return (
    <details class="tensors">
      <summary>{counted(rows.length, "tensor")} of the session</summary>
      <VirtualTable
        label="Tensors"
        rows={rows}
        columns={columns}
        sorting={sorting}
        onSort={setSorting}
        keyOf={(each) => each.id}
        empty="The session has no tensor."
      />
    </details>
  );
}

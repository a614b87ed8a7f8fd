// The view of a graph: a drawing that folds, search, the steps of a backward, the list of tensors, and details.
//
// It asks for values through a source, so that a page without a server shows a graph, too.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { counted, idText, shapeText } from "../format";
import { type Column, type Sorting, sorted, VirtualTable } from "../virtual";
import { GraphCanvas } from "./canvas";
import { type Card, drawn, found, nodeKey } from "./cards";
import { Details, factsOf, type Source } from "./details";
import { callKey, chainOf, openedAtFirst, runKey } from "./folding";
import { type Graph, reachable, type Tensor } from "./model";
import { measured, type Pointed } from "./scene";
import { Steps, useSteps } from "./steps";
import { kindOf } from "./why";

const FOLD_FROM = 40; // nodes from which runs are folded at first

interface Props {
  graph: Graph;
  /** Another key is another graph, which is shown whole. */
  of: string;
  /** The tensor whose graph is drawn. */
  root: number;
  /** The nodes whose graph is drawn, where there is no tensor for them. */
  roots?: readonly number[];
  source: Source | null;
  onRoot: (tensor: number) => void;
  onReload?: () => void;
}

export function GraphView(props: Props) {
  const { graph, root } = props;
  const roots = useMemo(() => props.roots ?? [graph.nodeOf.get(root) ?? 0], [graph, root, props.roots]);
  const rootNode = roots[0] ?? 0;
  const [runs, setRuns] = useState(graph.nodes.size > FOLD_FROM);
  const [opened, setOpened] = useState<ReadonlySet<string> | null>(() => openedAtFirst(graph, reachable(graph, roots)));
  const [chosen, setChosen] = useState<{ node: number; tensor: number }>({ node: rootNode, tensor: root });
  const [text, setText] = useState("");
  const [hit, setHit] = useState(0);
  const [pointed, setPointed] = useState<Pointed | null>(null);
  const [centred, setCentred] = useState({ card: -1, turn: 0 });
  const drawing = useMemo(() => drawn(graph, roots, { runs, opened }, measured), [graph, roots, runs, opened]);
  const hits = useMemo(() => found(graph, drawing, text), [graph, drawing, text]);
  const card = drawing.cards.findIndex((each) => each.nodes.includes(chosen.node));
  const centre = (index: number) => setCentred((was) => ({ card: index, turn: was.turn + 1 }));
  const steps = useSteps(graph, root, props.source?.walk);
  const open = (picked: Card) => setOpened(new Set([...(opened ?? []), ...keysOf(picked)]));
  const close = (node: number) => setOpened(closed(graph, opened ?? new Set(), node));
  const choose = (index: number) => {
    const picked = drawing.cards[index];
    if (picked && index === card && isFolded(picked)) open(picked);
    else setChosen({ node: picked?.id ?? 0, tensor: 0 });
  };
  useEffect(() => {
    const index = drawing.cards.findIndex((each) => each.nodes.includes(steps.current));
    if (steps.current && index >= 0) {
      setChosen({ node: steps.current, tensor: 0 });
      centre(index);
    }
  }, [steps.current]);
  const before = useRef(rootNode);
  useEffect(() => {
    if (before.current !== rootNode && opened) setOpened(openedAtFirst(graph, reachable(graph, roots)));
    before.current = rootNode;
  }, [rootNode]);
  const showRoot = (tensor: number) => {
    props.onRoot(tensor);
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
            checked={runs}
            onChange={(e) => {
              setRuns(e.currentTarget.checked);
              setOpened(opened && new Set([...opened].filter((key) => !key.startsWith("node "))));
            }}
          />{" "}
          Fold runs
        </label>
        {graph.calls.length > 0 && (
          <label>
            <input
              type="checkbox"
              checked={opened !== null}
              onChange={(e) =>
                setOpened(e.currentTarget.checked ? openedAtFirst(graph, reachable(graph, roots)) : null)
              }
            />{" "}
            Fold modules
          </label>
        )}
        {props.source && rootNode > 0 && <Steps graph={graph} steps={steps} />}
        {props.onReload && (
          <button type="button" onClick={props.onReload}>
            Read again
          </button>
        )}
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
              of={`${props.of} ${root}`}
              passed={steps.passed}
              onOpen={() => picked && isFolded(picked) && open(picked)}
              onClose={() => close(chosen.node)}
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
            source={props.source}
            step={steps.at(chosen.node)}
            calls={picked?.calls ?? []}
            onOpen={() => picked && open(picked)}
            onClose={close}
            graph={graph}
            root={root}
            run={picked?.nodes ?? []}
            onRoot={showRoot}
            node={graph.nodes.get(picked?.look === "run" ? picked.id : chosen.node)}
            tensor={graph.tensors.get(chosen.tensor)}
          />
        </aside>
      </div>
      <Tensors graph={graph} what={props.source ? "tensor" : "leaf"} onChoose={chooseTensor} />
    </div>
  );
}

const isFolded = (card: Card) => card.look === "run" || card.look === "module";

/** What opening a card opens: equal calls to calls, a call to its nodes, a run to its operations. */
function keysOf(card: Card): string[] {
  if (!card.calls) return card.nodes.map(nodeKey);
  return card.calls.length > 1 ? card.calls.map(runKey) : card.calls.map(callKey);
}

/** What stays open after the innermost open call around a node is folded, with all that is inside. */
function closed(graph: Graph, opened: ReadonlySet<string>, node: number): ReadonlySet<string> {
  const innermost = chainOf(graph, graph.callOf.get(node) ?? -1)
    .reverse()
    .find((call) => opened.has(callKey(call)));
  if (innermost === undefined) return opened;
  const inside = graph.calls.flatMap((_, call) => (chainOf(graph, call).includes(innermost) ? [call] : []));
  const gone = new Set(inside.flatMap((call) => [callKey(call), runKey(call)]));
  // The calls beside it join again, if they are equal.
  graph.calls.forEach((each, call) => {
    if (each.parent === graph.calls[innermost]?.parent) gone.add(runKey(call));
  });
  return new Set([...opened].filter((key) => !gone.has(key)));
}

function Tip(props: { graph: Graph; pointed: Pointed; nodes: number[]; lines: string[] }) {
  const { graph, pointed, nodes, lines } = props;
  const node = nodes.length === 1 ? graph.nodes.get(nodes[0] ?? 0) : undefined;
  return (
    <div class="tip" style={{ left: `${pointed.x + 14}px`, top: `${pointed.y + 14}px` }} aria-hidden="true">
      <b>{node?.name ?? lines[0]}</b>
      {(node ? factsOf(node, graph.lines[node.id]) : [...lines.slice(1), "click twice or press Enter to unfold"]).map(
        (fact) => (
          <div key={fact}>{fact}</div>
        ),
      )}
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
      <li class="module">a module, folded</li>
      <li class="freed">freed by a backward()</li>
    </ul>
  );
}

/** All tensors of the session: the drawing's words for those who cannot see it, and the way to tensors without a graph. */
function Tensors(props: { graph: Graph; what: "tensor" | "leaf"; onChoose: (tensor: Tensor) => void }) {
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
      <summary>
        {props.what === "leaf"
          ? counted(rows.length, "leaf", "leaves")
          : `${counted(rows.length, "tensor")} of the session`}
      </summary>
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

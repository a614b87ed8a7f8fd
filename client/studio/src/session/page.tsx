// The page of a session: where its compute goes, its memory over time, its tensors by size, its refusals and programs.
import { useRef, useState } from "preact/hooks";
import type { SessionActivity } from "#contract/commands_pb";
import { addressOf } from "../address";
import { sentence, server } from "../calls";
import { Chooser, chosenSession } from "../chooser";
import { bytesText, counted, idText, shapeText } from "../format";
import type { Tensor } from "../graph/model";
import { listTensors } from "../graph/reading";
import { kindOf } from "../graph/why";
import type { Opened } from "../opened";
import { usePolling } from "../polling";
import { pointsOf } from "../sparkline";
import { type Column, type Sorting, sorted, VirtualTable } from "../virtual";
import { Programs, Refusals } from "./events";
import { Flame } from "./flame";
import { type Share, Window } from "./times";

const EVERY = 2000; // milliseconds between looks at the sums, which cost the session least
const LIST_EVERY = 5000; // and at least between two lists of its tensors
const LIST_PART = 200; // a list may take one part of so many of the session's time
const MOST_LOOKS = 180;

export function SessionPage() {
  const session = chosenSession();
  return (
    <>
      <h1>Session</h1>
      <Chooser page="session" />
      {session && <Watch key={session.id} session={session} />}
    </>
  );
}

interface View {
  bytes: number[];
  count: number;
  tensors: Tensor[];
  partial: boolean;
  activity: SessionActivity | null;
  shares: Share[];
  span: number;
  problem: string;
}

const NOTHING: View = {
  bytes: [],
  count: 0,
  tensors: [],
  partial: false,
  activity: null,
  shares: [],
  span: 0,
  problem: "",
};

function Watch(props: { session: Opened }) {
  const { session } = props;
  const nextList = useRef(0);
  const window = useRef(new Window());
  const [view, setView] = useState<View>(NOTHING);
  const [sorting, setSorting] = useState<Sorting>({ key: "bytes", down: true });
  const look = async () => {
    try {
      const sums = await server.describe({ sessionId: session.id, activity: true });
      const began = performance.now();
      const list = began >= nextList.current ? await listTensors(session.id) : null;
      window.current.take(sums.activity?.opTimes ?? [], began);
      if (list) nextList.current = began + Math.max(LIST_EVERY, LIST_PART * (performance.now() - began));
      setView((was) => ({
        bytes: [...was.bytes, Number(sums.bytes)].slice(-MOST_LOOKS),
        count: Number(sums.tensorCount),
        tensors: list ? [...list.tensors.values()] : was.tensors,
        partial: list ? list.partial : was.partial,
        activity: sums.activity ?? null,
        shares: window.current.shares(),
        span: window.current.span,
        problem: "",
      }));
    } catch (error) {
      setView((was) => ({ ...was, problem: sentence(error) }));
    }
  };
  usePolling(look, EVERY, [session.id]);
  const columns = columnsOf(session);
  const rows = sorted(view.tensors, columns, sorting);
  return (
    <>
      {view.problem && (
        <p class="problem" role="alert">
          {view.problem}
        </p>
      )}
      <dl class="facts">
        <div>
          <dt>Holds</dt>
          <dd>{bytesText(view.bytes.at(-1) ?? 0)}</dd>
        </div>
        <div>
          <dt>Most seen</dt>
          <dd>{bytesText(Math.max(0, ...view.bytes))}</dd>
        </div>
        <div>
          <dt>Tensors</dt>
          <dd>{view.count.toLocaleString("en")}</dd>
        </div>
      </dl>
      <Curve values={view.bytes} />
      <Flame shares={view.shares} span={view.span} />
      {view.activity && <Programs programs={view.activity.programs} />}
      {view.activity && <Refusals activity={view.activity} />}
      <h2>Tensors by size</h2>
      <p>
        {counted(rows.length, "tensor")} with an id{view.partial ? ", the first of more" : ""}. Values saved for
        backward and gradients without an id count in the curve only. Views are listed with their own size, though they
        share their base's bytes.
      </p>
      <VirtualTable
        label="Tensors by size"
        rows={rows}
        columns={columns}
        sorting={sorting}
        onSort={setSorting}
        keyOf={(row) => row.id}
        empty="The session has no tensor."
      />
    </>
  );
}

function Curve(props: { values: number[] }) {
  const { values } = props;
  const most = Math.max(1, ...values);
  return (
    <figure class="curve">
      <svg
        viewBox="0 0 600 120"
        preserveAspectRatio="none"
        role="img"
        aria-label={`bytes held, now ${bytesText(values.at(-1) ?? 0)}, at most ${bytesText(most)}`}
      >
        <polyline points={pointsOf(values, MOST_LOOKS, 600, 120)} />
      </svg>
      <figcaption>
        <span>bytes held, last {MOST_LOOKS / 60} minutes</span>
        <span>top: {bytesText(most)}</span>
      </figcaption>
    </figure>
  );
}

function columnsOf(session: Opened): Column<Tensor>[] {
  return [
    {
      key: "id",
      title: "Tensor",
      number: true,
      sort: (row) => row.id,
      cell: (row) => <a href={addressOf("graph", session.number, row.id)}>{idText(row.id)}</a>,
    },
    { key: "bytes", title: "Bytes", number: true, sort: (row) => row.bytes, cell: (row) => bytesText(row.bytes) },
    { key: "shape", title: "Shape", cell: (row) => shapeText(row.shape) },
    { key: "dtype", title: "Dtype", sort: (row) => row.dtype, cell: (row) => row.dtype },
    { key: "device", title: "Device", wide: true, sort: (row) => row.device, cell: (row) => row.device },
    { key: "kind", title: "Kind", sort: kindOf, cell: kindOf },
    {
      key: "view",
      title: "View",
      wide: true,
      sort: (row) => Number(row.isView),
      cell: (row) => (row.isView ? "view" : ""),
    },
    {
      key: "version",
      title: "Version",
      number: true,
      wide: true,
      sort: (row) => row.version,
      cell: (row) => row.version,
    },
  ];
}

// The page of sessions: a live table of all sessions of the server, and what the server holds.
import { useRef, useState } from "preact/hooks";
import type { ClusterNode, ServerInfoResponse, SessionSummary } from "#contract/service_pb";
import { lacksRights, loggedIn, sentence, server } from "../calls";
import { bytesText, counted, rateText, timeText } from "../format";
import { usePolling } from "../polling";
import { Sparkline } from "../sparkline";
import { type Column, type Sorting, sorted, VirtualTable } from "../virtual";
import { History, MOST_LOOKS, matching, type SessionRow } from "./history";
import { heldText, stateText } from "./nodes";

const EVERY = 2000; // milliseconds
const PAGE = 1000;

interface View {
  info: ServerInfoResponse | null;
  nodes: ClusterNode[];
  rows: SessionRow[];
  problem: string;
  rights: boolean;
}

/** Ask for all sessions, page by page, and for the cluster's nodes. */
async function listed(): Promise<{ sessions: SessionSummary[]; nodes: ClusterNode[] }> {
  const sessions: SessionSummary[] = [];
  const nodes: ClusterNode[] = [];
  for (let pageToken = ""; ; ) {
    const page = await server.listSessions({ pageSize: PAGE, pageToken, nodes: !pageToken });
    sessions.push(...page.sessions);
    nodes.push(...page.nodes);
    pageToken = page.nextPageToken;
    if (!pageToken) return { sessions, nodes };
  }
}

export function SessionsPage() {
  const history = useRef(new History());
  const [view, setView] = useState<View>({ info: null, nodes: [], rows: [], problem: "", rights: true });
  const [text, setText] = useState("");
  const [sorting, setSorting] = useState<Sorting>({ key: "share", down: true });
  const [ending, setEnding] = useState<SessionRow | null>(null);
  const look = async () => {
    let info = view.info;
    try {
      info = await server.serverInfo({});
      const { sessions, nodes } = await listed();
      const rows = history.current.take(sessions, performance.now());
      setView({ info, nodes, rows, problem: "", rights: true });
    } catch (error) {
      const rights = !lacksRights(error);
      setView((was) => ({ ...was, info, rows: rights ? was.rows : [], problem: sentence(error), rights }));
    }
  };
  usePolling(look, EVERY, [loggedIn.value]);
  const columns = columnsOf(setEnding);
  const rows = sorted(matching(view.rows, text), columns, sorting);
  return (
    <>
      <h1>Sessions</h1>
      <ServerFacts info={view.info} rows={view.rows} />
      {view.nodes.length > 0 && <Nodes nodes={view.nodes} />}
      {view.problem && (
        <p class="problem" role="alert">
          {view.problem}
        </p>
      )}
      {!view.rights && <Rights />}
      {view.rights && (
        <>
          <div class="tools">
            <label>
              Search{" "}
              <input
                type="search"
                value={text}
                placeholder="principal, client, number"
                onInput={(e) => setText(e.currentTarget.value)}
              />
            </label>
            <span role="status">{counted(rows.length, "session")}</span>
          </div>
          <VirtualTable
            label="Sessions"
            rows={rows}
            columns={columns}
            sorting={sorting}
            onSort={setSorting}
            keyOf={(row) => row.number}
            empty="No session is open."
          />
        </>
      )}
      {ending && <EndDialog row={ending} onDone={() => setEnding(null)} />}
    </>
  );
}

function ServerFacts(props: { info: ServerInfoResponse | null; rows: readonly SessionRow[] }) {
  const { info, rows } = props;
  if (!info) return <p class="facts">…</p>;
  const busy = rows.reduce((sum, row) => sum + row.share, 0);
  const facts: [string, string][] = [
    ["Version", info.version],
    ["Sessions", info.sessions.toLocaleString("en")],
    ["Held", bytesText(Number(info.bytes))],
    ["Busy cores", busy.toFixed(2)],
    ...(info.build.workers ? [["Workers", info.build.workers] as [string, string]] : []),
  ];
  return (
    <>
      <dl class="facts">
        {facts.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      <ul class="devices" aria-label="Devices">
        {info.devices.map((device) => (
          <li key={device.name}>
            <b>{device.name}</b> {device.description}
            {device.totalBytes ? `, ${bytesText(Number(device.totalBytes))} of memory` : ""}
          </li>
        ))}
      </ul>
    </>
  );
}

/** The nodes of the cluster, as they last reported. */
function Nodes(props: { nodes: readonly ClusterNode[] }) {
  return (
    <table class="nodes" aria-label="Nodes of the cluster">
      <thead>
        <tr>
          <th scope="col">Node</th>
          <th scope="col">Sessions</th>
          <th scope="col">Workers</th>
          <th scope="col">GPUs</th>
          <th scope="col">Held</th>
          <th scope="col">State</th>
        </tr>
      </thead>
      <tbody>
        {props.nodes.map((node) => (
          <tr key={node.endpoint}>
            <th scope="row">{node.endpoint}</th>
            <td>{node.sessions.toLocaleString("en")}</td>
            <td>{node.workers}</td>
            <td>{node.gpus}</td>
            <td>{heldText(node)}</td>
            <td>{stateText(node)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** Why the table is empty, and what helps. */
function Rights() {
  return (
    <section class="card">
      <h2>The list needs a token with the scope admin</h2>
      <p>
        Make one with <code>gradwire token NAME --scope admin</code>, then log in above. A server without tokens admits
        the user who runs it: log in with the secret in the file <code>/tmp/gradwire-UID/HOST:PORT.owner</code> of its
        machine.
      </p>
      <p>Your own sessions need no such right: open them under Graph.</p>
    </section>
  );
}

function columnsOf(end: (row: SessionRow) => void): Column<SessionRow>[] {
  const known = (row: SessionRow, text: string) => (row.known ? text : <span class="unknown">{text}</span>);
  return [
    { key: "number", title: "Session", number: true, sort: (row) => row.number, cell: (row) => row.number },
    {
      key: "principal",
      title: "Principal",
      sort: (row) => row.principal,
      cell: (row) => <Name text={row.principal || "–"} />,
    },
    {
      key: "client",
      title: "Client",
      wide: true,
      sort: (row) => row.client,
      cell: (row) => <Name text={row.client} />,
    },
    {
      key: "bytes",
      title: "Bytes",
      number: true,
      sort: (row) => row.bytes,
      cell: (row) => known(row, bytesText(row.bytes)),
    },
    {
      key: "tensors",
      title: "Tensors",
      number: true,
      wide: true,
      sort: (row) => row.tensors,
      cell: (row) => known(row, row.tensors.toLocaleString("en")),
    },
    {
      key: "rate",
      title: "Commands/s",
      number: true,
      sort: (row) => row.rate,
      cell: (row) => <WithLine row={row} values={row.rates} text={rateText(row.rate)} what="commands per second" />,
    },
    {
      key: "share",
      title: "Cores",
      number: true,
      sort: (row) => row.share,
      cell: (row) => <WithLine row={row} values={row.shares} text={row.share.toFixed(2)} what="cores" />,
    },
    {
      key: "pending",
      title: "Queue",
      number: true,
      wide: true,
      sort: (row) => row.pending,
      cell: (row) => row.pending,
    },
    {
      key: "lease",
      title: "Lease",
      number: true,
      wide: true,
      sort: (row) => row.lease,
      cell: (row) => timeText(row.lease),
    },
    { key: "age", title: "Age", number: true, wide: true, sort: (row) => row.age, cell: (row) => timeText(row.age) },
    { key: "worker", title: "Worker", number: true, wide: true, sort: (row) => row.worker, cell: (row) => row.worker },
    {
      key: "end",
      title: "End",
      cell: (row) => (
        <button type="button" class="small" aria-label={`End session ${row.number}`} onClick={() => end(row)}>
          End
        </button>
      ),
    },
  ];
}

function Name(props: { text: string }) {
  return (
    <span class="name" title={props.text}>
      {props.text}
    </span>
  );
}

function WithLine(props: { row: SessionRow; values: number[]; text: string; what: string }) {
  return (
    <span class="with-line">
      <Sparkline values={props.values} most={MOST_LOOKS} label={`${props.what}, last looks`} />
      {props.text}
    </span>
  );
}

/** Asks once more before a session of any user is ended. */
function EndDialog(props: { row: SessionRow; onDone: () => void }) {
  const { row } = props;
  const [problem, setProblem] = useState("");
  const open = (dialog: HTMLDialogElement | null) => {
    if (dialog && !dialog.open) dialog.showModal();
  };
  const end = async () => {
    try {
      await server.endSession({ number: BigInt(row.number) });
      props.onDone();
    } catch (error) {
      setProblem(sentence(error));
    }
  };
  return (
    <dialog ref={open} onClose={props.onDone} aria-labelledby="end-title">
      <h2 id="end-title">End session {row.number}?</h2>
      <p>
        It belongs to {row.principal || "a caller without a name"} and holds {counted(row.tensors, "tensor")} of{" "}
        {bytesText(row.bytes)}. They are deleted, and its program's next call is refused.
      </p>
      {problem && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
      <div class="buttons">
        <button type="button" onClick={props.onDone}>
          Keep it
        </button>
        <button type="button" class="danger" onClick={end}>
          End it
        </button>
      </div>
    </dialog>
  );
}

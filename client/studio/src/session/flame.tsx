// Flame strip: where a session's compute goes, by kind and below it by op; and the same as a table.
import { useState } from "preact/hooks";
import { type Column, type Sorting, sorted, VirtualTable } from "../virtual";
import { durationText, type Group, grouped, kindText, nameText, percentText, type Share } from "./times";

const COLOURS = 6; // studio.css has as many

const COLUMNS: Column<Share>[] = [
  { key: "name", title: "Op", sort: nameText, cell: (row) => <span class="name">{nameText(row)}</span> },
  { key: "kind", title: "Kind", sort: (row) => kindText(row.kind), cell: (row) => kindText(row.kind) },
  { key: "part", title: "Share", number: true, sort: (row) => row.part, cell: (row) => percentText(row.part) },
  { key: "seconds", title: "Time", number: true, sort: (row) => row.seconds, cell: (row) => durationText(row.seconds) },
  {
    key: "calls",
    title: "Calls",
    number: true,
    wide: true,
    sort: (row) => row.calls,
    cell: (row) => row.calls.toLocaleString("en"),
  },
  {
    key: "each",
    title: "Each",
    number: true,
    wide: true,
    sort: each,
    cell: (row) => (row.calls ? durationText(each(row)) : "–"),
  },
];

export function Flame(props: { shares: readonly Share[]; span: number }) {
  const { shares, span } = props;
  const [sorting, setSorting] = useState<Sorting>({ key: "part", down: true });
  const groups = grouped(shares);
  const busy = span > 0 ? shares.reduce((sum, share) => sum + share.seconds, 0) / span : 0;
  return (
    <section class="flame-section">
      <h2>Ops by time</h2>
      <p>
        {shares.length === 0
          ? "The session has computed nothing since the page began to watch."
          : `Wall time of the last ${Math.max(1, Math.round(span))} seconds; the session computed in ${percentText(Math.min(1, busy))} of them.`}
      </p>
      {groups.length > 0 && (
        <div class="flame" role="img" aria-label={told(groups)}>
          {groups.map((group, i) => (
            <div key={group.kind} class={`flame-group flame-${i % COLOURS}`} style={{ width: `${group.part * 100}%` }}>
              <div class="flame-kind" title={`${kindText(group.kind)}: ${percentText(group.part)}`}>
                {kindText(group.kind)}
              </div>
              <div class="flame-names">
                {group.shares.map((share) => (
                  <div
                    key={share.name}
                    class="flame-name"
                    style={{ width: `${(share.part / group.part) * 100}%` }}
                    title={`${nameText(share)}: ${percentText(share.part)}, ${durationText(share.seconds)}, ${share.calls} calls`}
                  >
                    {nameText(share)}
                  </div>
                ))}
              </div>
            </div>
          ))}
        </div>
      )}
      {shares.length > 0 && (
        <VirtualTable
          label="Ops by time"
          rows={sorted(shares, COLUMNS, sorting)}
          columns={COLUMNS}
          sorting={sorting}
          onSort={setSorting}
          keyOf={(row) => `${row.kind}\n${row.name}`}
          empty=""
        />
      )}
    </section>
  );
}

function told(groups: readonly Group[]): string {
  return `time by kind: ${groups.map((group) => `${kindText(group.kind)} ${percentText(group.part)}`).join(", ")}`;
}

function each(share: Share): number {
  return share.calls ? share.seconds / share.calls : 0;
}

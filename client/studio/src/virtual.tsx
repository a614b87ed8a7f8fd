// Virtual rows: a table that draws only the rows in view, however many there are.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

export const ROW = 34; // pixels; studio.css has the same
const BEYOND = 8;

export interface Column<Row> {
  key: string;
  title: string;
  number?: boolean;
  /** Hidden on narrow screens. */
  wide?: boolean;
  sort?: (row: Row) => number | string;
  cell: (row: Row) => ComponentChildren;
}

export interface Sorting {
  key: string;
  down: boolean;
}

/** Rows in the order of a column. Equal rows keep their order. */
export function sorted<Row>(rows: readonly Row[], columns: readonly Column<Row>[], sorting: Sorting): Row[] {
  const by = columns.find((each) => each.key === sorting.key)?.sort;
  if (!by) return [...rows];
  const sign = sorting.down ? -1 : 1;
  return [...rows].sort((one, other) => {
    const [a, b] = [by(one), by(other)];
    return a < b ? -sign : a > b ? sign : 0;
  });
}

interface Props<Row> {
  label: string;
  rows: readonly Row[];
  columns: readonly Column<Row>[];
  sorting: Sorting;
  onSort: (sorting: Sorting) => void;
  keyOf: (row: Row) => string | number;
  empty: string;
}

export function VirtualTable<Row>(props: Props<Row>) {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const look = () => setView({ top: element.scrollTop, height: element.clientHeight });
    const watcher = new ResizeObserver(look);
    watcher.observe(element);
    element.addEventListener("scroll", look, { passive: true });
    look();
    return () => {
      watcher.disconnect();
      element.removeEventListener("scroll", look);
    };
  }, []);
  const { rows, columns } = props;
  const first = Math.max(0, Math.min(Math.floor(view.top / ROW) - BEYOND, rows.length - 1));
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / ROW) + BEYOND);
  return (
    <div class="rows" ref={box} tabIndex={0} role="region" aria-label={props.label}>
      <table aria-rowcount={rows.length + 1}>
        <thead>
          <tr>
            {columns.map((column) => (
              <Head key={column.key} column={column} sorting={props.sorting} onSort={props.onSort} />
            ))}
          </tr>
        </thead>
        <tbody>
          <Gap height={first * ROW} columns={columns.length} />
          {rows.slice(first, last).map((row, i) => (
            <tr key={props.keyOf(row)} aria-rowindex={first + i + 2}>
              {columns.map((column) => (
                <td key={column.key} class={classes(column)}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
          <Gap height={(rows.length - last) * ROW} columns={columns.length} />
        </tbody>
      </table>
      {rows.length === 0 && <p class="empty">{props.empty}</p>}
    </div>
  );
}

function Head<Row>(props: { column: Column<Row>; sorting: Sorting; onSort: (sorting: Sorting) => void }): JSX.Element {
  const { column, sorting } = props;
  const active = sorting.key === column.key;
  const order = active ? (sorting.down ? "descending" : "ascending") : undefined;
  const flip = () => props.onSort({ key: column.key, down: active ? !sorting.down : column.number === true });
  return (
    <th scope="col" class={classes(column)} aria-sort={order}>
      {column.sort ? (
        <button type="button" class="sort" onClick={flip}>
          {column.title}
          <span aria-hidden="true">{active ? (sorting.down ? " ↓" : " ↑") : ""}</span>
        </button>
      ) : (
        column.title
      )}
    </th>
  );
}

function Gap(props: { height: number; columns: number }) {
  return props.height > 0 ? (
    <tr aria-hidden="true" class="gap">
      <td colSpan={props.columns} style={{ height: `${props.height}px` }} />
    </tr>
  ) : null;
}

function classes<Row>(column: Column<Row>): string {
  return `${column.number ? "number" : ""} ${column.wide ? "wide" : ""}`;
}

// Opened sessions: those whose secret ids the user gave to this tab. Addresses name them by a number of this tab.
import { signal } from "@preact/signals";
import { type Handover, server } from "./calls";
import type { Told } from "./graph/model";

const KEY = "gradwire.sessions";

export interface Opened {
  /** A number of this tab, for addresses. */
  number: number;
  /** The session's id, which gives access to it. */
  id: string;
  /** What the user calls it. */
  label: string;
  /** Names, lines and calls of modules, as its program told them. */
  told?: Told;
}

/** The sessions of this tab. */
export const opened = signal<Opened[]>(stored());

/** Open a session by its id, if the server has it. Throws the server's refusal. */
export async function openById(id: string, label = ""): Promise<Opened> {
  await server.describe({ sessionId: id });
  const known = opened.value.find((each) => each.id === id);
  return known ?? add(id, label || "opened by its id");
}

/** Open the session that a program handed over, with its names and lines. Throws the server's refusal. */
export async function openHandover(given: Handover): Promise<Opened> {
  const found = await openById(given.session, "from Python");
  // Names and lines add up; the newest calls replace the others, since a node names its call by its place.
  const { names, lines, calls, callOf } = given;
  const known = found.told;
  const all = { names: { ...known?.names, ...names }, lines: { ...known?.lines, ...lines }, calls, callOf };
  const told: Opened = { ...found, told: all };
  keep(opened.value.map((each) => (each.number === told.number ? told : each)));
  return told;
}

/** Add a session that exists. */
export function add(id: string, label: string): Opened {
  const made = { number: Math.max(0, ...opened.value.map((each) => each.number)) + 1, id, label };
  keep([...opened.value, made]);
  return made;
}

/** Forget a session in this tab; the server keeps it. */
export function forget(number: number): void {
  keep(opened.value.filter((each) => each.number !== number));
}

function keep(sessions: Opened[]): void {
  opened.value = sessions;
  try {
    sessionStorage.setItem(KEY, JSON.stringify(sessions));
  } catch {
    // The browser keeps some megabytes for a tab: after a reload, names and lines are then asked of Python again.
    sessionStorage.setItem(KEY, JSON.stringify(sessions.map(({ told: _, ...rest }) => rest)));
  }
}

function stored(): Opened[] {
  try {
    return JSON.parse(sessionStorage.getItem(KEY) ?? "[]") as Opened[];
  } catch {
    return [];
  }
}

// Address: which page is shown, from the part of the address after "#". It never holds a secret.
import { signal } from "@preact/signals";

export interface Address {
  page: "sessions" | "graph" | "session" | "training" | "playground" | "from";
  /** The number of an opened session in this tab; 0 for none. */
  session: number;
  /** A tensor's id; 0 for none. */
  tensor: number;
  /** The code of a program's handover, which works once; empty for none. */
  code: string;
}

const PAGES = ["graph", "session", "training", "playground", "from"] as const;

/** Read an address such as "#/graph/1/42". */
export function parsed(hash: string): Address {
  const [page, session, tensor] = hash.replace(/^#\/?/, "").split("/");
  const number = (text: string | undefined) => (text && /^\d{1,16}$/.test(text) ? Number(text) : 0);
  const known = PAGES.find((each) => each === page) ?? "sessions";
  const code = page === "from" ? (session ?? "") : "";
  return { page: known, session: code ? 0 : number(session), tensor: number(tensor), code };
}

/** Write an address. */
export function addressOf(page: Address["page"], session = 0, tensor = 0): string {
  return `#/${page}${session ? `/${session}` : ""}${session && tensor ? `/${tensor}` : ""}`;
}

/** The present address. */
export const address = signal<Address>(parsed(location.hash));
addEventListener("hashchange", () => {
  address.value = parsed(location.hash);
});

/** Go to a page. */
export function go(to: string): void {
  location.hash = to;
}

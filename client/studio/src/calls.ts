// Calls: the server's methods over Connect, the login, and errors as sentences.
//
// The login's cookie is the browser's; its CSRF token is kept for this tab alone. Without one, no cookie is sent, so an
// expired login does not lock the page out of a server that needs none.
import { Code, ConnectError, createClient, type Interceptor } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { signal } from "@preact/signals";
import { AutogradService } from "#contract/service_pb";
import type { Told } from "./graph/model";

const CSRF_KEY = "gradwire.csrf";
const CALL_MS = 30_000;
const base = new URL(".", location.href).href.replace(/\/$/, "");

/** The gateway that served this page, for the SDK. */
export const gateway = location.origin;

/** Whether this tab has a login. */
export const loggedIn = signal(sessionStorage.getItem(CSRF_KEY) !== null);
/** Why the server refuses this tab's calls; empty if it does not. */
export const refusedLogin = signal("");

const withCsrf: Interceptor = (next) => async (request) => {
  const csrf = sessionStorage.getItem(CSRF_KEY);
  if (csrf) request.header.set("x-csrf-token", csrf);
  try {
    return await next(request);
  } catch (error) {
    const found = ConnectError.from(error);
    if (found.code === Code.Unauthenticated) refuseLogin(csrf, found.rawMessage);
    throw found;
  }
};

/** The server. */
export const server = createClient(
  AutogradService,
  createConnectTransport({
    baseUrl: base,
    useBinaryFormat: true,
    defaultTimeoutMs: CALL_MS,
    interceptors: [withCsrf],
    fetch: (input, init) => fetch(input, { ...init, credentials: credentials() }),
  }),
);

/** Log in with a token. Throws an Error with a sentence. */
export async function logIn(token: string): Promise<void> {
  const answer = await fetch(`${base}/login`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ token }),
  });
  const told = (await answer.json()) as { csrfToken?: string; message?: string };
  if (!answer.ok || !told.csrfToken) throw new Error(told.message ?? "the login was refused");
  sessionStorage.setItem(CSRF_KEY, told.csrfToken);
  refusedLogin.value = "";
  loggedIn.value = true;
}

/** End the login. */
export async function logOut(): Promise<void> {
  const csrf = sessionStorage.getItem(CSRF_KEY) ?? "";
  forget();
  refusedLogin.value = "";
  await fetch(`${base}/logout`, { method: "POST", headers: { "x-csrf-token": csrf } });
}

/** What a program handed over to this page; its code then works no more. Throws an Error with a sentence. */
export async function takeHandover(code: string): Promise<Handover> {
  const csrf = sessionStorage.getItem(CSRF_KEY);
  const answer = await fetch(`${base}/handovers/take`, {
    method: "POST",
    headers: { "content-type": "application/json", ...(csrf ? { "x-csrf-token": csrf } : {}) },
    body: JSON.stringify({ code }),
    credentials: credentials(),
  });
  const told = (await answer.json()) as Partial<Handover> & { message?: string };
  if (answer.status === 401) refuseLogin(csrf, told.message ?? "");
  if (!answer.ok || typeof told.session !== "string") throw new Error(told.message ?? "the link cannot be used");
  const { session, tensor = "", names = {}, lines = {}, calls = [], callOf = {} } = told;
  return { session, tensor: String(tensor), names, lines, calls, callOf };
}

/** POST JSON to an endpoint of the gateway. Throws an Error with a sentence. */
export async function post(path: string, body: object): Promise<Response> {
  const csrf = sessionStorage.getItem(CSRF_KEY);
  let answer: Response;
  try {
    answer = await fetch(`${base}/${path}`, {
      method: "POST",
      headers: { "content-type": "application/json", ...(csrf ? { "x-csrf-token": csrf } : {}) },
      body: JSON.stringify(body),
      credentials: credentials(),
    });
  } catch {
    throw new Error("The gateway does not answer.");
  }
  if (answer.ok) return answer;
  const told = ((await answer.json().catch(() => ({}))) as { message?: string }).message ?? "";
  if (answer.status === 401) refuseLogin(csrf, told);
  throw new Error(told || "the gateway refused the request");
}

/** A session, a tensor of it, and what only the program knows. */
export interface Handover extends Told {
  session: string;
  tensor: string;
}

/** The bytes of a pinned transfer. Throws an Error with a sentence. */
export async function download(session: string, transfer: string): Promise<Uint8Array> {
  const csrf = sessionStorage.getItem(CSRF_KEY);
  const headers = { "gradwire-session": session, ...(csrf ? { "x-csrf-token": csrf } : {}) };
  const answer = await fetch(`${base}/downloads/${encodeURIComponent(transfer)}`, {
    headers,
    credentials: credentials(),
  });
  if (!answer.ok)
    throw new Error(((await answer.json()) as { message?: string }).message ?? "the values cannot be read");
  return new Uint8Array(await answer.arrayBuffer());
}

/** What went wrong, in a sentence. */
export function sentence(error: unknown): string {
  if (error instanceof ConnectError) {
    return error.code === Code.Unknown && !error.details.length ? "The gateway does not answer." : error.rawMessage;
  }
  return error instanceof Error ? error.message : String(error);
}

/** Whether a call was refused because its caller has too few rights. */
export function lacksRights(error: unknown): boolean {
  return error instanceof ConnectError && (error.code === Code.PermissionDenied || error.code === Code.Unauthenticated);
}

/** The CSRF token of this tab's login, for the SDK. */
export function csrfToken(): string | undefined {
  return sessionStorage.getItem(CSRF_KEY) ?? undefined;
}

/** End a session while this page is left: the browser sends this after the page is gone. */
export function endOnLeaving(sessionId: string): void {
  const csrf = csrfToken();
  const headers = { "content-type": "application/json", ...(csrf ? { "x-csrf-token": csrf } : {}) };
  const request = { method: "POST", headers, body: JSON.stringify({ sessionId }), credentials: credentials() };
  // Its answer finds no page. A session that this does not end is ended by its lease.
  void fetch(`${base}/${AutogradService.typeName}/CloseSession`, { ...request, keepalive: true }).catch(() => {});
}

function credentials(): RequestCredentials {
  return sessionStorage.getItem(CSRF_KEY) === null ? "omit" : "same-origin";
}

/** Note that a call was refused that had this login. One that began before the present login says nothing of it. */
function refuseLogin(csrf: string | null, why: string): void {
  if (csrf !== sessionStorage.getItem(CSRF_KEY)) return;
  forget();
  refusedLogin.value ||= why; // the first reason is the one that helps
}

function forget(): void {
  sessionStorage.removeItem(CSRF_KEY);
  loggedIn.value = false;
}

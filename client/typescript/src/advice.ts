/** What to do about a server that cannot be reached, or that lets nobody in: sentences for the first call's error. */

import { connect } from "node:tls";
import { Code, type GradwireError, Reason, withAdvice } from "./errors.js";
import type { Explained } from "./transport.js";

const PROBE_MS = 700;
const HOST_AND_PORT = /^(?<host>\[[\da-f:.%\w]+\]|[^:[\]/\s]+):(?<port>\d{1,5})$/i;
const SCHEMES = /^(unix|unix-abstract|vsock|dns|ipv4|ipv6):/;

const NO_SERVER = "No server listens there: start `gradwire serve`, or check the host and the port.";
const NO_HOST = "The host's name cannot be resolved: check its spelling, or give its IP address.";
const SPEAKS_TLS =
  "The server seems to use TLS: pass the PEM file of the authority that signed its certificate as `ca`, " +
  "or `tls: true` if it is a public authority.";
const NO_TLS = "The server seems not to use TLS: remove `ca`, `tls` and `certificate`.";
const DISTRUSTED =
  "The server's certificate is not trusted: pass the PEM file of the authority that signed it as `ca`, " +
  "and connect to a name that the certificate contains.";
const WANTS_CERTIFICATE = "The server requires a client's certificate: pass `certificate`.";

/** Why an address cannot be one; empty if it can. gRPC would take port 443 where there is none. */
export function mistakeOf(address: string): string {
  const port = Number(HOST_AND_PORT.exec(address)?.groups?.["port"] ?? 0);
  if (SCHEMES.test(address) || (port > 0 && port < 65_536)) return "";
  return `the address ${JSON.stringify(address)} has no valid port: give HOST:PORT, as localhost:50051, or unix:/path`;
}

/** The error of a first call with advice, where the cause is known. */
export async function explained(error: GradwireError, address: string, encrypts: boolean): Promise<Explained> {
  if (error.reason !== Reason.UNSPECIFIED || error.code !== Code.UNAVAILABLE) return { error, final: false };
  const told = error.message;
  // gRPC's text has the cause in the middle.
  const cause = /Last error: (?:Error:? )?(.*?)\s*\.?\s*Resolution note:/s.exec(told)?.[1] ?? told;
  const made = (advice: string, final: boolean): Explained => {
    return { error: withAdvice(error, `no connection to ${address}: ${cause}`, advice), final };
  };
  if (/resolution failed|ENOTFOUND|EAI_AGAIN/i.test(told)) return made(NO_HOST, false);
  if (/ECONNREFUSED|ENOENT/.test(told)) return made(NO_SERVER, false);
  if (/certificate required|handshake failure/i.test(told)) return made(WANTS_CERTIFICATE, true);
  if (/certificate|altnames|self.signed/i.test(told)) return made(DISTRUSTED, true);
  if (encrypts && /wrong version number|packet length too long/i.test(told)) return made(NO_TLS, true);
  if (!encrypts && /connection|connect|reset/i.test(told) && (await speaksTls(address))) return made(SPEAKS_TLS, true);
  return made("", false);
}

/** Whether the port answers a TLS handshake. */
function speaksTls(address: string): Promise<boolean> {
  const { host, port } = HOST_AND_PORT.exec(address)?.groups ?? {};
  if (!host) return Promise.resolve(false);
  return new Promise((resolve) => {
    // A probe: it sends no data and trusts no answer.
    const socket = connect({
      host: host.replace(/[[\]]/g, ""),
      port: Number(port),
      rejectUnauthorized: false,
      ALPNProtocols: ["h2"],
    });
    const end = (answer: boolean): void => {
      socket.destroy();
      resolve(answer);
    };
    socket.setTimeout(PROBE_MS, () => end(false));
    socket.once("secureConnect", () => end(true));
    // An alert proves that the server speaks TLS.
    socket.once("error", (error: NodeJS.ErrnoException) => end(/alert/i.test(error.code ?? error.message)));
    socket.once("close", () => end(false));
  });
}

/** What tests share: a live server and proxies that cut, as `make test-sdks` gives them. */

import { connect as dial } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { type ConnectOptions, connect, type Session } from "../src/node.js";

/** The address of a live server; without one, tests that need it are skipped. */
export const ADDRESS = process.env["GRADWIRE_ADDRESS"] ?? "";
export const NO_SERVER = ADDRESS ? false : "needs a server: set GRADWIRE_ADDRESS, or run make test-sdks";

const CONTROL = process.env["GRADWIRE_CUTTING"] ?? "";
export const NO_PROXY = CONTROL ? NO_SERVER : "needs a proxy that cuts connections: run make test-sdks";

/** The package's folder. Compiled tests lie in dist/test. */
export const PACKAGE = join(import.meta.dirname, "..", "..");

/** The folder tests/conformance. */
export const CONFORMANCE = process.env["GRADWIRE_CONFORMANCE"] ?? join(PACKAGE, "..", "..", "tests", "conformance");

/** Run a test with a session of its own. */
export function withSession(f: (session: Session) => Promise<void>, options: ConnectOptions = {}): () => Promise<void> {
  return async () => {
    const session = await connect(ADDRESS, options);
    try {
      await f(session);
    } finally {
      await session.close();
    }
  };
}

/** A proxy that cuts each connection after a random number of bytes. A local stream would pass it by. */
export interface Cutting {
  readonly address: string;
  /** End the proxy; tells how often it cut. */
  end(): Promise<number>;
}

const RESTARTING = process.env["GRADWIRE_RESTARTING"] ?? "";
export const NO_RESTARTS = RESTARTING ? false : "needs a server that restarts: run make test-sdks";

/** A server of the test's own. */
export interface Restarting {
  readonly address: string;
  /** Kill it, and start it again on its state directory. */
  restart(): Promise<void>;
  /** End it. */
  end(): void;
}

/** Ask for a server that restarts. */
export async function restarting(): Promise<Restarting> {
  const [host, port] = RESTARTING.split(":");
  const control = dial({ host, port: Number(port) });
  const lines = createInterface({ input: control })[Symbol.asyncIterator]();
  const next = async (): Promise<string> => (await lines.next()).value;
  const address = await next();
  const restart = async (): Promise<void> => {
    control.write("restart\n");
    await next();
  };
  return { address, restart, end: () => control.destroy() };
}

/** Ask for a proxy before the live server. */
export function cutting(least: number, most: number): Promise<Cutting> {
  const [host, port] = CONTROL.split(":");
  return new Promise((resolve, reject) => {
    const control = dial({ host, port: Number(port) }, () => control.write(`${least} ${most}\n`));
    const lines: string[] = [];
    let pending = "";
    let told: (line: string) => void = (address) => resolve({ address, end });
    const end = (): Promise<number> => {
      return new Promise((done) => {
        told = (line) => {
          control.destroy();
          done(Number(line));
        };
        control.end();
      });
    };
    control.setEncoding("utf8");
    control.on("error", reject);
    control.on("data", (text: string) => {
      lines.push(...(pending + text).split("\n"));
      pending = lines.pop() ?? "";
      for (const line of lines.splice(0)) told(line);
    });
  });
}

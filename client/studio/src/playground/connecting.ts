// Connecting: the playground's session at the gateway of this page, with the login of this tab.
import { connect } from "#sdk/web";
import { csrfToken, gateway, server } from "../calls";
import { Catalogue } from "./catalogue";
import type { Connect } from "./workspace";

const LEASE_SECONDS = 180; // a hidden tab's timers run once a minute
const PATIENCE_SECONDS = 5;

/** Open a session, and read the list of ops. */
export const connectHere: Connect = async () => {
  const [{ ops }, session] = await Promise.all([
    server.listOps({}),
    connect(gateway, {
      client: "gradwire-studio playground",
      lease: LEASE_SECONDS,
      patience: PATIENCE_SECONDS,
      csrfToken: csrfToken(),
    }),
  ]);
  return { session, catalogue: new Catalogue(ops) };
};

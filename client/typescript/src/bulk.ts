/** Large values: uploads and downloads in chunks, which continue after a broken call where it broke. */

import { asError, type GradwireError } from "./errors.js";
import { Backoff, type Channel, type Servers } from "./transport.js";

const CHUNK_BYTES = 256 * 1024; // where the server names no size
const LEAST_CHUNK = 4096; // to which chunks shrink while calls break before one has arrived

/** @internal Send values, and return the transfer's id. `name` is the same in all tries. */
export async function upload(
  servers: Servers,
  sessionId: string,
  name: string,
  data: Uint8Array,
  chunkBytes: number,
): Promise<string> {
  const start = { sessionId, totalBytes: BigInt(data.length), requestId: name };
  const most = chunkBytes || CHUNK_BYTES;
  let chunk = most;
  let asked = false;
  let sent = 0;
  let transferId = "";
  await resumed(
    servers,
    async (channel, progress) => {
      // The server says how many bytes it has. The first call has all of them.
      if (asked) {
        const before = sent;
        sent = await received(channel);
        // A chunk arrives as a whole or not at all.
        chunk =
          sent > before ? Math.min(2 * chunk, most) : Math.max(Math.floor(chunk / 2), Math.min(LEAST_CHUNK, most));
        if (sent > before) progress();
      }
      asked = true;
      const state = await channel.upload({ ...start, transferId, offset: BigInt(sent) }, data.subarray(sent), chunk);
      ({ transferId } = state);
      sent = Number(state.receivedBytes);
      return sent === data.length;
    },
    () => {},
  );
  return transferId;

  async function received(channel: Channel): Promise<number> {
    const state = await channel.upload(start, new Uint8Array(), chunk);
    ({ transferId } = state);
    return Number(state.receivedBytes);
  }
}

/** @internal Fetch a transfer's bytes. */
export async function download(
  servers: Servers,
  sessionId: string,
  transferId: string,
  total: number,
): Promise<Uint8Array> {
  const data = new Uint8Array(total);
  let at = 0;
  await resumed(
    servers,
    async (channel, progress) => {
      await channel.download({ sessionId, transferId, offset: BigInt(at) }, total, (offset, part) => {
        data.set(part, offset);
        at = offset + part.length;
        progress();
      });
      return at >= total;
    },
    () => at >= total,
  );
  return data;
}

/**
 * Repeat a part of a transfer until it says that all is done. Gives up after the session's patience without progress.
 * `broke` is told of each broken call; it returns true if nothing is left to do.
 */
async function resumed(
  servers: Servers,
  part: (channel: Channel, progress: () => void) => Promise<boolean>,
  broke: () => boolean | void,
): Promise<void> {
  const backoff = new Backoff(servers.patienceMs);
  for (;;) {
    const { channel } = servers;
    let error: GradwireError | undefined;
    try {
      if (await part(channel, () => backoff.reset())) return;
    } catch (thrown) {
      error = asError(thrown);
      if (broke() === true) return;
      if (!error.mayRetry || backoff.over) throw error;
      servers.leave(channel, error);
    }
    await backoff.wait();
  }
}

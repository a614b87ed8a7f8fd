// The words about a cluster's node.
import { bytesText, timeText } from "../format";

const SILENT_MS = 3000; // after which a node gets no sessions

/** What its sessions hold, and may hold. */
export function heldText(node: { bytes: bigint; maxBytes: bigint }): string {
  const held = bytesText(Number(node.bytes));
  return node.maxBytes ? `${held} of ${bytesText(Number(node.maxBytes))}` : held;
}

/** What keeps a node from new sessions. */
export function stateText(node: { draining: boolean; silentMs: bigint }): string {
  if (node.draining) return "draining";
  return Number(node.silentMs) < SILENT_MS ? "ready" : `silent for ${timeText(Number(node.silentMs) / 1000)}`;
}

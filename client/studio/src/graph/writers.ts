// Writers: this page as a writer of sessions: the ids and the numbers of commands that it takes.
//
// A session has few writers, and frees none of them. So a page that is left hands its writers on: it puts them into the
// tab's storage, and the next page of the tab takes them out. While a page lives, the storage has none. So a duplicate
// of the tab, whose storage is a copy, becomes another writer.

/** A writer: its next id, 0 where no id is left, and the number of its next command. */
export interface Writer {
  writer: number;
  next: bigint;
  seq: bigint;
}

const KEY = "gradwire.writers";

export class Writers {
  private readonly held = new Map<string, Promise<Writer>>();
  private readonly known = new Map<string, Writer>();
  private readonly queues = new Map<string, Promise<unknown>>();
  /** Writers with a batch under way, whose next number is not known yet. */
  private readonly busy = new Set<Writer>();

  /** `open` makes this page a writer of a session. `storage` is the tab's. */
  constructor(
    private readonly open: (session: string) => Promise<{ writer: number; firstId: bigint }>,
    private readonly storage: () => Pick<Storage, "getItem" | "setItem" | "removeItem">,
  ) {
    this.take();
  }

  /** This page's writer of a session. Throws the server's refusal. */
  of(session: string): Promise<Writer> {
    const held = this.held.get(session);
    if (held) return held;
    const opening = this.open(session).then(
      ({ writer, firstId }) => {
        const made = { writer, next: firstId, seq: 1n };
        if (this.held.get(session) === opening) this.known.set(session, made);
        return made;
      },
      (error: unknown) => {
        this.forget(session, opening);
        throw error;
      },
    );
    this.held.set(session, opening);
    return opening;
  }

  /** Run a batch of some commands after the session's earlier ones: the numbers of commands have no gaps. */
  batch<Answer>(session: string, commands: number, run: (mine: Writer) => Promise<Answer>): Promise<Answer> {
    const turn = async () => {
      const holding = this.of(session);
      const mine = await holding;
      this.busy.add(mine);
      try {
        const answer = await run(mine);
        mine.seq += BigInt(commands);
        return answer;
      } catch (error) {
        this.forget(session, holding); // whether the commands were applied is not known
        throw error;
      } finally {
        this.busy.delete(mine);
      }
    };
    const before = this.queues.get(session) ?? Promise.resolve();
    const answered = before.then(turn);
    this.queues.set(
      session,
      answered.catch(() => {}),
    );
    return answered;
  }

  /** Hand the writers on to the tab's next page, as this one is left. */
  leave(): void {
    const left = [...this.known].filter(([, writer]) => !this.busy.has(writer));
    const stored = left.map(([session, { writer, next, seq }]) => [session, writer, String(next), String(seq)]);
    this.held.clear();
    this.known.clear();
    try {
      if (stored.length) this.storage().setItem(KEY, JSON.stringify(stored));
    } catch {
      // The storage is full: the next page becomes another writer.
    }
  }

  /** Take over what the tab's page before this one has left. */
  take(): void {
    try {
      const stored = this.storage().getItem(KEY);
      this.storage().removeItem(KEY);
      for (const [session, writer, next, seq] of JSON.parse(stored ?? "[]") as [string, number, string, string][]) {
        const taken = { writer, next: BigInt(next), seq: BigInt(seq) };
        this.known.set(session, taken);
        this.held.set(session, Promise.resolve(taken));
      }
    } catch {
      // Without the storage the page becomes another writer.
    }
  }

  private forget(session: string, holding: Promise<Writer>): void {
    if (this.held.get(session) !== holding) return;
    this.held.delete(session);
    this.known.delete(session);
  }
}

// Writers: a tab takes few of them, and sessions do not wait for each other.
import { expect, test } from "vitest";
import { Writers } from "../../src/graph/writers";

class Tab {
  opened = 0;
  private readonly stored = new Map<string, string>();

  /** Another page of this tab, or of a duplicate of it. */
  page(copied = false): Writers {
    const stored = copied ? new Map(this.stored) : this.stored;
    const open = async () => ({ writer: ++this.opened, firstId: BigInt(this.opened) << 32n });
    const storage = {
      getItem: (key: string) => stored.get(key) ?? null,
      setItem: (key: string, value: string) => void stored.set(key, value),
      removeItem: (key: string) => void stored.delete(key),
    };
    return new Writers(open, () => storage);
  }
}

test("a page that is loaded again goes on with the tab's writers", async () => {
  const tab = new Tab();
  const first = tab.page();
  (await first.of("a")).next += 7n;
  await first.batch("a", 3, async () => {});
  await first.of("b");
  first.leave();
  const second = tab.page();
  expect(await second.of("a")).toEqual({ writer: 1, next: (1n << 32n) + 7n, seq: 4n });
  expect((await second.of("b")).writer).toBe(2);
  expect(tab.opened).toBe(2);
});

test("a duplicate of a tab becomes another writer", async () => {
  const tab = new Tab();
  await tab.page().of("a");
  expect((await tab.page(true).of("a")).writer).toBe(2);
});

test("a page that is shown again takes its writers back, unless another page has them", async () => {
  const tab = new Tab();
  const first = tab.page();
  await first.of("a");
  first.leave();
  const second = tab.page();
  first.take();
  expect((await first.of("a")).writer).toBe(2);
  second.leave();
  first.leave();
  const third = tab.page();
  expect((await third.of("a")).writer).toBe(2);
});

test("a writer whose last batch has no answer is not used again", async () => {
  const tab = new Tab();
  const first = tab.page();
  await expect(first.batch("a", 1, () => Promise.reject(new Error("broken")))).rejects.toThrow("broken");
  expect((await first.of("a")).writer).toBe(2);
  let began = () => {};
  const started = new Promise<void>((resolve) => {
    began = resolve;
  });
  void first.batch("a", 1, () => {
    began();
    return new Promise(() => {});
  });
  await started;
  first.leave();
  expect((await tab.page().of("a")).writer).toBe(3);
});

test("batches of a session have an order, and those of another do not wait", async () => {
  const writers = new Tab().page();
  const order: string[] = [];
  let answer = () => {};
  const slow = writers.batch("a", 2, () => new Promise<void>((resolve) => (answer = resolve)));
  const next = writers.batch("a", 1, async ({ seq }) => void order.push(`a ${seq}`));
  await writers.batch("b", 1, async ({ seq }) => void order.push(`b ${seq}`));
  answer();
  await Promise.all([slow, next]);
  expect(order).toEqual(["b 1", "a 3"]);
});

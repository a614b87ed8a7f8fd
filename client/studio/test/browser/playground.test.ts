// The playground in a browser, with a live server: lessons, errors under their lines, links, bounds and accessibility.
import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { LESSONS } from "../../src/playground/lessons";
import { faults, shot } from "./pages";
import { logIn, Server, Watched } from "./world";

const MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script>";

let server: Server;
let browser: Watched;
let page: Page | undefined;

beforeAll(async () => {
  [server, browser] = await Promise.all([Server.start(), Watched.start()]);
}, 90_000);
afterAll(async () => {
  await browser?.close();
  await server?.close();
});
afterEach(async () => {
  await page?.context().close();
  page = undefined;
});

/** The playground of a user who has logged in. */
async function opened(path = "", options: object = {}): Promise<Page> {
  page = await browser.page(`${server.url}#/playground`, options);
  await logIn(page, server.alice);
  if (path) await page.evaluate((hash) => location.replace(hash), `#/playground/${path}`);
  return page;
}

const code = (now: Page) => now.locator(".cm-content");
const ran = (now: Page) => now.getByText(/^Ran without an error/).waitFor();

/** Replace the code, as typed text. */
async function write(now: Page, text: string): Promise<void> {
  await code(now).click();
  await now.keyboard.press("Control+A");
  await now.keyboard.insertText(text);
}

describe("lessons", () => {
  test("gradients accumulate to 6, 12 and 18, and the task is checked by a run", async () => {
    const now = await opened("lesson/accumulation");
    await ran(now);
    expect(await now.locator(".output pre").textContent()).toBe("tensor(6.)\ntensor(12.)\ntensor(18.)");
    expect(await now.locator(".note.printed").allTextContents()).toEqual(["tensor(6.)", "tensor(12.)", "tensor(18.)"]);
    await now.getByRole("button", { name: "Check" }).click();
    await now.getByText("Not yet").waitFor();
    const answer =
      "x = torch.tensor(3.0, requires_grad=True)\nfor i in range(3):\n    x.grad = None\n    (x ** 2).backward()\n    print(x.grad)";
    await write(now, answer);
    await now.getByText("tensor(6.)\ntensor(6.)\ntensor(6.)").waitFor();
    await now.getByRole("button", { name: "Check" }).click();
    await now.getByText("Right.").waitFor();
    expect(await faults(now)).toEqual([]);
  });

  test("the error of a change in place is under its line, and the variables say why a gradient is None", async () => {
    const now = await opened("lesson/in-place");
    const error = now.locator(".note.error");
    await error.waitFor();
    expect(await error.textContent()).toContain(
      "RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation",
    );
    const line = now.locator(".cm-line.error-line");
    expect(await line.textContent()).toBe("loss.backward()");
    expect((await error.boundingBox())?.y).toBeGreaterThan((await line.boundingBox())?.y ?? Infinity);
    expect(await now.getByRole("status").filter({ hasText: "Line 5: RuntimeError" }).count()).toBe(1);
    await now.getByRole("row", { name: /^x / }).getByRole("button").click();
    await now.locator(".chosen").getByText("Its gradient is None: no backward() has reached it").waitFor();
  });

  test("each lesson runs to its end, and only that of changes in place has an error", async () => {
    const now = await opened();
    await ran(now);
    for (const { name, title } of LESSONS) {
      await now.getByRole("navigation", { name: "Lessons" }).getByRole("link", { name: title }).click();
      await now.getByRole("heading", { name: title }).waitFor();
      if (name === "in-place") await now.locator(".note.error").waitFor();
      else {
        await ran(now);
        expect(await now.locator(".note.error").count(), name).toBe(0);
      }
    }
    await now.locator("svg .path").waitFor();
    await now.locator("canvas[role=application]").waitFor();
    await now.getByText("Placing the nodes").waitFor({ state: "detached" });
    expect(await faults(now)).toEqual([]);
    await shot(now, "playground");
  }, 120_000);
});

describe("code", () => {
  test("values change while code is typed, and an unknown name gets a suggestion", async () => {
    const now = await opened();
    await ran(now);
    await write(now, "x = torch.tensor([1.0, 2.0])\ny = x * 3\n");
    await now.getByText("y = tensor([3., 6.])").waitFor();
    await write(now, "x = torch.tensor([1.0, 2.0])\ny = torch.sigmoyd(x)\n");
    await now.locator(".note.error").getByText("Did you mean: 'sigmoid'?").waitFor();
    expect(await now.locator(".error-line").textContent()).toBe("y = torch.sigmoyd(x)");
  });

  test("markup in strings, names and errors is text, and no JavaScript is evaluated", async () => {
    const now = await opened();
    await ran(now);
    const text = MARKUP.replaceAll("'", "");
    await write(now, `print('${text}')\nx = '${text}'\nprint(constructor)`);
    await now.locator(".note.error").getByText("name 'constructor' is not defined").waitFor();
    expect(await now.locator(".output pre").textContent()).toBe(text);
    await write(now, `torch.tensor([1.0]).__proto__`);
    await now.locator(".note.error").getByText("no attribute '__proto__'").waitFor();
    await write(now, "torch.constructor.constructor('alert(1)')()");
    await now.locator(".note.error").getByText("has no attribute 'constructor'").waitFor();
    expect(await now.locator("#studio img, #studio script").count()).toBe(0);
    expect(browser.problems).toEqual([]);
  });

  test("a new run ends an endless one, and an endless one ends by itself", async () => {
    const now = await opened();
    await ran(now);
    await write(now, "i = 0\nwhile True:\n    i += 1\n");
    await now.getByText("Running …").waitFor();
    await write(now, "print('later')");
    await now.locator(".note.printed").getByText("later").waitFor();
    await write(now, "while True:\n    pass\n");
    await now.locator(".note.error").getByText("stopped: more than 100,000 steps").waitFor();
  });

  test("each run frees the tensors of the run before, and leaving the page ends the session", async () => {
    const open = async () => {
      const { sessions = [] } = (await server.call("ListSessions", {}, server.admin)) as {
        sessions?: { number: string; client: string; tensors: string }[];
      };
      return sessions.filter((each) => each.client === "gradwire-studio playground");
    };
    // The sessions of pages that were left before may be ending still.
    const before = (await open()).map((each) => each.number);
    const own = async () => (await open()).filter((each) => !before.includes(each.number));
    const now = await opened();
    await ran(now);
    for (let i = 0; i < 4; i++) {
      await write(now, `x = torch.ones(${i + 2}, requires_grad=True)\ny = [x * k for k in range(20)]\n`);
      await now
        .getByText(
          `x = tensor([${Array(i + 2)
            .fill("1.")
            .join(", ")}], requires_grad=True)`,
        )
        .waitFor();
      await ran(now);
    }
    await expect.poll(async () => (await own()).length).toBe(1);
    await expect.poll(async () => Number((await own())[0]?.tensors ?? 0)).toBeLessThan(45);
    await now.getByRole("link", { name: "Sessions" }).click();
    await expect.poll(async () => (await own()).length).toBe(0);
    await now.getByRole("link", { name: "Playground" }).click();
    await ran(now);
    await now.close();
    await expect.poll(async () => (await own()).length).toBe(0);
  });
});

describe("links", () => {
  test("a link has the code in its fragment, which runs after a click only", async () => {
    const now = await opened();
    await ran(now);
    await write(now, `print("${MARKUP.replaceAll('"', "")}", 6 * 7)`);
    await now.locator(".note.printed").getByText("42").waitFor();
    await now.getByRole("button", { name: "Make a link" }).click();
    const link = await now.getByLabel("Link", { exact: true }).inputValue();
    expect(link).toContain("#/playground/code/");
    const asked = browser.requests.length;
    await now.evaluate((hash) => location.replace(hash), new URL(link).hash);
    await now.getByText("This code comes from a link").waitFor();
    expect(await code(now).textContent()).toContain("6 * 7");
    expect(await now.locator(".note").count()).toBe(0);
    await now.getByRole("button", { name: "Run" }).click();
    await now.locator(".note.printed").getByText("42").waitFor();
    expect(browser.requests.slice(asked).filter((each) => each.includes("playground/code"))).toEqual([]);
  });

  test("a damaged link is told in a sentence", async () => {
    const now = await opened("code/AAAA");
    await now.getByText("The code of this link cannot be read").waitFor();
  });
});

test("on a dark phone it is one column, fits and is accessible", async () => {
  const now = await opened("lesson/leaf", { viewport: { width: 390, height: 844 }, colorScheme: "dark" });
  await ran(now);
  expect(await now.evaluate(() => document.documentElement.scrollWidth - innerWidth)).toBeLessThanOrEqual(0);
  expect(await faults(now)).toEqual([]);
});

test("nothing but the gateway is asked for", () => {
  expect(browser.requests.filter((each) => !each.startsWith(server.url))).toEqual([]);
  expect(browser.problems).toEqual([]);
});

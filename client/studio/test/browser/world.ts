// What the browser tests share: a server with a gateway and two tokens, programs in Python beside it, and a browser.
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { type Browser, chromium, type Page } from "playwright-core";

const ROOT = fileURLToPath(new URL("../../../..", import.meta.url));
const PYTHON = process.env.STUDIO_PYTHON ?? "python3";
const START_MS = 60_000;
// A browser that asks for nothing but the page.
const ARGUMENTS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** The first match in a process's lines. Rejects if it ends first. */
async function heard(process: ChildProcess, from: "stdout" | "stderr", pattern: RegExp): Promise<string> {
  const stream = process[from];
  if (!stream) throw new Error("no stream");
  const lines: string[] = [];
  const timer = setTimeout(() => process.kill(), START_MS);
  for await (const line of createInterface({ input: stream })) {
    lines.push(line);
    const match = pattern.exec(line)?.[1];
    if (match) {
      clearTimeout(timer);
      stream.resume();
      return match;
    }
  }
  throw new Error(`the process ended: ${lines.slice(-10).join("\n")}`);
}

async function ended(process: ChildProcess): Promise<void> {
  if (process.exitCode !== null || process.signalCode !== null) return;
  const over = new Promise((resolve) => process.once("exit", resolve));
  process.kill("SIGTERM");
  await over;
}

/** A server with its gateway; `restart` keeps both ports. */
export class Server {
  private process: ChildProcess | null = null;
  private readonly folder = mkdtempSync(join(tmpdir(), "studio-"));
  private port = "0";
  private web = "0";
  readonly admin: string;
  readonly alice: string;

  private constructor() {
    this.admin = this.token("root", "--scope", "admin");
    this.alice = this.token("alice");
  }

  static async start(): Promise<Server> {
    const made = new Server();
    await made.run();
    return made;
  }

  get url(): string {
    return `http://127.0.0.1:${this.web}/`;
  }

  async restart(): Promise<void> {
    if (this.process) await ended(this.process);
    await this.run();
  }

  async close(): Promise<void> {
    if (this.process) await ended(this.process);
    rmSync(this.folder, { recursive: true });
  }

  /** A program in Python with a session of alice's. Resolves with the session's id, which it prints first. */
  async program(code: string): Promise<Program> {
    const environment = {
      ...process.env,
      STUDIO: this.url,
      GRADWIRE_ADDRESS: `127.0.0.1:${this.port}`,
      GRADWIRE_TOKEN: this.alice,
    };
    const started = spawn(PYTHON, ["-u", "-c", `${PRELUDE}\n${code}`], { cwd: ROOT, env: environment });
    let said = "";
    started.stderr.on("data", (part: Buffer) => {
      said += part.toString();
    });
    try {
      return new Program(started, await heard(started, "stdout", /^session (\S+)$/));
    } catch (error) {
      throw new Error(`${String(error)}\n${said.slice(-2000)}`);
    }
  }

  /** A gateway beside the server, whose page of trainings has the event files of a folder. */
  async training(folder: string): Promise<Gateway> {
    const options = [`127.0.0.1:${this.port}`, "--web=0", `--logdir=${folder}`];
    const started = spawn(PYTHON, ["-m", "gradwire", "studio", ...options], { cwd: ROOT });
    started.stderr.resume();
    return new Gateway(started, `${await heard(started, "stdout", /(http:\/\/127\.0\.0\.1:\d+)/)}/`);
  }

  /** A unary call as JSON. */
  async call(method: string, body: object, token = this.alice): Promise<Record<string, unknown>> {
    const headers = { "content-type": "application/json", authorization: `Bearer ${token}` };
    const answer = await fetch(`${this.url}gradwire.v1.AutogradService/${method}`, {
      method: "POST",
      headers,
      body: JSON.stringify(body),
    });
    if (!answer.ok) throw new Error(await answer.text());
    return (await answer.json()) as Record<string, unknown>;
  }

  /** Delete a principal's tokens. The server takes over the changed file by itself. */
  revoke(name: string): void {
    const path = join(this.folder, "tokens");
    const lines = readFileSync(path, "utf8").split("\n");
    writeFileSync(path, lines.filter((line) => !line.split(/\s+/).includes(name)).join("\n"));
  }

  /** Make a token. */
  token(name: string, ...more: string[]): string {
    const told = execFileSync(
      PYTHON,
      ["-m", "gradwire", "token", name, ...more, "--file", join(this.folder, "tokens")],
      { cwd: ROOT },
    );
    return /gradwire_\S+/.exec(told.toString())?.[0] ?? "";
  }

  private async run(): Promise<void> {
    const options = [
      "--host=127.0.0.1",
      `--port=${this.port}`,
      `--web=${this.web}`,
      "--workers=1",
      `--token-file=${join(this.folder, "tokens")}`,
    ];
    this.process = spawn(PYTHON, ["-m", "gradwire_server", ...options, "--max-principal-sessions=3000"], { cwd: ROOT });
    const listening = heard(this.process, "stdout", /127\.0\.0\.1:(\d+)/);
    this.web = await heard(this.process, "stderr", /web gateway address=http:\/\/127\.0\.0\.1:(\d+)/);
    this.port = await listening;
  }
}

const PRELUDE = `
import sys, time
import gradwire as torch
def ready():
    print("session", torch.current_session().session_id)
`;

/** A gateway that was started beside a server. */
export class Gateway {
  constructor(
    private readonly process: ChildProcess,
    readonly url: string,
  ) {}

  async close(): Promise<void> {
    await ended(this.process);
  }
}

/** A program that waits for a line on stdin, or goes on. */
export class Program {
  constructor(
    private readonly process: ChildProcess,
    readonly session: string,
  ) {}

  /** Send a line and wait for the next line of output that matches. */
  async ask(line: string, answer: RegExp): Promise<string> {
    this.process.stdin?.write(`${line}\n`);
    return heard(this.process, "stdout", answer);
  }

  async close(): Promise<void> {
    await ended(this.process);
  }
}

/** A browser, whose pages tell what they ask for and what goes wrong in them. */
export class Watched {
  readonly requests: string[] = [];
  readonly problems: string[] = [];

  private constructor(private readonly browser: Browser) {}

  static async start(): Promise<Watched> {
    const executablePath = process.env.STUDIO_CHROMIUM ?? "/usr/bin/chromium";
    return new Watched(await chromium.launch({ executablePath, args: ARGUMENTS }));
  }

  /** A page in a context of its own. */
  async page(url: string, options: object = {}): Promise<Page> {
    const context = await this.browser.newContext({ viewport: { width: 1280, height: 860 }, ...options });
    const page = await context.newPage();
    page.setDefaultTimeout(20_000);
    page.on("request", (request) => this.requests.push(request.url()));
    page.on("pageerror", (error) => this.problems.push(error.message));
    page.on("console", (message) => {
      // A refused call is told by the browser, too; everything else is a fault.
      if (message.type() === "error" && !message.text().includes("Failed to load resource"))
        this.problems.push(message.text());
    });
    await page.goto(url);
    return page;
  }

  async close(): Promise<void> {
    await this.browser.close();
  }
}

/** Log in on a page. */
export async function logIn(page: Page, token: string, timeout = 20_000): Promise<void> {
  const open = page.getByRole("button", { name: "Log in" });
  if (!(await page.getByLabel("Token").isVisible())) await open.click();
  await page.getByLabel("Token").fill(token);
  await page.locator("form.login button").click();
  await page.getByRole("button", { name: "Log out" }).waitFor({ timeout });
}

/** Open a session by its id on the page of graphs. */
export async function openGraph(page: Page, session: string): Promise<void> {
  await page.getByRole("link", { name: "Graph" }).click();
  await page.getByLabel("Session id").fill(session);
  await page.getByRole("button", { name: "Open", exact: true }).click();
}

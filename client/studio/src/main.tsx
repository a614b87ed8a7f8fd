// Studio: the shell around the pages, and the login.
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { address, addressOf } from "./address";
import { ArrivalPage } from "./arrival";
import { loggedIn, logIn, logOut, refusedLogin, sentence } from "./calls";
import { GraphPage } from "./graph/page";
import { writers } from "./graph/reading";
import { opened } from "./opened";
import type { PlaygroundPage } from "./playground/playground";
import { SessionPage } from "./session/page";
import { SessionsPage } from "./sessions/page";
import { TrainingPage } from "./training/page";

const TITLES = {
  sessions: "Sessions",
  graph: "Graph",
  session: "Session",
  training: "Training",
  playground: "Playground",
} as const;

function Studio() {
  const { page, session } = address.value;
  const known = session || opened.value[0]?.number || 0;
  document.title = `${page === "from" ? "Graph" : TITLES[page]} – gradwire Studio`;
  return (
    <>
      <button type="button" class="skip" onClick={() => document.getElementById("main")?.focus()}>
        Skip to the content
      </button>
      <header>
        <span class="brand">gradwire Studio</span>
        <nav aria-label="Pages">
          {(Object.keys(TITLES) as (keyof typeof TITLES)[]).map((each) => (
            <a
              key={each}
              href={addressOf(each, each === "sessions" || each === "training" || each === "playground" ? 0 : known)}
              aria-current={each === page ? "page" : undefined}
            >
              {TITLES[each]}
            </a>
          ))}
        </nav>
        <Login />
      </header>
      <main id="main" tabIndex={-1}>
        {page === "sessions" && <SessionsPage />}
        {page === "graph" && <GraphPage />}
        {page === "from" && <ArrivalPage />}
        {page === "session" && <SessionPage />}
        {page === "training" && <TrainingPage />}
        {page === "playground" && <Playground />}
      </main>
    </>
  );
}

/** The playground's page, loaded when it is first shown. */
function Playground() {
  const [Page, setPage] = useState<typeof PlaygroundPage | null>(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    import("./playground/playground").then(
      (module) => setPage(() => module.PlaygroundPage),
      (error: unknown) => setProblem(sentence(error)),
    );
  }, []);
  if (Page) return <Page />;
  return <p role="status">{problem || "Loading the playground …"}</p>;
}

function Login() {
  const [open, setOpen] = useState(false);
  const [problem, setProblem] = useState("");
  const needed = refusedLogin.value !== "";
  if (loggedIn.value) {
    return (
      <button type="button" onClick={() => void logOut()}>
        Log out
      </button>
    );
  }
  if (!open && !needed) {
    return (
      <button type="button" onClick={() => setOpen(true)}>
        Log in
      </button>
    );
  }
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    const field = form.elements.namedItem("token") as HTMLInputElement;
    try {
      await logIn(field.value.trim());
      field.value = "";
      setOpen(false);
      setProblem("");
    } catch (error) {
      setProblem(sentence(error));
    }
  };
  return (
    <form class="login" onSubmit={submit}>
      <label>
        Token <input name="token" type="password" autocomplete="off" required />
      </label>
      <button type="submit">Log in</button>
      {(problem || needed) && (
        <p class="problem" role="alert">
          {problem || refusedLogin.value}
        </p>
      )}
    </form>
  );
}

addEventListener("pagehide", () => writers.leave());
addEventListener("pageshow", ({ persisted }) => persisted && writers.take()); // as it was, from the browser's cache

const place = document.getElementById("studio");
if (place) {
  place.replaceChildren();
  render(<Studio />, place);
}

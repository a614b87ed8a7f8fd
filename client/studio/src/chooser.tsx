// Chooser: which opened session a page shows, and how another is opened.
import { useState } from "preact/hooks";
import { address, addressOf, go } from "./address";
import { sentence } from "./calls";
import { makeExample } from "./example";
import { forget, type Opened, openById, opened } from "./opened";

/** The session of the address, or none. */
export function chosenSession(): Opened | undefined {
  return opened.value.find((each) => each.number === address.value.session);
}

export function Chooser(props: { page: "graph" | "session" }) {
  const { page } = props;
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const chosen = chosenSession();
  const attempt = async (open: () => Promise<Opened>) => {
    setBusy(true);
    try {
      go(addressOf(page, (await open()).number));
      setProblem("");
    } catch (error) {
      setProblem(sentence(error));
    }
    setBusy(false);
  };
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const field = (event.currentTarget as HTMLFormElement).elements.namedItem("session") as HTMLInputElement;
    void attempt(async () => {
      const made = await openById(field.value.trim());
      field.value = "";
      return made;
    });
  };
  return (
    <section class="chooser">
      <div class="tools">
        {opened.value.length > 0 && (
          <label>
            Session{" "}
            <select value={chosen?.number ?? 0} onChange={(e) => go(addressOf(page, Number(e.currentTarget.value)))}>
              {!chosen && <option value={0}>choose</option>}
              {opened.value.map((each) => (
                <option key={each.number} value={each.number}>
                  {each.number}: {each.label}
                </option>
              ))}
            </select>
          </label>
        )}
        {chosen && (
          <button
            type="button"
            onClick={() => {
              forget(chosen.number);
              go(addressOf(page));
            }}
          >
            Close here
          </button>
        )}
        <form onSubmit={submit}>
          <label>
            Session id <input name="session" type="password" autocomplete="off" required aria-describedby="id-help" />
          </label>
          <button type="submit" disabled={busy}>
            Open
          </button>
        </form>
        <button type="button" disabled={busy} onClick={() => void attempt(makeExample)}>
          Make an example
        </button>
      </div>
      {!chosen && (
        <p id="id-help">
          In Python, <code>gradwire.current_session().session_id</code> is the id of a program's session. It is a
          secret: this page keeps it for this tab and never puts it into an address.
        </p>
      )}
      {problem && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
    </section>
  );
}

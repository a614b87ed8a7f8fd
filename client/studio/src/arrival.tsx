// Arrival: takes over the session that a program handed over, then shows its graph.
import { useEffect, useState } from "preact/hooks";
import { address, addressOf, go } from "./address";
import { loggedIn, sentence, takeHandover } from "./calls";
import { openHandover } from "./opened";

export function ArrivalPage() {
  const [problem, setProblem] = useState("");
  const { code } = address.value;
  useEffect(() => {
    const arrive = async () => {
      setProblem("");
      try {
        const given = await takeHandover(code);
        const { number } = await openHandover(given);
        history.replaceState(null, "", addressOf("graph", number, Number(given.tensor)));
        dispatchEvent(new HashChangeEvent("hashchange"));
      } catch (error) {
        setProblem(sentence(error));
      }
    };
    void arrive();
  }, [code, loggedIn.value]);
  return (
    <>
      <h1>A graph from a program</h1>
      {problem ? (
        <p class="problem" role="alert">
          {problem}
        </p>
      ) : (
        <p role="status">Reading what the program handed over …</p>
      )}
      {problem && (
        <button type="button" onClick={() => go(addressOf("sessions"))}>
          Go to the sessions
        </button>
      )}
    </>
  );
}

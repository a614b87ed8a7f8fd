// Task: a lesson's question. Its answer is what the server says after the run, not a text stored beside it.
import { useState } from "preact/hooks";
import { sentence } from "../calls";
import type { Task } from "./lessons";
import { floatText } from "./printing";
import type { Result, Workspace } from "./workspace";

interface Answer {
  right: boolean;
  words: string;
}

export function TaskBox(props: { task: Task; workspace: Workspace; result: Result | null }) {
  const { task, workspace, result } = props;
  const [guess, setGuess] = useState("");
  const [hinted, setHinted] = useState(false);
  const [answer, setAnswer] = useState<{ of: Result | null; answer: Answer } | null>(null);
  const check = async (event: Event) => {
    event.preventDefault();
    setAnswer({ of: result, answer: await checked(task, guess, workspace, result) });
  };
  const told = answer?.of === result ? answer?.answer : undefined;
  return (
    <form class="task" onSubmit={check} aria-label="Task">
      <h3>Task</h3>
      <p id="task-words">{task.words}</p>
      <div class="tools">
        {task.kind === "guess" && (
          <input
            aria-labelledby="task-words"
            inputMode="decimal"
            value={guess}
            onInput={(e) => {
              setGuess(e.currentTarget.value);
              setAnswer(null);
            }}
          />
        )}
        <button type="submit">Check</button>
        <button type="button" onClick={() => setHinted(!hinted)} aria-expanded={hinted}>
          Hint
        </button>
      </div>
      {hinted && <p>{task.hint}</p>}
      <p role="status" class={told?.right ? "right" : ""}>
        {told?.words ?? ""}
      </p>
    </form>
  );
}

async function checked(task: Task, guess: string, workspace: Workspace, result: Result | null): Promise<Answer> {
  const error = result?.notes.find((each) => each.kind === "error");
  if (!result || error) return { right: false, words: "The code must run without an error first." };
  try {
    const value = await workspace.asked(task.kind === "change" ? task.test : task.value);
    if (task.kind === "change") {
      return value ? { right: true, words: "Right." } : { right: false, words: "Not yet: the condition is not met." };
    }
    const [number, said] = [Number(value), Number(guess.replace(",", "."))];
    if (guess.trim() === "" || Number.isNaN(said)) return { right: false, words: "Write a number." };
    const near = Math.abs(number - said) <= 1e-3 * Math.max(1, Math.abs(number));
    return near
      ? { right: true, words: `Right: the server computes ${floatText(number)}.` }
      : { right: false, words: "No. Change the code and look, or take the hint." };
  } catch (thrown) {
    return { right: false, words: `Not yet: ${sentence(thrown)}` };
  }
}

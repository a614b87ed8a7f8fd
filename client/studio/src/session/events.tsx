// What was refused in a session, and how its compiled functions ran.
import type { LoggedRefusal, ProgramStatistics, SessionActivity } from "#contract/commands_pb";
import { Reason } from "#contract/errors_pb";
import { counted } from "../format";

export function Programs(props: { programs: readonly ProgramStatistics[] }) {
  const programs = [...props.programs].reverse(); // the most recently run one first
  return (
    <section>
      <h2>Compiled functions</h2>
      {programs.length === 0 && <p>The session has none. gradwire.compile() makes them.</p>}
      {programs.length > 0 && (
        <div class="rows" tabIndex={0} role="region" aria-label="Compiled functions">
          <table>
            <thead>
              <tr>
                <th scope="col">Program</th>
                <th scope="col">Ops</th>
                <th scope="col" class="number">
                  Steps
                </th>
                <th scope="col" class="number">
                  As a plan
                </th>
                <th scope="col" class="number">
                  Step by step
                </th>
                <th scope="col">Why step by step</th>
              </tr>
            </thead>
            <tbody>
              {programs.map((each) => (
                <tr key={shortHash(each)}>
                  <td>
                    <code>{shortHash(each)}</code>
                  </td>
                  <td>
                    <span class="name" title={each.ops.join(", ")}>
                      {each.ops.join(", ")}
                    </span>
                  </td>
                  <td class="number">{each.steps.toLocaleString("en")}</td>
                  <td class="number">{each.plannedRuns.toLocaleString("en")}</td>
                  <td class="number">{each.stepwiseRuns.toLocaleString("en")}</td>
                  <td class="wraps">{whyStepwise(each)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

export function Refusals(props: { activity: SessionActivity }) {
  const { refused } = props.activity;
  const refusals = [...props.activity.refusals].reverse(); // the newest first
  const older = Number(refused) - refusals.length;
  return (
    <section>
      <h2>Refusals</h2>
      <p>
        {refused === 0n
          ? "Nothing was refused."
          : `${counted(Number(refused), "command")} refused${older > 0 ? `; the last ${refusals.length} are shown` : ""}.`}
      </p>
      {refusals.length > 0 && (
        <div class="rows" tabIndex={0} role="region" aria-label="Refusals">
          <table>
            <thead>
              <tr>
                <th scope="col">When</th>
                <th scope="col">Command</th>
                <th scope="col">Reason</th>
                <th scope="col">Sentence</th>
              </tr>
            </thead>
            <tbody>
              {refusals.map((each, i) => (
                <tr key={Number(refused) - i}>
                  <td>{whenText(each)}</td>
                  <td>{each.op || each.command || "unknown"}</td>
                  <td>{Reason[each.reason] ?? each.reason}</td>
                  <td class="wraps">{each.message}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

/** The first digits of a program's hash, as the strip has them. */
export function shortHash(program: Pick<ProgramStatistics, "hash">): string {
  return [...program.hash.subarray(0, 6)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Why runs had no plan, in a sentence. */
export function whyStepwise(
  program: Pick<ProgramStatistics, "stepwiseBecause" | "plannedRuns" | "stepwiseRuns">,
): string {
  if (program.stepwiseBecause) return `${program.stepwiseBecause}.`;
  if (program.stepwiseRuns === 0n) return program.plannedRuns ? "" : "It has not run yet.";
  return "The first run of each kind of inputs makes the plan.";
}

function whenText(refusal: LoggedRefusal): string {
  return new Date(Number(refusal.atUnixMs)).toLocaleTimeString("en-GB");
}

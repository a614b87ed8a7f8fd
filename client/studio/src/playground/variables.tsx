// Variables: each name after the run, what its tensor is to autograd, and why its gradient is None.
import { useState } from "preact/hooks";
import type { Graph } from "../graph/model";
import { type Kind, kindOf, why } from "../graph/why";
import { Drawn } from "./drawings";
import { tensorText } from "./printing";
import type { Variable } from "./workspace";

const KINDS: Record<Kind, string> = {
  leaf: "leaf, requires grad",
  retained: "result, retains its gradient",
  passed: "result, passes its gradient on",
  constant: "constant, no gradient",
};

export function Variables(props: { variables: readonly Variable[]; graph: Graph | null; root: number }) {
  const { variables, graph, root } = props;
  const [name, setName] = useState("");
  const chosen = variables.find((each) => each.name === name);
  if (!variables.length) return null;
  return (
    <section aria-label="Variables" class="variables">
      <h3>Variables</h3>
      <div class="rows" tabIndex={0} role="group" aria-label="Table of variables">
        <table>
          <thead>
            <tr>
              <th scope="col">Name</th>
              <th scope="col">Value</th>
              <th scope="col">For autograd</th>
              <th scope="col">Gradient</th>
            </tr>
          </thead>
          <tbody>
            {variables.map((each) => (
              <Row key={each.name} variable={each} graph={graph} chosen={each === chosen} onChoose={setName} />
            ))}
          </tbody>
        </table>
      </div>
      {chosen && <Chosen variable={chosen} graph={graph} root={root} />}
    </section>
  );
}

function Row(props: { variable: Variable; graph: Graph | null; chosen: boolean; onChoose: (name: string) => void }) {
  const { variable, graph, chosen } = props;
  const { name, text, gradient } = variable;
  const tensor = graph?.tensors.get(variable.tensor);
  return (
    <tr>
      <th scope="row">
        {variable.tensor ? (
          <button type="button" class="small" aria-pressed={chosen} onClick={() => props.onChoose(chosen ? "" : name)}>
            {name}
          </button>
        ) : (
          name
        )}
      </th>
      <td class="value">{text}</td>
      <td>{tensor ? KINDS[kindOf(tensor)] : "–"}</td>
      <td class="value">{gradient ? tensorText(gradient) : variable.tensor ? "None" : "–"}</td>
    </tr>
  );
}

/** One variable: its values, its gradient, and why that is None. */
function Chosen(props: { variable: Variable; graph: Graph | null; root: number }) {
  const { variable, graph, root } = props;
  const tensor = graph?.tensors.get(variable.tensor);
  return (
    <div class="chosen" aria-live="polite">
      {graph && tensor && <p class="why">{why(graph, tensor, root)}</p>}
      {variable.shown && <Drawn shown={variable.shown} what={variable.name} />}
      {variable.gradient && <Drawn shown={variable.gradient} what={`${variable.name}.grad`} />}
      {!variable.shown && <p class="few">It has too many values to be fetched here.</p>}
    </div>
  );
}

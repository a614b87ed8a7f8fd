// Fits y = 3x - 1 by gradient descent; every tensor and every gradient lives on the server.
// node example.js [HOST:PORT]
"use strict";

const { connect, float32, values } = require("./gradwire.js");

async function main(address) {
  const client = connect(address);
  const { session_id } = await client.OpenSession({ client: "gradwire-example" });
  try {
    const create = async (shape, data, requires_grad = false) =>
      (await client.Create({ session_id, requires_grad, payload: float32(shape, data) })).tensor.id;
    const op = async (name, args, grad_mode = "GRAD_MODE_ENABLED") =>
      (await client.Op({ session_id, op: name, args, grad_mode })).outputs[0].id;

    const x = await create([4], [-1, 0, 1, 2]);
    const y = await create([4], [-4, -1, 2, 5]);
    const weight = await create([1], [0], true);
    const bias = await create([1], [0], true);

    for (let step = 0; step < 200; step++) {
      const scaled = await op("mul", [{ tensor: weight }, { tensor: x }]);
      const predicted = await op("add", [{ tensor: scaled }, { tensor: bias }]);
      const loss = await op("mse_loss", [{ tensor: predicted }, { tensor: y }]);
      await client.Backward({ session_id, tensors: [loss] });
      const used = [scaled, predicted, loss];
      for (const leaf of [weight, bias]) {
        const { grad } = await client.Grad({ session_id, tensor: leaf });
        const change = await op("mul", [{ tensor: grad.id }, { float: -0.1 }]);
        await op("add_", [{ tensor: leaf }, { tensor: change }], "GRAD_MODE_DISABLED");
        await client.SetGrad({ session_id, tensor: leaf, grad: 0 });
        used.push(grad.id, change);
      }
      await client.Release({ session_id, tensors: used });
    }

    const read = async (tensor) => values((await client.Read({ session_id, tensor })).payload)[0];
    console.log(`y = ${(await read(weight)).toFixed(3)} x + ${(await read(bias)).toFixed(3)}`);
  } finally {
    await client.CloseSession({ session_id });
    client.close();
  }
}

main(process.argv[2] ?? process.env.GRADWIRE_ADDRESS ?? "127.0.0.1:50051").catch((error) => {
  console.error(error.info ?? error);
  process.exitCode = 1;
});

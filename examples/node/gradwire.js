// A client of gradwire for Node.js: a stub from the protos, tensors as plain numbers, refusals as errors with a reason.
// proto/gradwire/v1 documents every call.
"use strict";

const path = require("node:path");
const grpc = require("@grpc/grpc-js");
const protoLoader = require("@grpc/proto-loader");

const OPTIONS = {
  keepCase: true, // field names as the protos write them
  longs: Number, // ids are below 2^53, so a JavaScript number is exact
  enums: String,
  defaults: true,
  oneofs: true,
};

const PROTOS = path.join(__dirname, "..", "..", "proto");
const gradwire = grpc.loadPackageDefinition(
  protoLoader.loadSync("gradwire/v1/service.proto", { ...OPTIONS, includeDirs: [PROTOS] }),
).gradwire.v1;

// google.rpc.Status and ErrorInfo are in the trailers of a refused call; npm has no package of their protos.
const rpc = protoLoader.fromJSON(
  {
    nested: {
      google: {
        nested: {
          protobuf: {
            nested: {
              Any: { fields: { type_url: { type: "string", id: 1 }, value: { type: "bytes", id: 2 } } },
            },
          },
          rpc: {
            nested: {
              Status: {
                fields: {
                  code: { type: "int32", id: 1 },
                  message: { type: "string", id: 2 },
                  details: { rule: "repeated", type: "google.protobuf.Any", id: 3 },
                },
              },
              ErrorInfo: {
                fields: {
                  reason: { type: "string", id: 1 },
                  domain: { type: "string", id: 2 },
                  metadata: { keyType: "string", type: "string", id: 3 },
                },
              },
            },
          },
        },
      },
    },
  },
  { ...OPTIONS, enums: Number },
);

/** The ErrorInfo of a refused call ({reason, domain, metadata}), or undefined if the trailers have none. */
function errorInfo(error) {
  const [bytes] = error.metadata?.get("grpc-status-details-bin") ?? [];
  if (!bytes) return undefined;
  const status = rpc["google.rpc.Status"].deserialize(bytes);
  const detail = status.details.find(({ type_url }) => type_url.endsWith("/google.rpc.ErrorInfo"));
  return detail && rpc["google.rpc.ErrorInfo"].deserialize(detail.value);
}

/** A client whose methods are the service's unary RPCs as promises: `await client.Create({...})`. */
function connect(address) {
  const stub = new gradwire.AutogradService(address, grpc.credentials.createInsecure());
  const client = { close: () => stub.close() };
  for (const [name, method] of Object.entries(gradwire.AutogradService.service)) {
    if (method.requestStream || method.responseStream) continue;
    client[name] = (request) =>
      new Promise((resolve, reject) => {
        stub[name](request, (error, response) => {
          if (!error) return resolve(response);
          error.info = errorInfo(error);
          reject(error);
        });
      });
  }
  return client;
}

/** A Payload of float32 values: little-endian bytes, row by row. */
function float32(shape, values) {
  const data = Buffer.alloc(4 * values.length);
  values.forEach((value, i) => data.writeFloatLE(value, 4 * i));
  return { dtype: "DTYPE_FLOAT32", shape, data };
}

/** The values of a float32 Payload, flat. */
function values(payload) {
  if (payload.dtype !== "DTYPE_FLOAT32") throw new TypeError(`expected float32, got ${payload.dtype}`);
  return Array.from({ length: payload.data.length / 4 }, (_, i) => payload.data.readFloatLE(4 * i));
}

module.exports = { connect, float32, values, grpc };

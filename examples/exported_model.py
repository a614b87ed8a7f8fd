"""A training step as a file: exported here, then trained on by plain gRPC calls, as from any language.

    python examples/exported_model.py [--steps 500] [--path model.safetensors]

`torch.export` writes the network, its optimizer with a learning rate that decays, the training step and the inference.
`train` below uses the stub and the messages only. It computes no number of the optimizer: the server does, by rules.
"""

import argparse

import grpc
import numpy as np

import gradwire as torch
from gradwire.v1.commands_pb2 import CreateRequest, ReadRequest, ReleaseRequest
from gradwire.v1.programs_pb2 import LoadProgramRequest, RunProgramRequest, SaveProgramRequest
from gradwire.v1.service_pb2 import CloseSessionRequest, OpenSessionRequest
from gradwire.v1.service_pb2_grpc import AutogradServiceStub
from gradwire.v1.snapshots_pb2 import NamedTensor
from gradwire.v1.types_pb2 import DTYPE_FLOAT32, DTYPE_UINT8, Payload

nn = torch.nn


def make_data(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Points of a sine, float32 of shape [rows, 1]: the places and the values."""
    x = np.linspace(-3, 3, rows, dtype=np.float32)[:, None]
    return x, np.sin(x)


def export(path: str, x: np.ndarray, y: np.ndarray) -> None:
    """Write the file: a small network, Adam, and two programs."""
    net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.03)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.998)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss

    def predict(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return net(x)

    examples = torch.tensor(x), torch.tensor(y)
    programs = {"step": torch.export(step, *examples), "predict": torch.export(predict, examples[0], dynamic=["x"])}
    torch.export(programs, path=path)


def train(address: str, path: str, x: np.ndarray, y: np.ndarray, steps: int) -> tuple[float, float]:
    """Train the file's network and save it again. Returns the last loss and the prediction at pi / 2."""
    stub = AutogradServiceStub(grpc.insecure_channel(address))
    session = stub.OpenSession(OpenSessionRequest(client="example")).session_id

    def create(dtype: int, shape: tuple[int, ...], data: bytes) -> int:
        payload = Payload(dtype=dtype, shape=shape, data=data)
        return stub.Create(CreateRequest(session_id=session, payload=payload)).tensor.id

    def read(tensor: int) -> bytes:
        return stub.Read(ReadRequest(session_id=session, tensor=tensor)).payload.data

    def run(name: str, **inputs: int) -> int:
        program = programs[name]
        named = [NamedTensor(name=key, id=tensor) for key, tensor in inputs.items()]
        request = RunProgramRequest(session_id=session, hash=program.hash, inputs=program.inputs, named=named)
        return stub.RunProgram(request).outputs[0].id

    with open(path, "rb") as opened:
        content = opened.read()
    file = create(DTYPE_UINT8, (len(content),), content)
    loaded = stub.LoadProgram(LoadProgramRequest(session_id=session, file=file))
    programs = {program.name: program for program in loaded.programs}
    inputs = {"x": create(DTYPE_FLOAT32, x.shape, x.tobytes()), "y": create(DTYPE_FLOAT32, y.shape, y.tobytes())}
    loss = run("step", **inputs)
    for _ in range(steps - 1):
        stub.Release(ReleaseRequest(session_id=session, tensors=[loss]))
        loss = run("step", **inputs)
    at = create(DTYPE_FLOAT32, (1, 1), np.float32(np.pi / 2).tobytes())
    found = np.frombuffer(read(run("predict", x=at)), np.float32)[0], np.frombuffer(read(loss), np.float32)[0]
    tensors = [NamedTensor(name=each.name, id=each.spec.id) for each in loaded.tensors]
    saved = stub.SaveProgram(SaveProgramRequest(session_id=session, file=file, tensors=tensors)).file.id
    with open(path, "wb") as written:
        written.write(read(saved))
    stub.CloseSession(CloseSessionRequest(session_id=session))
    return float(found[1]), float(found[0])


def main() -> None:
    """Export, train by plain calls, and look at the saved file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--path", default="model.safetensors")
    options = parser.parse_args()
    torch.manual_seed(0)
    x, y = make_data(64)
    export(options.path, x, y)
    loss, prediction = train(torch.current_session().address, options.path, x, y, options.steps)
    loaded = torch.load_program(options.path)
    print(f"loss {loss:.5f}, sin(pi / 2) is about {prediction:.3f}")
    print(f"the file counts {loaded.state['optimizer.step'].item():.0f} steps")


if __name__ == "__main__":
    main()

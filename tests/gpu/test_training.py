"""A client's tensors on "cuda": made, moved, read, trained with, beside the same on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradwire as torch


def test_the_server_describes_its_gpu(session: Any) -> None:
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() >= 1
    assert torch.cuda.get_device_name(0)


def test_tensors_travel_to_the_gpu_and_back(session: Any) -> None:
    values = np.arange(6.0).reshape(2, 3)
    x = torch.tensor(values, device="cuda")
    assert (str(x.device), x.cpu().device.type) == ("cuda:0", "cpu")
    np.testing.assert_array_equal((x * 2).cpu().numpy(), values * 2)
    assert x[1, 2].item() == 5.0
    assert "device='cuda:0'" in repr(x)
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
        x.numpy()


def test_a_gradient_lives_where_its_leaf_does(session: Any) -> None:
    weight = torch.ones(3, requires_grad=True)
    (weight.cuda() * torch.arange(3.0, device="cuda")).sum().backward()
    assert weight.grad.device.type == "cpu"
    np.testing.assert_array_equal(weight.grad.numpy(), [0.0, 1.0, 2.0])


def test_tensors_of_two_devices_are_refused_and_the_session_goes_on(session: Any) -> None:
    x = torch.ones(3, device="cuda")
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        (x + torch.ones(3)).sum().item()
    assert x.sum().item() == 3.0


@pytest.mark.parametrize(("target", "source"), [("cuda", "cpu"), ("cpu", "cuda")])
def test_values_are_copied_into_a_tensor_of_another_device(session: Any, target: str, source: str) -> None:
    x, given = torch.zeros(2, 3, device=target), torch.arange(3.0, device=source)
    x.copy_(given)
    assert x.tolist() == [[0.0, 1.0, 2.0]] * 2
    x[0] = given + 5
    x[1, 1:] = given[1:].to(torch.float64)
    assert x.tolist() == [[5.0, 6.0, 7.0], [0.0, 1.0, 2.0]]
    x[:] = torch.tensor(3.0, device=source)
    x[1].fill_(torch.tensor(4.0, device=source))
    assert x.tolist() == [[3.0] * 3, [4.0] * 3]
    with pytest.raises(RuntimeError, match="same device"):
        x[torch.tensor([0, 1], device=target), 0] = given[:2]
    with pytest.raises(RuntimeError, match="same device"):
        x += given


def test_the_gradient_of_a_copied_value_comes_home(session: Any) -> None:
    value, single = torch.ones(3, requires_grad=True), torch.tensor(2.0, requires_grad=True)
    x, y = torch.zeros(2, 3, device="cuda"), torch.zeros(2, 3, device="cuda")
    x.copy_(value * 2)
    y[0] = value * 3
    y[1] = single
    (x.sum() + y.sum()).backward()
    assert (value.grad.tolist(), value.grad.device.type) == ([7.0] * 3, "cpu")
    assert (single.grad.item(), single.grad.device.type) == (3.0, "cpu")


def test_a_model_takes_a_state_that_is_on_another_device(session: Any) -> None:
    model, other = torch.nn.Linear(3, 2).cuda(), torch.nn.Linear(3, 2)
    model.load_state_dict(other.state_dict())
    assert model.weight.device.type == "cuda"
    np.testing.assert_array_equal(model.weight.detach().cpu().numpy(), other.weight.detach().numpy())


def test_indices_of_the_cpu_write_into_a_part_of_a_tensor_of_the_gpu(session: Any) -> None:
    x = torch.zeros(2, 3, device="cuda")
    x[1:, torch.tensor([True, False, True])] = 5.0
    x[:1, torch.tensor([1])] = 2.0
    assert x.tolist() == [[0.0, 2.0, 0.0], [5.0, 0.0, 5.0]]


def test_gradients_add_up_on_the_gpu_until_they_are_dropped(session: Any) -> None:
    leaf = torch.ones(3, device="cuda", requires_grad=True)
    home = torch.ones(3, requires_grad=True)
    for times in range(1, 4):
        (leaf * home.cuda() * torch.arange(3.0, device="cuda")).sum().backward()
        assert leaf.grad.tolist() == home.grad.tolist() == [0.0, times, 2.0 * times]
    leaf.grad.zero_()
    leaf.sum().backward()
    assert leaf.grad.tolist() == [1.0, 1.0, 1.0]


def trained(device: str, optimizer: str, compiled: bool) -> list[np.ndarray[Any, Any]]:
    """The parameters of a small network after some steps."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 3, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LayerNorm(48), torch.nn.Linear(48, 4)
    ).to(device)
    rng = np.random.default_rng(1)
    images = torch.tensor(rng.normal(size=(8, 1, 6, 6)).astype("float32"), device=device)
    labels = torch.tensor(rng.integers(0, 4, 8), device=device)
    optimize = getattr(torch.optim, optimizer)(model.parameters(), lr=0.05)

    def step() -> Any:
        optimize.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimize.step()
        return loss

    run = torch.compile(step) if compiled else step
    for _ in range(5):
        run()
    return [each.detach().cpu().numpy() for each in model.parameters()]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_training_on_the_gpu_gives_the_weights_of_the_cpu(session: Any, optimizer: str, compiled: bool) -> None:
    for ours, expected in zip(trained("cuda", optimizer, compiled), trained("cpu", optimizer, compiled), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=2e-4, atol=2e-5)


def test_synchronize_waits_for_the_gpu(session: Any) -> None:
    x = torch.ones(3, device="cuda")
    x += 1
    torch.cuda.synchronize()
    torch.cuda.synchronize(0)
    torch.cuda.synchronize("cuda:0")
    with pytest.raises(RuntimeError):
        torch.cuda.synchronize(99)
    assert x.tolist() == [2.0, 2.0, 2.0]

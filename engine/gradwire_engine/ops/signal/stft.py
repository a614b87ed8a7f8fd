"""Short-time Fourier transform, and its inverse by overlap-add."""

from __future__ import annotations

from typing import Any

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array, module_of
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.core.schema import PadMode
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.composite import composite
from gradwire_engine.ops.base.basic import cast, expand
from gradwire_engine.ops.shape.padding import constant_pad
from gradwire_engine.ops.shape.padding import pad as padded
from gradwire_engine.ops.shape.shape import narrow, squeeze, transpose, unsqueeze, view_as_real
from gradwire_engine.ops.shape.strided import unfold, unfold_backward
from gradwire_engine.ops.signal.fft import FULL_SCALE, PLAIN_SCALE, ROOT_SCALE, c2c, c2r, r2c


def _refuse(name: str, input: Any, what: str, reason: Reason = Reason.RUNTIME) -> EngineError:
    title = dtypes.TITLES[input.dtype]
    return EngineError(reason, f"{name}(torch.{title}Tensor{list(input.shape)}) : {what}", op=name)


def _lengths(n_fft: int, hop_length: int | None, win_length: int | None) -> tuple[int, int]:
    return n_fft // 4 if hop_length is None else hop_length, n_fft if win_length is None else win_length


def _padded_window(name: str, input: Any, window: Any, n_fft: int, win_length: int) -> Any:
    """Pad the window with zeros on both sides to n_fft; None means a window of ones. Raises EngineError: RUNTIME."""
    if window is not None and (window.ndim != 1 or window.shape[0] != win_length):
        raise _refuse(
            name,
            input,
            f"expected a 1D window tensor of size equal to win_length={win_length}, but got window with size "
            f"{list(window.shape)}; Invalid window shape. window has to be 1D and length of `win_length`",
        )
    left = (n_fft - win_length) // 2
    if window is None:
        array = input.array if type(input) is Tensor else input
        ones = module_of(array).ones(win_length, dtypes.real_part(input.dtype))
        window = Tensor(ones) if type(input) is Tensor else ones
    return window if win_length == n_fft else constant_pad(window, (left, n_fft - win_length - left), 0)


@composite(reads_values=True)
def stft(
    input: Array, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Array | None = None,
    center: bool = True, pad_mode: PadMode = "reflect", normalized: bool = False, onesided: bool | None = None,
    return_complex: bool | None = None, align_to_window: bool | None = None,
) -> Any:  # fmt: skip
    """Short-time Fourier transform: transforms of frames, hop_length apart (torch.stft).

    input: (length,) or (batch, length).
    result: (frequencies, frames) or (batch, frequencies, frames), complex; with a last dimension of 2 if return_complex
    is False.
    window: (win_length,), zero-padded on both sides to n_fft.
    center: pad the signal by pad_mode, so that frame t is centred at t * hop_length.
    onesided: return only the non-redundant half of the frequencies; the default for real signals.
    Raises EngineError: RUNTIME for sizes that do not fit.
    """
    name = "stft"
    hop, length = _lengths(n_fft, hop_length, win_length)
    if center and align_to_window:
        raise EngineError(Reason.RUNTIME, "stft align_to_window should only be set when center = false")
    is_complex = input.dtype.kind == "c" or (window is not None and window.dtype.kind == "c")
    if return_complex is None and not is_complex:
        raise EngineError(
            Reason.RUNTIME,
            "stft requires the return_complex parameter be given for real inputs, and will further require that "
            "return_complex=True in a future PyTorch release.",
        )
    if dtypes.category(input.dtype) < dtypes.FLOAT:
        raise _refuse(name, input, "expected a tensor of floating point or complex values")
    if input.ndim not in (1, 2):
        raise _refuse(name, input, "expected a 1D or 2D tensor")
    signal = unsqueeze(input, 0) if input.ndim == 1 else input
    if center:
        around = n_fft // 2
        signal = squeeze(padded(unsqueeze(signal, 0), (around, around), pad_mode), 0)
    elif align_to_window:
        left = (n_fft - length) // 2
        signal = constant_pad(signal, (left, n_fft - length - left), 0)
    _check_lengths(input, signal.shape[-1], n_fft, hop, length)
    whole = _padded_window(name, input, window, n_fft, length)
    if onesided and is_complex:
        raise EngineError(Reason.RUNTIME, "Cannot have onesided output if window or input is complex")
    frames = (
        unfold(signal, -1, n_fft, hop) * whole if _has_window(window, n_fft, length) else unfold(signal, -1, n_fft, hop)
    )
    if frames.dtype.itemsize == 2:
        raise EngineError(Reason.RUNTIME, f"stft: FFT doesn't support tensors of type: {dtypes.TITLES[frames.dtype]}")
    scale = ROOT_SCALE if normalized else PLAIN_SCALE
    if is_complex:
        frames = frames if frames.dtype.kind == "c" else cast(frames, dtypes.to_complex(frames.dtype))
        found = c2c(frames, (2,), scale, True)
    else:
        found = r2c(frames, (2,), scale, onesided is not False)
    found = transpose(found, 1, 2)
    found = squeeze(found, 0) if input.ndim == 1 else found
    return found if return_complex is not False else view_as_real(found)


def _has_window(window: Any, n_fft: int, length: int) -> bool:
    """Whether the padded window differs from ones, as far as its arguments tell."""
    return window is not None or length < n_fft


def _check_lengths(input: Any, size: int, n_fft: int, hop: int, length: int) -> None:
    if not 0 < n_fft <= size:
        raise _refuse("stft", input, f"expected 0 < n_fft < {size}, but got n_fft={n_fft}")
    if hop <= 0:
        raise _refuse("stft", input, f"expected hop_length > 0, but got hop_length={hop}")
    if not 0 < length <= n_fft:
        raise _refuse("stft", input, f"expected 0 < win_length <= n_fft, but got win_length={length}")


@composite(reads_values=True)
def istft(
    input: Array, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Array | None = None,
    center: bool = True, normalized: bool = False, onesided: bool | None = None, length: int | None = None,
    return_complex: bool = False,
) -> Any:  # fmt: skip
    """Inverse of `stft` with the same arguments (torch.istft).

    input: (frequencies, frames) or (batch, frequencies, frames), complex; result: (length,) or (batch, length).
    Raises EngineError: RUNTIME for sizes that do not fit, or if the sum of the windows' squares is 0 anywhere.
    """
    name = "istft"
    if input.dtype.kind != "c":
        raise EngineError(
            Reason.RUNTIME,
            "istft requires a complex-valued input tensor matching the output from stft with return_complex=True.",
        )
    hop, win = _lengths(n_fft, hop_length, win_length)
    is_complex = window is not None and window.dtype.kind == "c"
    one = (input.ndim > 1 and input.shape[-2] != n_fft) if onesided is None else onesided
    _check_inverse(input, n_fft, hop, win, one, is_complex or return_complex)
    spectra = transpose(unsqueeze(input, 0) if input.ndim == 2 else input, 1, 2)
    whole = _padded_window(name, input, window, n_fft, win)
    if whole.dtype.itemsize < 4:  # half precision is too coarse for the sum of squares
        whole = cast(whole, dtypes.real_part(input.dtype))
    frames = _frames(spectra, n_fft, ROOT_SCALE if normalized else FULL_SCALE, one, return_complex)
    frames = frames * whole
    batch, count = frames.shape[:2]
    size = n_fft + hop * (count - 1)
    added = unfold_backward(frames, (batch, size), 1, n_fft, hop)
    squares = _repeated(whole * whole, count)
    envelope = unfold_backward(squares, (1, size), 1, n_fft, hop)
    start = n_fft // 2 if center else 0
    end = min(start + length if length is not None else size - start, size)
    added, envelope = (narrow(value, 1, start, max(end - start, 0)) for value in (added, envelope))
    array = envelope.array if type(envelope) is Tensor else envelope
    if array.size and float(abs(array).min()) <= 1e-11:
        raise _refuse(name, input, "window overlap add min: 1: the squares of the windows add up to 0 somewhere")
    found = added / envelope
    found = squeeze(found, 0) if input.ndim == 2 else found
    missing = 0 if length is None else length - found.shape[-1]
    return constant_pad(found, (0, missing), 0) if missing > 0 else found


istft.unsupported(
    "c",
    message="Complex windows are incompatible with return_complex=False",
    of=("window",),
    when=lambda *args: not args[istft.positions["return_complex"]],
)


def _repeated(window: Any, count: int) -> Any:
    """The window repeated for each frame: (1, count, n_fft)."""
    return expand(unsqueeze(unsqueeze(window, 0), 0), (1, count, window.shape[0]))


def _frames(spectra: Any, n_fft: int, scale: int, onesided: bool, return_complex: bool) -> Any:
    if return_complex:
        return c2c(spectra, (2,), scale, False)
    half = spectra if onesided else narrow(spectra, 2, 0, n_fft // 2 + 1)
    return c2r(half, (2,), scale, n_fft)


def _check_inverse(
    input: Any, n_fft: int, hop: int, win: int, onesided: bool, is_complex: bool
) -> None:  # fmt: skip
    name = "istft"
    if not input.size:
        raise _refuse(name, input, "input tensor cannot be empty.")
    if input.ndim not in (2, 3):
        raise EngineError(
            Reason.DIM_OUT_OF_RANGE if input.ndim < 2 else Reason.RUNTIME,
            f"{name}: expected a tensor with 2 or 3 dimensions, but got {input.ndim}: Dimension out of range",
        )
    frequencies = input.shape[-2]
    if onesided:
        wanted, rule = n_fft // 2 + 1, "when onesided=True"
    else:
        wanted, rule = n_fft, "when onesided=False"
    if frequencies != wanted:
        raise _refuse(
            name,
            input,
            "expected the frequency dimension (3rd to the last) of the input tensor to match n_fft "
            f"{rule}, but got {frequencies} instead of {wanted}",
        )
    if not 0 < hop <= win:
        raise _refuse(name, input, f"expected 0 < hop_length <= win_length, but got {hop} and {win}")
    if not 0 < win <= n_fft:
        raise _refuse(name, input, f"expected 0 < win_length <= n_fft, but got {win} and {n_fft}")
    if onesided and is_complex:
        raise EngineError(Reason.RUNTIME, "Cannot have onesided output if window or input is complex")

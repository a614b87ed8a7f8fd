import math

import torch
import torch.nn.functional as F

torch.manual_seed(0)
rate = 1000
t = torch.arange(rate) / rate
signal = torch.sin(2 * math.pi * 50 * t) + 0.5 * torch.sin(2 * math.pi * 120 * t) + 0.4 * torch.randn(rate)
spectrum = torch.fft.rfft(signal)
frequencies = torch.fft.rfftfreq(rate, 1 / rate)
peaks = spectrum.abs().topk(2).indices
print("peaks", sorted(frequencies[peaks].tolist()))
spectrum[frequencies > 150] = 0
clean = torch.fft.irfft(spectrum, n=rate)
print(f"power {signal.pow(2).mean():.4f} -> {clean.pow(2).mean():.4f}")

taps = 31
n = torch.arange(taps) - taps // 2
sinc = torch.where(n == 0, torch.tensor(0.2), torch.sin(0.2 * math.pi * n) / (math.pi * n))
h = (sinc * torch.hamming_window(taps, periodic=False)).view(1, 1, -1)
filtered = F.conv1d(signal.view(1, 1, -1), h, padding=taps // 2).flatten()
print(f"filtered {filtered.std():.4f} of {signal.std():.4f}")

stft = torch.stft(signal, n_fft=128, hop_length=32, window=torch.hann_window(128), return_complex=True)
back = torch.istft(stft, n_fft=128, hop_length=32, window=torch.hann_window(128), length=rate)
print(tuple(stft.shape), torch.allclose(back, signal, atol=1e-5))
correlation = torch.fft.irfft(torch.fft.rfft(signal).abs() ** 2)
print("lag", correlation[5:40].argmax().item() + 5)

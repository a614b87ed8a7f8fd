"""A small transformer learns one of Python's help texts character by character, then generates text.

    python examples/char_transformer.py [--steps 600] [--characters 20000]

The text is the language reference that `help()` shows (`pydoc_data.topics`). The model is `nn.TransformerEncoder` with
a causal mask. A step is one command (`torch.compile`). The text is uploaded once.
"""

import argparse
import time
from collections.abc import Callable
from pydoc_data.topics import topics

import gradwire as torch
import gradwire.nn as nn

CONTEXT = 32
WIDTH = 64


class Writer(nn.Module):
    """Return scores of the next character at each position of a text."""

    def __init__(self, characters: int, layers: int = 2) -> None:
        super().__init__()
        self.character = nn.Embedding(characters, WIDTH)
        self.place = nn.Parameter(torch.randn(CONTEXT, WIDTH) * 0.02)
        layer = nn.TransformerEncoderLayer(
            WIDTH, nhead=4, dim_feedforward=4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.scores = nn.Linear(WIDTH, characters)
        # True for later positions, which a position must not see.
        self.register_buffer("ahead", torch.ones(CONTEXT, CONTEXT, dtype=torch.bool).triu(1))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        length = text.shape[1]
        hidden = self.character(text) + self.place[:length]
        return self.scores(self.blocks(hidden, mask=self.ahead[:length, :length]))


def encode(text: str) -> tuple[torch.Tensor, list[str]]:
    """Encode the text as integers; also return the character of each integer."""
    alphabet = sorted(set(text))
    number = {character: i for i, character in enumerate(alphabet)}
    return torch.tensor([number[character] for character in text]), alphabet


def make_step(model: nn.Module, lr: float = 3e-3) -> Callable[[torch.Tensor], torch.Tensor]:
    """Run one step on windows, [batch, CONTEXT + 1]: each position predicts the next character."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)

    def step(windows: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        scores = model(windows[:, :-1])
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), windows[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return step


def write(model: nn.Module, start: torch.Tensor, length: int) -> list[int]:
    """Draw `length` further integers, each from the model's distribution after the earlier ones."""
    text = start
    with torch.no_grad():
        for _ in range(length):
            scores = model(text[None, -CONTEXT:])[0, -1]
            text = torch.cat([text, torch.multinomial((scores / 0.7).softmax(0), 1)])
    return text.tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=600, help="training steps (default: 600)")
    parser.add_argument("--characters", type=int, default=20_000, help="how much of the text (default: 20000)")
    parser.add_argument("--batch", type=int, default=32, help="windows per step (default: 32)")
    parser.add_argument("--write", type=int, default=200, help="characters to write in the end (default: 200)")
    options = parser.parse_args()

    lines = (line for topic in topics.values() for line in topic.splitlines() if line.strip("*"))  # no rules, no gaps
    data, alphabet = encode("\n".join(lines)[: options.characters])
    print(f"{len(data)} characters, {len(alphabet)} different ones")
    torch.manual_seed(0)
    model = Writer(len(alphabet))
    print(f"{sum(p.numel() for p in model.parameters())} parameters")
    step = torch.compile(make_step(model))
    window = torch.arange(CONTEXT + 1)
    start = time.perf_counter()
    for number in range(1, options.steps + 1):
        first = torch.randint(len(data) - CONTEXT, (options.batch, 1))
        loss = step(data[first + window])
        if number % 50 == 0 or number == options.steps:
            rate = number / (time.perf_counter() - start)
            print(f"step {number:4}  loss {loss.item():.3f}  {rate:.0f} steps/s")
    model.eval()
    print("".join(alphabet[i] for i in write(model, data[:CONTEXT], options.write)))


if __name__ == "__main__":
    main()

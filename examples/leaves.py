# %% [markdown]
# # Leaves, and which tensors receive gradients
#
# Which tensors are leaves, which receive a gradient, how to retain one elsewhere, and what leaves the graph.
#
# Run it with `python examples/leaves.py`, which draws into `demo-output/`, or read `examples/leaves.ipynb`. Replace the
# import line by `import torch`: it prints the same. PyTorch draws no pictures.

# %%
import warnings
from pathlib import Path

import gradwire as torch

PICTURES = Path("demo-output")


def draw(name, *tensors, **leaves):
    """Draw the graph of tensors: a notebook shows it, a script saves it."""
    if not hasattr(torch, "graph"):
        return
    picture = torch.graph(*tensors, params=leaves)
    if "get_ipython" in globals():
        from IPython.display import display

        display(picture)
    else:
        PICTURES.mkdir(exist_ok=True)
        picture.save(PICTURES / f"leaves-{name}.svg")


def show(**tensors):
    """Print a line for each tensor: the columns of the table below."""
    for name, t in tensors.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # reading .grad of a non-leaf warns, see below
            grad = None if t.grad is None else t.grad.tolist()
        node = None if t.grad_fn is None else t.grad_fn.name()
        print(f"{name:8} requires_grad={t.requires_grad!s:5} is_leaf={t.is_leaf!s:5} grad_fn={node} grad={grad}")


def refused(action):
    """Print the error's message, up to its first full stop."""
    try:
        action()
    except RuntimeError as error:
        print("refused:", str(error).split(".")[0])


# %% [markdown]
# ## The four kinds of tensors
#
# | requires_grad | made by | is_leaf | grad_fn | grad after backward |
# | --- | --- | --- | --- | --- |
# | True | you | True | None | accumulated |
# | True | an op | False | the op's node | None, unless `retain_grad()` was called before |
# | False | you | True | None | None |
# | False | an op | True, by convention | None | None |
#
# All four before backward:

# %%
w = torch.tensor([1.0, 2.0], requires_grad=True)  # row 1
x = torch.tensor([3.0, 4.0])  # row 3
scaled = x * 10  # row 4: no input requires grad
product = w * scaled  # row 2
loss = product.sum()  # row 2
show(w=w, product=product, loss=loss, x=x, scaled=scaled)

# %% [markdown]
# Backward traverses this graph, from `loss` to the leaves that require grad. `x` and `scaled` are not in it, because
# they receive no gradient.

# %%
draw("before", loss, w=w)

# %%
loss.backward()
show(w=w, product=product, loss=loss, x=x, scaled=scaled)

# %% [markdown]
# Only `w` has a gradient. `torch.explain(product)` says in words why `product` has none. Backward also freed the saved
# values: grey, dashed nodes are freed, so a second pass is refused.

# %%
draw("after", loss, w=w)
refused(lambda: loss.backward())

# %% [markdown]
# ## retain_grad(): a gradient in the middle
#
# `retain_grad()`, called before backward, makes a non-leaf keep its gradient. On a leaf that requires grad it has no
# effect. On a tensor that does not require grad it is refused.

# %%
product = w * scaled
product.retain_grad()
product.retain_grad()  # again: no effect
w.retain_grad()
print(f"{product.retains_grad=} {w.retains_grad=}")
refused(lambda: x.retain_grad())
total = product.sum()
draw("retained", total, w=w)  # the picture marks tensors that retain their gradient
total.backward()
show(product=product)

# %% [markdown]
# Reading `.grad` of a non-leaf without a retained gradient gives None and a warning. Reading a leaf's `.grad` never
# warns.

# %%
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    print(f"{x.grad=} {(w * x).grad=}")
print(len(caught), caught[0].category.__name__, "retain_grad" in str(caught[0].message))

# %% [markdown]
# ## .grad accumulates
#
# `.grad` is None at first. Each backward adds to it in place: `w` has taken part in two. The gradient is a leaf, does
# not require grad, and has the tensor's shape and dtype. You may delete it, or set it to a tensor of the same shape.

# %%
print(f"{w.grad=}")
print(f"{w.grad.is_leaf=} {w.grad.requires_grad=} {w.grad.retains_grad=} {w.grad.dtype=}")
w.grad = None
(w * x).sum().backward()
print(f"{w.grad=}")
w.grad = torch.ones(2)
(w * x).sum().backward()
print(f"{w.grad=}")
refused(lambda: setattr(w, "grad", torch.ones(3)))

# %% [markdown]
# ## requires_grad is a flag, not an op
#
# It is False by default. You may set it on a leaf, also later; `requires_grad_()` returns the same tensor. A non-leaf
# requires grad because of its inputs, so its flag cannot be changed. `detach()` returns the same values without the
# history.

# %%
a = torch.ones(2)
print(f"{a.requires_grad=}")
a.requires_grad = True
print(f"{a.requires_grad=} {a.is_leaf=} {a.requires_grad_() is a=}")
b = a * 2
b.requires_grad_(True)  # already True
refused(lambda: b.requires_grad_(False))
print(f"{b.detach().requires_grad=} {b.detach().is_leaf=}")

# %% [markdown]
# Integers and booleans have no derivatives:

# %%
refused(lambda: torch.tensor([1, 2], requires_grad=True))
refused(lambda: torch.tensor([True]).requires_grad_())

# %% [markdown]
# ## Which results require grad
#
# A result requires grad if any input does, grad mode is on, its dtype is floating or complex, and the op has a
# derivative. Comparisons and `zeros_like` have none.

# %%
show(sum=w + x, compared=w > x, zeros=torch.zeros_like(w), whole=w.to(torch.int64))
with torch.no_grad():
    show(no_grad=w + x)

# %% [markdown]
# ## Parameters
#
# A `Parameter` is a leaf that requires grad. It remains one when its module is cast or moved, and keeps its identity.

# %%
layer = torch.nn.Linear(2, 1)
weight = layer.weight
layer.double()
print(f"{weight.is_leaf=} {weight.requires_grad=} {weight.dtype=} {layer.weight is weight=}")
draw("layer", layer(x.double()).sum())

# %% [markdown]
# Casting or moving a tensor yourself is an op. The result is not a leaf. The original receives the gradient, in its
# dtype. This is the most common reason for a missing gradient.

# %%
wide = w.double()
w.grad = None
(wide * 2).sum().backward()
show(wide=wide, w=w)
print(f"{w.grad.dtype=}")
draw("cast", wide.sum(), w=w)

# %% [markdown]
# ## Gradients of gradients
#
# With `create_graph` the gradient is itself a result of ops: it is not a leaf and can be differentiated. A constant
# gradient still does not require grad.

# %%
a = torch.tensor(3.0, requires_grad=True)
(first,) = torch.autograd.grad(a**3, a, create_graph=True)
(second,) = torch.autograd.grad(first, a, create_graph=True)
draw("second", second, a=a)
(third,) = torch.autograd.grad(second, a)
print(f"{first.item()=} {second.item()=} {third.item()=} {first.is_leaf=} {third.requires_grad=}")
(constant,) = torch.autograd.grad(a + 2, a, create_graph=True)
show(constant=constant)

# %% [markdown]
# ## Changing a leaf
#
# A leaf that requires grad can be changed in place only under `no_grad`. It remains the same leaf. This is a step of
# gradient descent.

# %%
refused(lambda: w.add_(1))
with torch.no_grad():
    w -= 0.5 * w.grad
show(w=w)

# %% [markdown]
# # Leaves, and where gradients land
#
# Which tensors are leaves, who gets a gradient, how to get one elsewhere, and what leaves the graph.
#
# Run it with `python examples/leaves.py`, which draws into `demo-output/`, or read `examples/leaves.ipynb`. Replace the
# import line by `import torch` and it prints the same; only PyTorch has no pictures.

# %%
import warnings
from pathlib import Path

import gradwire as torch

PICTURES = Path("demo-output")


def draw(name, *tensors, **leaves):
    """The graph behind tensors: shown in a notebook, saved by a script."""
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
    """A line for each tensor: the columns of the table below."""
    for name, t in tensors.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # reading .grad of a tensor that is no leaf warns, see below
            grad = None if t.grad is None else t.grad.tolist()
        node = None if t.grad_fn is None else t.grad_fn.name()
        print(f"{name:8} requires_grad={t.requires_grad!s:5} is_leaf={t.is_leaf!s:5} grad_fn={node} grad={grad}")


def refused(action):
    """What the error says, up to its first full stop."""
    try:
        action()
    except RuntimeError as error:
        print("refused:", str(error).split(".")[0])


# %% [markdown]
# ## The four kinds of tensors
#
# | requires_grad | made by | is_leaf | grad_fn | grad after backward |
# | --- | --- | --- | --- | --- |
# | True | you | True | None | filled, added up |
# | True | an op | False | the op's node | None, unless `retain_grad()` was called before |
# | False | you | True | None | None |
# | False | an op | True, by convention | None | None |
#
# First all four before backward:

# %%
w = torch.tensor([1.0, 2.0], requires_grad=True)  # row 1
x = torch.tensor([3.0, 4.0])  # row 3
scaled = x * 10  # row 4: no input requires grad
product = w * scaled  # row 2
loss = product.sum()  # row 2
show(w=w, product=product, loss=loss, x=x, scaled=scaled)

# %% [markdown]
# The graph is what backward will walk, from `loss` down to the leaves that require grad. `x` and `scaled` are not in
# it: nothing flows to them.

# %%
draw("before", loss, w=w)

# %%
loss.backward()
show(w=w, product=product, loss=loss, x=x, scaled=scaled)

# %% [markdown]
# Only `w` got a gradient; `torch.explain(product)` says in words why `product` got none. Backward also let go of the
# values it had kept: what is grey and dashed is freed, so a second pass is refused.

# %%
draw("after", loss, w=w)
refused(lambda: loss.backward())

# %% [markdown]
# ## retain_grad(): a gradient in the middle
#
# `retain_grad()`, called before backward, makes a tensor that is no leaf keep its gradient. On a leaf that requires
# grad it changes nothing, and on a tensor that needs no gradient it is refused.

# %%
product = w * scaled
product.retain_grad()
product.retain_grad()  # again: nothing new
w.retain_grad()
print(f"{product.retains_grad=} {w.retains_grad=}")
refused(lambda: x.retain_grad())
total = product.sum()
draw("retained", total, w=w)  # the picture marks who keeps its gradient
total.backward()
show(product=product)

# %% [markdown]
# Reading `.grad` where there is none to come gives None, and a warning that says why. Reading a leaf's never warns.

# %%
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    print(f"{x.grad=} {(w * x).grad=}")
print(len(caught), caught[0].category.__name__, "retain_grad" in str(caught[0].message))

# %% [markdown]
# ## .grad adds up
#
# It is None at first. Each backward adds to it, in place: `w` has been through two. It is a leaf itself, needs no
# gradient, and has the tensor's shape and dtype. You may drop it, or set it to a tensor of the same shape.

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
# It is False unless you say otherwise. You may set it on a leaf, before or after; `requires_grad_()` answers the same
# tensor. A tensor that is no leaf requires grad because of what it was made of, so there the flag is not yours:
# `detach()` gives the same values without the history.

# %%
a = torch.ones(2)
print(f"{a.requires_grad=}")
a.requires_grad = True
print(f"{a.requires_grad=} {a.is_leaf=} {a.requires_grad_() is a=}")
b = a * 2
b.requires_grad_(True)  # it is already so
refused(lambda: b.requires_grad_(False))
print(f"{b.detach().requires_grad=} {b.detach().is_leaf=}")

# %% [markdown]
# Whole numbers and truth values have no derivatives:

# %%
refused(lambda: torch.tensor([1, 2], requires_grad=True))
refused(lambda: torch.tensor([True]).requires_grad_())

# %% [markdown]
# ## Which ops pass it on
#
# A result requires grad when any input does, grad mode is on, its dtype is floating or complex, and the op has a
# derivative. Comparisons and `zeros_like` have none.

# %%
show(sum=w + x, compared=w > x, zeros=torch.zeros_like(w), whole=w.to(torch.int64))
with torch.no_grad():
    show(no_grad=w + x)

# %% [markdown]
# ## Parameters
#
# A `Parameter` is a leaf that requires grad. It stays one when its module is cast or moved, and keeps its identity.

# %%
layer = torch.nn.Linear(2, 1)
weight = layer.weight
layer.double()
print(f"{weight.is_leaf=} {weight.requires_grad=} {weight.dtype=} {layer.weight is weight=}")
draw("layer", layer(x.double()).sum())

# %% [markdown]
# A tensor that you cast or move yourself is different: that is an op. The result is no leaf, and the gradient lands on
# the original, in the original's dtype. It is the most common way to wonder where a gradient went.

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
# With `create_graph` the gradient is the result of ops itself: it is no leaf and can be differentiated. A gradient that
# depends on nothing still requires none.

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
# In place, a leaf that requires grad changes only outside the graph. It stays the same leaf: that is a step of gradient
# descent.

# %%
refused(lambda: w.add_(1))
with torch.no_grad():
    w -= 0.5 * w.grad
show(w=w)

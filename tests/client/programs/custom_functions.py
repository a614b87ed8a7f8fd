import torch, math
from torch.autograd import Function, gradcheck, gradgradcheck
from torch.autograd.function import once_differentiable
import torch.nn as nn
from _kit import *

torch.set_default_dtype(torch.float64)


class LegendrePolynomial3(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        return 0.5 * (5 * input**3 - 3 * input)

    @staticmethod
    def backward(ctx, grad_output):
        (input,) = ctx.saved_tensors
        return grad_output * 1.5 * (5 * input**2 - 1)


x = torch.linspace(-math.pi, math.pi, 100)
y = torch.sin(x)
a, b, c, d = [torch.full((), v, requires_grad=True) for v in (0.0, -1.0, 0.0, 0.3)]
for t in range(20):
    P3 = LegendrePolynomial3.apply
    y_pred = a + b * P3(c + d * x)
    loss = (y_pred - y).pow(2).sum()
    loss.backward()
    with torch.no_grad():
        for p in (a, b, c, d):
            p -= 5e-6 * p.grad
            p.grad = None
say(loss.item(), a, b, c, d)


class LinearFunction(Function):
    @staticmethod
    def forward(input, weight, bias):
        output = input.mm(weight.t())
        if bias is not None:
            output += bias.unsqueeze(0).expand_as(output)
        return output

    @staticmethod
    def setup_context(ctx, inputs, output):
        input, weight, bias = inputs
        ctx.save_for_backward(input, weight, bias)

    @staticmethod
    def backward(ctx, grad_output):
        input, weight, bias = ctx.saved_tensors
        gi = gw = gb = None
        if ctx.needs_input_grad[0]:
            gi = grad_output.mm(weight)
        if ctx.needs_input_grad[1]:
            gw = grad_output.t().mm(input)
        if bias is not None and ctx.needs_input_grad[2]:
            gb = grad_output.sum(0)
        return gi, gw, gb


inp = (randn(4, 5).requires_grad_(), randn(3, 5).requires_grad_(), randn(3).requires_grad_())
print(gradcheck(LinearFunction.apply, inp, eps=1e-6, atol=1e-4), gradgradcheck(LinearFunction.apply, inp))


class MulConstant(Function):
    @staticmethod
    def forward(ctx, tensor, constant):
        ctx.constant = constant
        ctx.set_materialize_grads(False)
        return tensor * constant

    @staticmethod
    def backward(ctx, g):
        return None if g is None else (g * ctx.constant), None


t = torch.ones(3, requires_grad=True)
MulConstant.apply(t, 5).sum().backward()
print(t.grad)


class MyReLU(Function):
    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (i,) = ctx.saved_tensors
        gi = g.clone()
        gi[i < 0] = 0
        return gi

    @staticmethod
    def forward(ctx, i):
        ctx.save_for_backward(i)
        return i.clamp(min=0)


class STE(Function):
    @staticmethod
    def forward(ctx, i):
        return (i > 0).to(i.dtype)

    @staticmethod
    def backward(ctx, g):
        return torch.nn.functional.hardtanh(g)


w = randn(5).requires_grad_()
(MyReLU.apply(w) + STE.apply(w)).sum().backward()
say(w.grad)


class GRL(Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g.neg() * ctx.alpha, None


f = det(nn.Linear(3, 2))
GRL.apply(f(randn(4, 3)), 0.5).sum().backward()
say(f.weight.grad)

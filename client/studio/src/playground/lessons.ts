// Lessons: the subjects of examples/leaves.py as short texts with code to change, and a task that the server checks.

export interface Lesson {
  /** In the address. */
  name: string;
  title: string;
  /** Paragraphs of plain text. */
  text: string[];
  code: string;
  task: Task;
}

export type Task =
  /** Change the code until an expression is true after its run. */
  | { kind: "change"; words: string; test: string; hint: string }
  /** Guess the value of an expression after the run. */
  | { kind: "guess"; words: string; value: string; hint: string };

export const FIRST_CODE = `x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
y = (x ** 2).sum()
y.backward()
print(x.grad)
`;

export const LESSONS: readonly Lesson[] = [
  {
    name: "leaf",
    title: "Leaf or not",
    text: [
      "A tensor that you make is a leaf. The result of an operation is not a leaf, if an input requires grad.",
      "backward() stores gradients in the leaves that require grad, and nowhere else.",
    ],
    code: `w = torch.tensor([1.0, 2.0], requires_grad=True)
x = torch.tensor([3.0, 4.0])
scaled = x * 10
product = w * scaled
loss = product.sum()
loss.backward()
print(w.is_leaf, x.is_leaf, scaled.is_leaf, product.is_leaf)
print(w.grad, x.grad)
`,
    task: {
      kind: "change",
      words: "Change the code so that x receives a gradient, too.",
      test: "x.is_leaf and x.grad is not None",
      hint: "x does not require grad. Which argument says that it does?",
    },
  },
  {
    name: "retain-grad",
    title: "Keep a gradient in the middle",
    text: [
      "backward() passes gradients through results such as h, but does not keep them. Then h.grad is None.",
      "retain_grad(), called before backward(), keeps the gradient of a result.",
    ],
    code: `w = torch.tensor([1.0, 2.0], requires_grad=True)
h = w * 3
loss = (h * h).sum()
loss.backward()
print(w.grad)
print(h.grad)
`,
    task: {
      kind: "change",
      words: "Add a line so that h.grad is not None.",
      test: "not h.is_leaf and h.grad is not None",
      hint: "Call h.retain_grad() before loss.backward().",
    },
  },
  {
    name: "accumulation",
    title: "Gradients accumulate: 6, 12, 18",
    text: [
      "The derivative of x ** 2 at 3 is 6. Each backward() adds to x.grad, so this prints 6, 12 and 18.",
      "Training loops therefore clear the gradient before each step.",
    ],
    code: `x = torch.tensor(3.0, requires_grad=True)
for i in range(3):
    y = x ** 2
    y.backward()
    print(x.grad)
`,
    task: {
      kind: "change",
      words: "Change the loop so that each of the three turns prints 6.",
      test: "i == 2 and x.grad.item() == 6",
      hint: "Set x.grad = None at the beginning of each turn.",
    },
  },
  {
    name: "second-derivative",
    title: "Gradients of gradients",
    text: [
      "With create_graph=True, a gradient is itself the result of operations. It can be differentiated again.",
      "Without it, the gradient is a constant, and a second differentiation is refused.",
    ],
    code: `x = torch.tensor(2.0, requires_grad=True)
y = x ** 3
(first,) = torch.autograd.grad(y, x, create_graph=True)
(second,) = torch.autograd.grad(first, x)
print(first, second)
`,
    task: {
      kind: "change",
      words: "Compute the third derivative of x ** 3 as a tensor with the name third.",
      test: "third.item() == 6",
      hint: "second needs create_graph=True, too. Then differentiate it.",
    },
  },
  {
    name: "in-place",
    title: "Changing a value that backward needs",
    text: [
      "The derivative of exp() is its own result, so backward() needs y as exp() made it.",
      "y += 1 changes y in place. backward() notices that, and refuses.",
    ],
    code: `x = torch.tensor([1.0, 2.0], requires_grad=True)
y = x.exp()
y += 1
loss = y.sum()
loss.backward()
print(x.grad)
`,
    task: {
      kind: "change",
      words: "Compute the same loss without the error.",
      test: "abs(loss.item() - 12.1073) < 0.001 and abs(x.grad[0].item() - 2.7183) < 0.001",
      hint: "y = y + 1 makes a new tensor.",
    },
  },
  {
    name: "detach",
    title: "Leave the graph: detach and no_grad",
    text: [
      "detach() gives the same values without their history. Under no_grad() no history is recorded at all.",
      "Here b and c are constants for backward(), although they were computed from w.",
    ],
    code: `w = torch.tensor(2.0, requires_grad=True)
a = w * 3
b = a.detach()
with torch.no_grad():
    c = w * 3
loss = a * b
loss.backward()
print(w.grad, b.requires_grad, c.requires_grad)
`,
    task: {
      kind: "guess",
      words: "How large is the gradient of a * a by w, without detach()?",
      value: "torch.autograd.grad((w * 3) * (w * 3), w)[0].item()",
      hint: "Both factors depend on w now. (3w)² is 9w², whose derivative is 18w.",
    },
  },
  {
    name: "neuron",
    title: "A neuron learns OR",
    text: [
      "A neuron weighs its inputs, adds a bias and applies a sigmoid. The loss says how wrong its answers are.",
      "Each step moves w and b a little against their gradients.",
    ],
    code: `inputs = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
wanted = torch.tensor([0.0, 1.0, 1.0, 1.0])
w = torch.zeros(2, requires_grad=True)
b = torch.tensor(0.0, requires_grad=True)
for step in range(30):
    y = torch.sigmoid(inputs @ w + b)
    loss = F.binary_cross_entropy(y, wanted)
    w.grad = None
    b.grad = None
    loss.backward()
    with torch.no_grad():
        w -= 2.0 * w.grad
        b -= 2.0 * b.grad
print(y)
`,
    task: {
      kind: "change",
      words: "Let the neuron learn AND instead: only the last answer is 1.",
      test: "wanted.tolist() == [0.0, 0.0, 0.0, 1.0] and ((y > 0.5).float() == wanted).all()",
      hint: "Change wanted. Then take enough steps that each y is on the right side of 0.5.",
    },
  },
  {
    name: "descent",
    title: "Gradient descent on a surface",
    text: [
      "The function f is a curved valley. Each step moves the point p against the gradient of f.",
      "The drawing shows lines of equal height and the path. It is drawn for any f of two numbers and a list path.",
    ],
    code: `def f(x, y):
    return (1 - x) ** 2 + 2 * (y - x ** 2) ** 2

p = torch.tensor([-1.5, 2.0], requires_grad=True)
path = [p.tolist()]
for step in range(25):
    loss = f(p[0], p[1])
    p.grad = None
    loss.backward()
    with torch.no_grad():
        p -= 0.05 * p.grad
    path.append(p.tolist())
print(p, loss)
`,
    task: {
      kind: "change",
      words: "Reach a loss below 0.05 by other steps. What happens with steps that are too large?",
      test: "loss.item() < 0.05",
      hint: "Take more steps, or larger ones. Too large ones leave the valley.",
    },
  },
];

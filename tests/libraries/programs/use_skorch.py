"""A classifier with scikit-learn's interface, in a pipeline."""

import numpy as np
import torch
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetClassifier

torch.manual_seed(0)
rng = np.random.default_rng(0)
X = rng.normal(size=(120, 4)).astype(np.float32)
y = (X[:, 0] + X[:, 1] > 0).astype(np.int64)


class Net(torch.nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.ReLU(), torch.nn.Linear(width, 2))

    def forward(self, X):
        return torch.softmax(self.body(X), dim=-1)


net = NeuralNetClassifier(Net, max_epochs=20, lr=0.5, verbose=0, module__width=8, iterator_train__shuffle=True)
pipe = Pipeline([("scale", StandardScaler()), ("net", net)])
pipe.fit(X, y)
assert pipe.score(X, y) > 0.8, pipe.score(X, y)
assert pipe.predict_proba(X).shape == (120, 2)
net.save_params(f_params="params.pt")
again = NeuralNetClassifier(Net, module__width=8).initialize()
again.load_params(f_params="params.pt")

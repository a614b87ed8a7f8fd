"""The reverse graph as the client sees it: nodes, hooks, pictures."""

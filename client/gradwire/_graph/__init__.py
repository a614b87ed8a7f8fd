"""The reverse graph in the client: nodes, hooks, pictures."""

"""Tensors, and the reverse graph behind them: nodes, edges and hooks."""

"""Functions of tensors: made above Tensor, of its ops and of what the server answers."""

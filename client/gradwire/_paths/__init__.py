"""PyTorch's module paths that have no file here: tables of what each has, and the finder that makes modules of them."""

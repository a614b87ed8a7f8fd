"""Functions on tensors: creation, backward, random numbers, exchange with other libraries."""

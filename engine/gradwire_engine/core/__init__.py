"""What all of the engine stands on: errors, the context of a computation, devices, dtypes, random numbers."""

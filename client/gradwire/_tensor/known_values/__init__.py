"""Known values: small values that the client finds out without a wait for each.

One read brings the values of all items of a small tensor (`items.py`). The client draws small random numbers as the
server does, from a copy of the generator's state (`drawn.py`). Comparisons of such values are exact (`compared.py`).
A value is known while neither its tensor nor its source was written. All others are read from the server.
"""

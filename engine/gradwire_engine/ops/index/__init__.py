"""Ops that select or arrange elements by index or by order: gather, scatter, embedding, sort, unique."""

from gradwire_engine.ops.index import arrange, embedding, embedding_bag, gather, index, scatters, sets, sort

__all__ = ["arrange", "embedding", "embedding_bag", "gather", "index", "scatters", "sets", "sort"]

"""Stored sessions: snapshots, the write-ahead log, and files of tensors."""

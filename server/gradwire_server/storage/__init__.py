"""Sessions on disk: snapshots, the write-ahead log, and files of tensors."""

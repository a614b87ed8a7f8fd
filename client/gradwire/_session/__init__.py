"""Sessions: batches of commands, their answers in order, deferred errors, snapshots."""

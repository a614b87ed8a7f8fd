"""What one session holds: its tensors, schedule, usage, durability, hooks, transfers. It contains no command."""

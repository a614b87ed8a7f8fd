"""The front's side of the workers: starts and stops them, sends their calls and receives the answers."""

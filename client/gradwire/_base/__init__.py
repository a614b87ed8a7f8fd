"""What the whole client stands on: errors, dtypes, modes, signals. No server is needed."""

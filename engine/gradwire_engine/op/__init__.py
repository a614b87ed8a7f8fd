"""The machinery of ops: declaration, signature, checks, cost, values saved for backward."""

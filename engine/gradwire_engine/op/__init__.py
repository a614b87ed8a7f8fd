"""What an op is: its signature, its checks, its cost, and what it saves for backward."""

"""The cluster: starts servers on several machines, and places new sessions. Only `gradwire cluster` imports it."""

"""Prepared ops: ops that a session names once, and the packed calls of them."""

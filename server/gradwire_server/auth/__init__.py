"""Authentication: tokens, TLS, principals, and the interceptor that checks callers."""

"""Who calls: tokens, TLS, principals, and the interceptor that checks them."""

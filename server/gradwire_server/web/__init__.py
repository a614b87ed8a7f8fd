"""Web gateway: speaks Connect, gRPC-Web, WebSocket and plain HTTP to browsers, and gRPC to a server."""

"""Addresses: text forms of hosts and ports, and which of them only this machine can reach."""

import ipaddress

LAST_PORT = 65535


def is_loopback(host: str) -> bool:
    """Whether a host's address is reachable only from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def address_of(host: str, port: int) -> str:
    """Host and port as one address; IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def parsed_address(text: str) -> tuple[str, int]:
    """Parse "HOST:PORT" or "PORT" of 127.0.0.1. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > LAST_PORT or (colon and not host):
        raise ValueError(f"an address is HOST:PORT, or a port of 127.0.0.1, not {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)

"""Peer: whether another server answers at its address, without credentials.

An HTTP/2 server sends its SETTINGS as soon as a connection begins. A stopped process does not, although the kernel
accepts the connection. With TLS the handshake shows as much. A server that asks for certificates ends the connection
after it: in TLS 1.3 the client is done before the server has seen that there is no certificate.
"""

import socket
import ssl

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_EMPTY_SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
_SETTINGS_TYPE = 4
_FRAME_HEAD = 9  # bytes


def answers(endpoint: str, tls: bool, seconds: float = 1.0) -> bool:
    """Whether a gRPC server answers at HOST:PORT within about so many seconds."""
    host, _, port = endpoint.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), seconds) as plain:
            if tls:
                with _unverified().wrap_socket(plain) as encrypted:
                    return encrypted.selected_alpn_protocol() == "h2"
            plain.sendall(_PREFACE + _EMPTY_SETTINGS)
            head = b""
            while len(head) < _FRAME_HEAD:
                received = plain.recv(_FRAME_HEAD - len(head))
                if not received:
                    return False
                head += received
            return head[3] == _SETTINGS_TYPE
    except ssl.SSLError as error:
        return "alert" in str(error).lower()  # the peer requires a certificate, so it runs
    except (OSError, ValueError):
        return False


def _unverified() -> ssl.SSLContext:
    """TLS without trust: the peer is only asked whether it runs."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context

"""Options of a gateway, as one value that also travels to a child process as JSON. Imports nothing of the extra."""

import json
from dataclasses import asdict, dataclass

from gradwire_server.common.addresses import is_loopback


@dataclass(frozen=True)
class GatewayOptions:
    """Where the server is, how the gateway listens, and what it allows. Paths are of PEM files; times are seconds."""

    #: The server: "host:port" or "unix:path".
    server: str
    #: TLS towards the server: authorities, and the name in the server's certificate if it is not the address.
    server_tls: bool = False
    server_ca: str = ""
    server_name: str = ""
    #: A certificate that the server demands of connections. It names no user: callers still need a token.
    client_cert: str = ""
    client_key: str = ""
    #: The gateway's own certificate.
    tls_cert: str = ""
    tls_key: str = ""
    #: Origins besides the gateway's own, such as "https://lab.example.org".
    origins: tuple[str, ...] = ()
    #: Whether a request without a credential is refused here, whatever the server would say.
    credentials_required: bool = False
    #: Whether the server must be known to refuse unknown tokens: the gateway's port can be reached by others.
    tokens_checked: bool = False
    #: The folder whose event files Studio draws; empty for none.
    logdir: str = ""
    log_format: str = "plain"
    log_level: str = "info"
    max_connections: int = 1024
    max_header_bytes: int = 16 << 10
    max_message_bytes: int = 8 << 20  # of a WebSocket's message, before the server's own limit is known
    header_seconds: float = 10.0
    body_seconds: float = 60.0  # for a unary request's body, or for one chunk of an upload
    write_seconds: float = 30.0  # in which a client must read what the buffer holds
    keep_alive_seconds: int = 30
    grace_seconds: float = 2.0
    login_seconds: float = 12 * 3600.0
    max_logins: int = 4096
    max_channels: int = 256
    max_user_streams: int = 64
    idle_channel_seconds: float = 300.0
    most_buffered_bytes: int = 256 << 20  # of all requests' bodies together

    @property
    def metadata_in_clear(self) -> bool:
        """Whether tokens leave this machine unencrypted on their way to the server."""
        encrypted = self.server_tls or self.server_ca or self.client_cert
        return not (encrypted or self.server.startswith("unix:") or is_loopback(self.server.rpartition(":")[0]))

    def to_json(self) -> str:
        """The options as JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> "GatewayOptions":
        """Options from `to_json`'s text."""
        fields = json.loads(text)
        return GatewayOptions(**{**fields, "origins": tuple(fields["origins"])})

"""Settings: declares each setting of `gradwire serve` once, for its flag, variable GRADWIRE_<NAME> and --config key.

The command line, its help, the variables' names, the file's keys and the table in docs/operations.md (`make generate`)
derive from these declarations. configuration.py defines which source wins.
"""

from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import AfterValidator, ByteSize, Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from gradwire_server.app.gateway_setup import origins_of
from gradwire_server.common.addresses import LAST_PORT, parsed_address
from gradwire_server.common.limits import Limits

_DEFAULT = Limits()
_MOST_BYTES = (1 << 29) - 1  # of a message: gRPC's cap is four times as much, in 31 bits
_MOST = 1 << 62
_LONGEST = 4_000_000.0  # seconds; leases travel as milliseconds in 32 bits


PREFIX = "GRADWIRE_"
if TYPE_CHECKING:
    Bytes: TypeAlias = int
else:
    Bytes = Annotated[ByteSize, AfterValidator(int)]  # a number, or a text such as "8MiB"
# The help's placeholder for a text.
File = Annotated[str, "FILE"]
Folder = Annotated[str, "DIRECTORY"]
Address = Annotated[str, "HOST:PORT"]
Url = Annotated[str, "URL"]


class Settings(BaseSettings):
    """All settings. `Settings()` reads the environment; keyword arguments override it."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, extra="forbid")

    host: str = Field(
        "127.0.0.1",
        description="Address to listen at; one that others can reach needs TLS and authentication, or --insecure-bind.",
    )
    port: int = Field(50051, ge=0, le=LAST_PORT, description="Port to listen at; 0 picks a free one.")
    insecure_bind: bool = Field(
        False,
        description="Listen at an address that others can reach, even without encryption or authentication.",
    )
    local_streams: bool = Field(
        True,
        description="Serve this user's local clients by a Unix socket, without gRPC, unless tokens or TLS are "
        "configured.",
    )
    token_file: File = Field("", description="File of the accepted tokens, a line each as `gradwire token` makes them.")
    tls_cert: File = Field("", description="PEM file of the server's certificate chain; encrypts connections.")
    tls_key: File = Field("", description="PEM file of the key of --tls-cert, without password.")
    tls_client_ca: File = Field(
        "", description="PEM file of the authorities for clients' certificates; every connection then needs one."
    )
    log_format: Literal["plain", "json"] = Field("plain", description="Format of log lines.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Lowest severity to log.")
    metrics: Address = Field(
        "",
        description="Address of the Prometheus metrics, or a port of 127.0.0.1; it has no authentication.",
    )
    web: Address = Field(
        "",
        description="Address of the gateway for browsers, or a port of 127.0.0.1; others reach it only with tokens.",
    )
    web_origins: Annotated[str, "ORIGINS"] = Field(
        "",
        description="Origins of web pages that may call the gateway, besides its own: https://HOST, separated by "
        "commas.",
    )
    traces: Url = Field(
        "",
        description="URL of an OpenTelemetry collector for sampled calls, such as http://HOST:4318/v1/traces.",
    )
    grace_seconds: float = Field(
        10.0, ge=0, le=_LONGEST, description="Seconds that running calls may take to finish at shutdown."
    )
    workers: int = Field(
        -1,
        ge=-1,
        le=1024,
        description="Worker processes; -1 is one per GPU, or one per core without a GPU; 0 computes in the server's "
        "process.",
    )
    blas_threads: int = Field(
        0,
        ge=0,
        description="BLAS threads of each worker; 0 divides the cores among busy workers, unless "
        "OPENBLAS_NUM_THREADS or the like is set.",
    )
    jit: Literal["on", "off", "verify"] = Field(
        _DEFAULT.jit,
        description="Compile steps of plans and ops on large arrays to machine code, if llvmlite is installed. On "
        "GPUs, compile ops to CUDA kernels. verify also computes them by NumPy or CuPy and refuses different results.",
    )
    max_connections: int = Field(
        _DEFAULT.max_connections, ge=1, le=1 << 20, description="Open connections; further ones are closed immediately."
    )
    max_connection_calls: int = Field(
        _DEFAULT.max_connection_calls,
        ge=1,
        le=1 << 20,
        description="Active calls on one connection; further ones wait in the client.",
    )
    max_calls: int = Field(
        _DEFAULT.max_calls, ge=1, le=1 << 30, description="Active calls of all connections; further ones are refused."
    )
    handshake_seconds: float = Field(
        _DEFAULT.handshake_seconds,
        gt=0,
        le=3600,
        description="Seconds in which a connection must complete TLS and start HTTP/2.",
    )
    idle_connection_seconds: float = Field(
        _DEFAULT.idle_connection_seconds,
        ge=1,
        le=_LONGEST / 2,
        description="Seconds after which a connection without calls is closed; clients reconnect by themselves.",
    )
    max_message_bytes: Bytes = Field(
        _DEFAULT.max_message_bytes, ge=1 << 16, le=_MOST_BYTES, description="Bytes of one message."
    )
    max_inline_bytes: Bytes = Field(
        _DEFAULT.max_inline_bytes,
        ge=1 << 10,
        le=_MOST,
        description="Bytes of a payload in a message; larger ones travel in chunks.",
    )
    max_tensor_bytes: Bytes = Field(
        _DEFAULT.max_tensor_bytes, ge=1 << 10, le=_MOST, description="Bytes of one uploaded tensor."
    )
    max_session_bytes: Bytes = Field(
        _DEFAULT.max_session_bytes,
        ge=0,
        le=_MOST,
        description="Bytes one session may hold; 0 is half of the memory; with GPUs, at most nine tenths of one.",
    )
    max_bytes: Bytes = Field(
        _DEFAULT.max_bytes,
        ge=0,
        le=_MOST,
        description="Bytes all sessions may hold; 0 is four fifths of the memory, or of the GPUs' if that is less.",
    )
    max_session_tensors: int = Field(
        _DEFAULT.max_session_tensors, ge=1, le=_MOST, description="Tensors one session may name."
    )
    max_sessions: int = Field(_DEFAULT.max_sessions, ge=1, le=_MOST, description="Sessions open at once.")
    max_principal_sessions: int = Field(
        _DEFAULT.max_principal_sessions, ge=0, le=_MOST, description="Sessions of one principal; 0 sets no limit."
    )
    max_principal_bytes: Bytes = Field(
        _DEFAULT.max_principal_bytes,
        ge=0,
        le=_MOST,
        description="Bytes all sessions of one principal may hold; 0 sets no limit.",
    )
    max_principal_tensors: int = Field(
        _DEFAULT.max_principal_tensors,
        ge=0,
        le=_MOST,
        description="Tensors all sessions of one principal may name; 0 sets no limit.",
    )
    max_principal_programs: int = Field(
        _DEFAULT.max_principal_programs,
        ge=0,
        le=_MOST,
        description="Programs all sessions of one principal may hold; 0 sets no limit.",
    )
    max_session_compute_seconds: float = Field(
        _DEFAULT.max_session_compute_seconds,
        ge=0,
        le=_LONGEST,
        description="Seconds one session may compute within a minute; then it waits. 0 sets no limit.",
    )
    max_principal_compute_seconds: float = Field(
        _DEFAULT.max_principal_compute_seconds,
        ge=0,
        le=_LONGEST,
        description="Seconds all sessions of one principal may compute within a minute; 0 sets no limit.",
    )
    max_op_operations: int = Field(
        _DEFAULT.max_op_operations,
        ge=0,
        le=_MOST,
        description="Operations that one op may take, estimated from its operands; one is about a nanosecond of a "
        "core. 0 sets no limit.",
    )
    hold_seconds: float = Field(
        _DEFAULT.hold_seconds,
        ge=0,
        le=_LONGEST,
        description="Seconds that one call may block a worker; then the worker is restarted. 0 sets no limit.",
    )
    max_session_inflight_bytes: Bytes = Field(
        _DEFAULT.max_session_inflight_bytes,
        ge=0,
        le=_MOST,
        description="Bytes of one session's unanswered requests; beyond, its streams are not read and its other calls "
        "are refused. 0 sets no limit.",
    )
    max_principal_inflight_bytes: Bytes = Field(
        _DEFAULT.max_principal_inflight_bytes,
        ge=0,
        le=_MOST,
        description="Bytes of one principal's unanswered requests; 0 sets no limit.",
    )
    max_batch_commands: int = Field(_DEFAULT.max_batch_commands, ge=1, le=_MOST, description="Commands of one batch.")
    chunk_bytes: Bytes = Field(
        _DEFAULT.chunk_bytes, ge=1 << 10, le=_MOST, description="Bytes of one chunk of Upload and Download."
    )
    max_shared_bytes: Bytes = Field(
        _DEFAULT.max_shared_bytes,
        ge=0,
        le=_MOST,
        description="Bytes of shared memory for transfers with this user's clients on this machine; 0 for none.",
    )
    lease_seconds: float = Field(
        _DEFAULT.lease_seconds,
        gt=0,
        le=_LONGEST,
        description="Seconds that a session lives without traffic, unless it requests another lease.",
    )
    max_lease_seconds: float = Field(
        _DEFAULT.max_lease_seconds,
        gt=0,
        le=_LONGEST,
        description="Longest lease in seconds that a session may request.",
    )
    gap_seconds: float = Field(
        _DEFAULT.gap_seconds,
        ge=0,
        le=_LONGEST,
        description="Seconds that a batch waits for an earlier one that has not arrived.",
    )

    state_dir: Folder = Field(
        "",
        description="Directory of stored sessions, which then outlive their lease and the server.",
    )
    endpoint: Address = Field(
        "",
        description="Address of this server for clients and other servers; servers with one may share a --state-dir.",
    )
    placement: File = Field(
        "",
        description="Unix socket that names the server for a new session; `gradwire cluster` sets it.",
    )
    durability: Literal["snapshot", "log"] = Field(
        "snapshot",
        description="What survives a crash: the last snapshot, or with log everything answered; log needs --state-dir.",
    )
    snapshot_every: float = Field(
        300.0,
        ge=0,
        le=_LONGEST,
        description="Seconds between snapshots of changed sessions; 0 takes none periodically.",
    )
    state_grace: float = Field(
        604_800.0, ge=0, le=_LONGEST, description="Seconds that an unused session is kept in --state-dir."
    )
    snapshot_dir: Folder = Field(
        "", description="Directory of named snapshots, which servers may share; default: in --state-dir."
    )
    snapshot_store: Annotated[str, "MODULE:CLASS"] = Field(
        "",
        description="Python class of another store for snapshots, as module:class?name=value; default: --state-dir.",
    )
    max_principal_stored_sessions: int = Field(
        10_000,
        ge=0,
        le=_MOST,
        description="Unused sessions of one principal in --state-dir; the oldest are deleted first. 0 sets no limit.",
    )
    max_principal_snapshots: int = Field(
        100, ge=0, le=_MOST, description="Named snapshots of one principal; 0 sets no limit."
    )
    max_principal_snapshot_bytes: Bytes = Field(
        0,
        ge=0,
        le=_MOST,
        description="Bytes on disk of one principal's named snapshots, and separately of its unused sessions; 0 sets "
        "no limit.",
    )
    max_snapshot_seconds: float = Field(
        0.0, ge=0, le=_LONGEST, description="Seconds that named snapshots are kept at most; 0 sets no limit."
    )

    files_dir: Folder = Field(
        "",
        description="Directory of the files that clients write with save(..., on='server'); default: in --state-dir.",
    )
    max_principal_files: int = Field(
        100, ge=0, le=_MOST, description="Files of one principal on the server's disk; 0 sets no limit."
    )
    max_principal_file_bytes: Bytes = Field(
        0, ge=0, le=_MOST, description="Bytes of one principal's files on the server's disk; 0 sets no limit."
    )

    @model_validator(mode="after")
    def _stores_somewhere(self) -> "Settings":
        if self.durability == "log" and not self.state_dir:
            raise ValueError("--durability=log needs --state-dir")
        if self.endpoint:
            parsed_address(self.endpoint)
            if not self.state_dir:
                raise ValueError("--endpoint needs --state-dir, which the servers share")
            if self.snapshot_store:
                raise ValueError("--endpoint and --snapshot-store exclude each other: owners are folders")
        if self.placement and not self.endpoint:
            raise ValueError("--placement needs --endpoint")
        if self.snapshot_store and not self.state_dir:
            raise ValueError("--snapshot-store needs --state-dir, which holds the server's lock")
        if self.snapshot_store and self.durability == "log":
            raise ValueError(
                "--snapshot-store and --durability=log exclude each other: a log is a file beside snapshots"
            )
        return self

    @model_validator(mode="after")
    def _tls_is_whole(self) -> "Settings":
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ValueError("--tls-cert and --tls-key go together")
        if self.tls_client_ca and not self.tls_cert:
            raise ValueError("--tls-client-ca needs --tls-cert and --tls-key")
        return self

    @field_validator("metrics", "web")
    @classmethod
    def _is_an_address(cls, given: str) -> str:
        if given:
            parsed_address(given)
        return given

    @field_validator("web_origins")
    @classmethod
    def _are_origins(cls, given: str) -> str:
        origins_of(given)
        return given

    @model_validator(mode="after")
    def _web_knows_its_users(self) -> "Settings":
        if self.web and self.tls_client_ca and not self.token_file:
            raise ValueError(
                "--web beside --tls-client-ca needs --token-file: a browser's certificate does not reach the server"
            )
        return self

    @property
    def metrics_address(self) -> tuple[str, int]:
        """Host and port of the metrics; `metrics` must be set."""
        return parsed_address(self.metrics)

    @property
    def unguarded(self) -> str:
        """The missing protection for a port that others can reach; empty if none is missing."""
        lacking = [] if self.tls_cert else ["encryption (--tls-cert, --tls-key)"]
        lacking += [] if self.token_file or self.tls_client_ca else ["authentication (--token-file or --tls-client-ca)"]
        return " and no ".join(lacking)

    def limits(self) -> Limits:
        """The settings that are limits."""
        named = {field.name: getattr(self, field.name) for field in fields(Limits) if hasattr(self, field.name)}
        return Limits(**named)

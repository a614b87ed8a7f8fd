//! Errors: refusals of the server, and what went wrong on the way to it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use prost::Message;
use tonic::{Code, Status};

use crate::proto;

/// Why a command was refused. The set is closed.
pub use crate::proto::Reason;

/// The result of what can fail in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of any kind, as hooks return it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What can go wrong. Match on [`Error::reason`] to tell refusals apart:
///
/// ```ignore
/// match failed.reason() {
///     Some(Reason::Shape) => …,
///     Some(Reason::LeafInPlace) => …,
///     _ => …,
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The server refused a command, or this crate found the mistake before it sent anything.
    Refused(Box<Refusal>),
    /// The server cannot be reached, or gave no answer for as long as the session tries.
    Connection {
        /// The status code of gRPC.
        code: Code,
        /// What gRPC says.
        message: String,
    },
    /// The session is closed.
    Closed,
    /// An error that a hook returned.
    Hook(Arc<dyn std::error::Error + Send + Sync>),
}

/// A refused command. It changed nothing on the server.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// What is wrong, for programs.
    pub reason: Reason,
    /// The gRPC status code that belongs to the reason.
    pub code: Code,
    /// What is wrong, for people, in PyTorch's words where PyTorch has some.
    pub message: String,
    /// Name of the refused op; empty if there is none.
    pub op: String,
    /// The parameter or field at fault; empty if it is not one alone.
    pub argument: String,
    /// Shape of the op's first tensor, if told.
    pub shape: Option<Vec<i64>>,
    /// All details. The keys depend on the reason.
    pub metadata: HashMap<String, String>,
    /// The command that failed first, if this one only depends on it; otherwise 0.
    pub root_seq: u64,
}

impl Error {
    /// The reason of a refusal; `None` for other errors.
    pub fn reason(&self) -> Option<Reason> {
        self.refusal().map(|refusal| refusal.reason)
    }

    /// The refusal with all its details; `None` for other errors.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Error::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    pub(crate) fn refused(reason: Reason, op: &str, message: impl Into<String>) -> Error {
        Error::Refused(Box::new(Refusal {
            reason,
            code: Code::InvalidArgument,
            message: message.into(),
            op: op.to_owned(),
            argument: String::new(),
            shape: None,
            metadata: HashMap::new(),
            root_seq: 0,
        }))
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Error {
        Error::Connection { code: Code::Unavailable, message: message.into() }
    }

    pub(crate) fn from_proto(told: proto::Error) -> Error {
        let detail = |key: &str| told.metadata.get(key).cloned().unwrap_or_default();
        Error::Refused(Box::new(Refusal {
            reason: told.reason(),
            code: Code::from(told.code),
            op: detail("op"),
            argument: detail("argument"),
            shape: parse_shape(&detail("shape")),
            message: told.message,
            metadata: told.metadata,
            root_seq: told.root_seq,
        }))
    }

    /// The refusal in a call's trailer, or the status itself if the connection failed.
    pub(crate) fn from_status(status: &Status) -> Error {
        let told = status.metadata().get_bin("gradwire-error-bin").and_then(|value| value.to_bytes().ok());
        match told.map(proto::Error::decode) {
            Some(Ok(told)) => Error::from_proto(told),
            _ => Error::Connection { code: status.code(), message: described(status) },
        }
    }

    /// The same error with a sentence after its message.
    pub(crate) fn with_advice(self, advice: &str) -> Error {
        let longer = |message: String| format!("{message}. {advice}");
        match self {
            Error::Refused(mut refusal) => {
                refusal.message = longer(refusal.message);
                Error::Refused(refusal)
            }
            Error::Connection { code, message } => Error::Connection { code, message: longer(message) },
            other => other,
        }
    }

    /// Whether the same call may succeed later.
    pub(crate) fn may_retry(&self) -> bool {
        match self {
            Error::Refused(refusal) => {
                matches!(refusal.reason, Reason::Unavailable | Reason::StreamTaken | Reason::SessionMoved)
            }
            Error::Connection { code, .. } => !matches!(code, Code::Unimplemented | Code::InvalidArgument),
            _ => false,
        }
    }

    /// Whether the connection failed because of the server's certificate: trying again does not help.
    pub(crate) fn distrusts(&self) -> bool {
        matches!(self, Error::Connection { message, .. } if message.contains("certificate"))
    }

    /// Of SESSION_MOVED: the address of the server that has the session; empty if not known.
    pub(crate) fn moved_to(&self) -> Option<&str> {
        let refusal = self.refusal().filter(|refusal| refusal.reason == Reason::SessionMoved)?;
        Some(refusal.metadata.get("endpoint").map_or("", String::as_str))
    }
}

/// The status's message with its causes: tonic's own message of a broken connection is "transport error".
fn described(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        let told = error.to_string();
        if !text.contains(&told) {
            text = format!("{text}: {told}");
        }
        cause = error.source();
    }
    text
}

/// Reads "[2, 3]".
fn parse_shape(text: &str) -> Option<Vec<i64>> {
    let inside = text.strip_prefix('[')?.strip_suffix(']')?;
    inside.split(',').map(str::trim).filter(|part| !part.is_empty()).map(|part| part.parse().ok()).collect()
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Refused(refusal) => {
                let name = refusal.reason.as_str_name().trim_start_matches("REASON_");
                if refusal.op.is_empty() {
                    write!(f, "{} ({name})", refusal.message)
                } else {
                    write!(f, "{}: {} ({name})", refusal.op, refusal.message)
                }
            }
            Error::Connection { code, message } => write!(f, "{message} ({code:?})"),
            Error::Closed => f.write_str("the session is closed"),
            Error::Hook(error) => write!(f, "a hook failed: {error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Hook(error) => Some(error.as_ref()),
            _ => None,
        }
    }
}

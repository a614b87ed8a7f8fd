//! How a session is opened.

use std::time::Duration;

use crate::error::{Error, Reason};

/// How [`Session::connect_with`](crate::Session::connect_with) opens a session.
#[derive(Clone, Debug)]
#[must_use]
pub struct ConnectOptions {
    pub(crate) token: Option<String>,
    pub(crate) lease: Duration,
    pub(crate) patience: Duration,
    pub(crate) client: String,
    pub(crate) device_type: String,
    pub(crate) local_stream: bool,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<tonic::transport::ClientTlsConfig>,
}

impl Default for ConnectOptions {
    fn default() -> ConnectOptions {
        ConnectOptions {
            token: None,
            lease: Duration::ZERO,
            patience: Duration::from_secs(120),
            client: format!("gradwire-rust/{}", env!("CARGO_PKG_VERSION")),
            device_type: String::new(),
            local_stream: std::env::var("GRADWIRE_LOCAL_STREAM").as_deref() != Ok("0"),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }
}

impl ConnectOptions {
    /// Authenticates every call with "authorization: Bearer <token>".
    pub fn token(mut self, token: impl Into<String>) -> ConnectOptions {
        self.token = Some(token.into());
        self
    }

    /// Asks for a lease: how long the session lives without traffic. The session renews it until it is closed.
    pub fn lease(mut self, lease: Duration) -> ConnectOptions {
        self.lease = lease;
        self
    }

    /// Sets how long a broken connection is tried again before the session fails. The default is 120 seconds.
    pub fn patience(mut self, patience: Duration) -> ConnectOptions {
        self.patience = patience;
        self
    }

    /// Asks for the type of a device that the session needs, such as "cuda". A cluster opens it at a server that has one.
    /// If no server has, the reason of the error is DEVICE_UNAVAILABLE.
    pub fn device_type(mut self, device_type: impl Into<String>) -> ConnectOptions {
        self.device_type = device_type.into();
        self
    }

    /// Sets the name that the server's log shows.
    pub fn client_name(mut self, name: impl Into<String>) -> ConnectOptions {
        self.client = name.into();
        self
    }

    /// Whether the stream uses a Unix socket if the server is on this machine and of this user: the default, unless the
    /// environment has GRADWIRE_LOCAL_STREAM=0. Only Linux has such sockets.
    pub fn local_stream(mut self, local: bool) -> ConnectOptions {
        self.local_stream = local;
        self
    }

    /// Encrypts the connection, and trusts the system's authorities.
    #[cfg(feature = "tls")]
    pub fn tls(mut self) -> ConnectOptions {
        self.tls = Some(self.tls.unwrap_or_default().with_native_roots());
        self
    }

    /// Encrypts the connection, and trusts the authorities of a PEM text.
    #[cfg(feature = "tls")]
    pub fn ca(mut self, pem: impl AsRef<[u8]>) -> ConnectOptions {
        let authority = tonic::transport::Certificate::from_pem(pem);
        self.tls = Some(self.tls.unwrap_or_default().ca_certificate(authority));
        self
    }

    /// Authenticates with a client certificate and its key, as PEM texts.
    #[cfg(feature = "tls")]
    pub fn identity(mut self, certificate: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> ConnectOptions {
        let identity = tonic::transport::Identity::from_pem(certificate, key);
        self.tls = Some(self.tls.unwrap_or_default().identity(identity));
        self
    }

    /// Expects this name in the server's certificate, instead of the host of the address.
    #[cfg(feature = "tls")]
    pub fn server_name(mut self, name: impl Into<String>) -> ConnectOptions {
        self.tls = Some(self.tls.unwrap_or_default().domain_name(name));
        self
    }
}

impl ConnectOptions {
    /// The error of opening a session, with what to do about it where that is known.
    pub(crate) fn advised(&self, error: Error) -> Error {
        let advice = match &error {
            Error::Refused(refusal) if refusal.reason == Reason::Unauthenticated => match &self.token {
                None => "No token was given: use ConnectOptions::token. `gradwire token NAME` makes one.",
                Some(_) => "The token of ConnectOptions::token is unknown to this server, or has expired.",
            },
            Error::Connection { message, .. } => self.about_connection(message, error.distrusts()),
            _ => "",
        };
        if advice.is_empty() { error } else { error.with_advice(advice) }
    }

    fn about_connection(&self, message: &str, distrusts: bool) -> &'static str {
        #[cfg(feature = "tls")]
        let encrypts = self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        let encrypts = false;
        let has = |text: &str| message.to_lowercase().contains(text);
        if distrusts {
            "The server's certificate is not trusted: give the authority that signed it by ConnectOptions::ca, and connect \
             to a name that the certificate contains."
        } else if has("connection refused") {
            "No server listens there: start `gradwire serve`, or check the host and the port."
        } else if has("lookup address") || has("dns error") {
            "The host's name cannot be resolved: check its spelling, or give its IP address."
        } else if encrypts && has("corrupt message") {
            "The server seems not to use TLS: leave out ConnectOptions::tls and ConnectOptions::ca."
        } else if !encrypts && (has("broken pipe") || has("reset by peer") || has("http2 error") || has("frame")) {
            "The server seems to use TLS: give the authority that signed its certificate by ConnectOptions::ca, or use \
             ConnectOptions::tls for a public one."
        } else {
            ""
        }
    }
}

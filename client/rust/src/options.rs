//! How a session is opened.

use std::time::Duration;

/// How [`Session::connect_with`](crate::Session::connect_with) opens a session.
#[derive(Clone, Debug)]
#[must_use]
pub struct ConnectOptions {
    pub(crate) token: Option<String>,
    pub(crate) lease: Duration,
    pub(crate) patience: Duration,
    pub(crate) client: String,
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
            local_stream: false,
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

    /// Sets the name that the server's log shows.
    pub fn client_name(mut self, name: impl Into<String>) -> ConnectOptions {
        self.client = name.into();
        self
    }

    /// Uses a Unix socket for the stream if the server is on this machine and of this user. Otherwise it changes
    /// nothing. Only Linux has it.
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

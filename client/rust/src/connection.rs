//! The connection to the server that has the session, or to the next one that may have it.

use std::future::Future;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};

use crate::error::{Error, Reason, Result};
use crate::lock;
use crate::options::ConnectOptions;
use crate::proto::autograd_service_client::AutogradServiceClient;
use crate::writer::{FIRST_PAUSE, LONGEST_PAUSE};

/// The stub of the unary calls; see [`Session::unary`](crate::Session::unary).
pub type Client = AutogradServiceClient<Service>;

/// A channel that sends the token.
pub(crate) type Service = InterceptedService<Channel, Bearer>;

/// Bytes that may be under way: enough for a fast connection.
const WINDOW: u32 = 8 << 20;

/// How long an unreachable server is tried while a session is opened. Later the session's patience counts.
const OPENING: Duration = Duration::from_secs(5);

/// Adds the token to each call.
#[derive(Clone)]
pub struct Bearer(Option<MetadataValue<Ascii>>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> std::result::Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("authorization", token.clone());
        }
        Ok(request)
    }
}

/// Where the session is: the seeds, and the server in use.
pub(crate) struct Connection {
    seeds: Vec<String>,
    bearer: Bearer,
    pub options: ConnectOptions,
    current: Mutex<Current>,
    local: Mutex<LocalStream>,
}

struct Current {
    address: String,
    next: usize, // of the seeds
    channel: Channel,
}

/// The Unix socket of a server.
#[derive(Default)]
struct LocalStream {
    name: String,
    address: String, // of its server
    rejected: u32,   // streams in a row that ended before they attached
}

/// How often a local stream may end before it attaches; then one goes by gRPC.
const MOST_REJECTED: u32 = 2;

impl Connection {
    /// Prepares to connect to one of the servers, "host:port,host:port". Call it in the session's runtime.
    pub fn new(addresses: &str, options: ConnectOptions) -> Result<Connection> {
        let seeds: Vec<String> = addresses.split(',').map(|seed| seed.trim().to_owned()).collect();
        let bearer = match &options.token {
            Some(token) => Some(format!("Bearer {token}").parse().map_err(|_| {
                Error::refused(Reason::ArgumentValue, "", "the token has characters that no header may have")
            })?),
            None => None,
        };
        let current = Current { address: seeds[0].clone(), next: 1, channel: channel(&seeds[0], &options)? };
        Ok(Connection { seeds, bearer: Bearer(bearer), options, current: Mutex::new(current), local: Mutex::default() })
    }

    /// Notes the socket of the server in use. It has attached a stream, or opened the session.
    pub fn attached(&self, local_stream: &str) {
        let address = lock(&self.current).address.clone();
        *lock(&self.local) = LocalStream { name: local_stream.to_owned(), address, rejected: 0 };
    }

    /// Returns the socket for the next stream, if it may use one.
    pub fn local_stream(&self) -> Option<String> {
        let address = lock(&self.current).address.clone();
        let mut local = lock(&self.local);
        if !self.options.local_stream || local.name.is_empty() || local.address != address {
            return None;
        }
        if local.rejected >= MOST_REJECTED {
            local.rejected = 0; // for example, the server has too many connections
            return None;
        }
        local.rejected += 1;
        Some(local.name.clone())
    }

    pub fn service(&self) -> Result<Service> {
        Ok(InterceptedService::new(lock(&self.current).channel.clone(), self.bearer.clone()))
    }

    pub fn client(&self) -> Result<Client> {
        Ok(AutogradServiceClient::new(self.service()?).max_decoding_message_size(usize::MAX))
    }

    /// Turns a status into an error. If the server is gone, or does not have the session, later calls use another one.
    pub fn failed(&self, status: &Status) -> Error {
        self.noted(Error::from_status(status))
    }

    /// Notes an error. If the server is gone, or does not have the session, later calls use another one.
    pub fn noted(&self, error: Error) -> Error {
        let endpoint = match (&error, error.moved_to()) {
            (_, Some(endpoint)) => endpoint,
            (Error::Connection { code: Code::Unavailable, .. }, None) => "",
            _ => return error,
        };
        if let Err(unusable) = self.move_to(endpoint) {
            return unusable;
        }
        error
    }

    /// Uses the server at `endpoint` from now on, or the next seed if it is empty.
    pub fn move_to(&self, endpoint: &str) -> Result<()> {
        let mut current = lock(&self.current);
        let mut target = endpoint;
        if target.is_empty() {
            if self.seeds.len() == 1 && current.address == self.seeds[0] {
                return Ok(()); // there is no other
            }
            target = &self.seeds[current.next % self.seeds.len()];
            current.next += 1;
        }
        if target != current.address {
            current.channel = channel(target, &self.options)?;
            current.address = target.to_owned();
        }
        Ok(())
    }

    /// Makes a unary call, and the same call again while the connection fails. The request should have a request id
    /// where it changes something.
    pub async fn retried<Q, R, F>(&self, request: Q, call: impl Fn(Client, Q) -> F) -> Result<R>
    where
        Q: Clone,
        F: Future<Output = std::result::Result<Response<R>, Status>>,
    {
        self.retried_for(self.options.patience, request, call).await
    }

    /// Makes a call that opens a session. If it fails, the error says what to do where that is known.
    pub async fn open<Q, R, F>(&self, request: Q, call: impl Fn(Client, Q) -> F) -> Result<R>
    where
        Q: Clone,
        F: Future<Output = std::result::Result<Response<R>, Status>>,
    {
        let answer = self.retried_for(self.options.patience.min(OPENING), request, call).await;
        answer.map_err(|error| self.options.advised(error))
    }

    async fn retried_for<Q, R, F>(&self, patience: Duration, request: Q, call: impl Fn(Client, Q) -> F) -> Result<R>
    where
        Q: Clone,
        F: Future<Output = std::result::Result<Response<R>, Status>>,
    {
        let (begun, mut pause) = (Instant::now(), FIRST_PAUSE);
        loop {
            let error = match call(self.client()?, request.clone()).await {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => self.failed(&status),
            };
            if !error.may_retry() || error.distrusts() || begun.elapsed() > patience {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }
}

/// A channel to an address, "host:port" or "unix:/path". It connects at its first use, and again after a break.
fn channel(address: &str, options: &ConnectOptions) -> Result<Channel> {
    let wrong = |error: &dyn std::fmt::Display| {
        Error::refused(Reason::ArgumentValue, "", format!("{address:?} is no address: {error}"))
    };
    #[cfg(feature = "tls")]
    let encrypted = options.tls.is_some();
    #[cfg(not(feature = "tls"))]
    let encrypted = false;
    let uri = match (address.split_once("://"), address.starts_with("unix:"), encrypted) {
        (Some(_), _, _) | (_, true, _) => address.to_owned(),
        (_, _, true) => format!("https://{address}"),
        (_, _, false) => format!("http://{address}"),
    };
    let endpoint = Endpoint::from_shared(uri).map_err(|error| wrong(&error))?;
    #[cfg(feature = "tls")]
    let endpoint = match &options.tls {
        Some(tls) => endpoint.tls_config(tls.clone()).map_err(|error| wrong(&error))?,
        None => endpoint,
    };
    #[cfg(not(feature = "tls"))]
    let _ = options;
    Ok(endpoint
        .tcp_nodelay(true)
        .connect_timeout(Duration::from_secs(5))
        .tcp_keepalive(Some(Duration::from_secs(30)))
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(2 * WINDOW)
        .connect_lazy())
}

//! A session: it holds tensors on a server, and has a thread for its connection.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, ThreadId};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tonic::{Response, Status};

use crate::call::Call;
use crate::connection::{Client, Connection};
use crate::error::{Error, Reason, Result};
use crate::lock;
use crate::options::ConnectOptions;
use crate::pending::Pending;
use crate::program::Recorder;
use crate::proto::{self, GradMode, command};
use crate::wire;
use crate::writer::{Opened, Writer, checked};

/// How long a dropped session tries to tell the server that it ends.
const FAREWELL: Duration = Duration::from_secs(1);

/// A session on a server. Ops only queue commands; they are sent in batches, and their failures surface at the next wait
/// or read. Clones are the same session. Threads may share it: commands are applied in the order of their calls.
///
/// It ends at [`Session::close`], or when its last clone and its last tensor are dropped.
#[derive(Clone)]
pub struct Session(Arc<Inner>);

struct Inner {
    sink: Sink,
    ids: AtomicU64,
    max_inline: usize,
}

/// Takes the commands: a live session, or the recorder of a program.
enum Sink {
    Live(Box<Live>),
    Recorder(Mutex<Recorder>),
}

pub(crate) struct Live {
    pub writer: Arc<Writer>,
    pub connection: Arc<Connection>,
    pub opened: Opened,
    runtime: Runtime,
    recent: Mutex<VecDeque<[u8; 32]>>, // programs, the most recently run last
    /// Held from the note of a run until its command is queued: no other run may come before a registration.
    pub running: Mutex<()>,
    max_programs: usize,
    requests: AtomicU64,
    prefix: String,
    closed: AtomicBool,
}

impl Session {
    /// Opens a session on the server at "host:port", "unix:/path" or, if it speaks TLS, "https://host:port". Of several
    /// addresses with commas between them, it uses the first server that answers.
    pub fn connect(address: &str) -> Pending<Session> {
        Session::connect_with(address, ConnectOptions::default())
    }

    /// Opens a session, as the options say.
    pub fn connect_with(address: &str, options: ConnectOptions) -> Pending<Session> {
        let runtime = match Runtime::start() {
            Ok(runtime) => runtime,
            Err(error) => return Pending::ready(Err(Error::unavailable(error.to_string()))),
        };
        let address = address.to_owned();
        let opened = runtime.spawn(async move {
            let connection = Arc::new(Connection::new(&address, options)?);
            let answer = open(&connection).await?;
            Ok((connection, answer))
        });
        Pending::new(async move {
            let (connection, answer) = opened.await?;
            Session::begin(runtime, connection, answer)
        })
    }

    pub(crate) fn begin(
        runtime: Runtime,
        connection: Arc<Connection>,
        answer: proto::OpenSessionResponse,
    ) -> Result<Session> {
        let Some(before) = answer.first_id.checked_sub(1) else {
            let message = "the server gives this client no ids: it is too old";
            return Err(Error::refused(Reason::ProtocolVersion, "", message));
        };
        let limits = answer.limits.unwrap_or_default();
        let opened = Opened {
            session_id: answer.session_id,
            writer: answer.writer,
            epoch: answer.epoch,
            limits,
            patience: connection.options.patience,
        };
        let writer = Writer::new(opened.clone());
        let (own, link) = (Arc::clone(&writer), Arc::clone(&connection));
        let lease = Duration::from_millis(answer.lease_ms.into());
        connection.attached(&answer.local_stream);
        let session_id = opened.session_id.clone();
        runtime.handle.spawn(async move {
            let link_of_stream = Arc::clone(&link);
            own.start(Box::new(move |attach| {
                let link = Arc::clone(&link_of_stream);
                Box::pin(async move { wire::connect(&link, attach).await })
            }));
            keep_alive(&own, &link, &session_id, lease).await;
        });
        let max_inline = limits.max_inline_bytes as usize;
        let live = Live {
            writer,
            connection,
            opened,
            runtime,
            recent: Mutex::default(),
            running: Mutex::default(),
            max_programs: limits.max_programs as usize,
            requests: AtomicU64::new(0),
            prefix: format!("{:016x}", RandomState::new().build_hasher().finish()),
            closed: AtomicBool::new(false),
        };
        Ok(Session(Arc::new(Inner { sink: Sink::Live(Box::new(live)), ids: AtomicU64::new(before), max_inline })))
    }

    /// A session that records a program.
    pub(crate) fn recording() -> Session {
        let sink = Sink::Recorder(Mutex::default());
        Session(Arc::new(Inner { sink, ids: AtomicU64::new(0), max_inline: usize::MAX }))
    }

    pub(crate) fn is(&self, other: &Session) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.0.ids.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn max_inline(&self) -> usize {
        self.0.max_inline
    }

    /// The parts of a live session; none of a program.
    pub(crate) fn live(&self) -> Option<&Live> {
        match &self.0.sink {
            Sink::Live(live) => Some(live),
            Sink::Recorder(_) => None,
        }
    }

    pub(crate) fn recorder(&self) -> Option<&Mutex<Recorder>> {
        match &self.0.sink {
            Sink::Live(_) => None,
            Sink::Recorder(recorder) => Some(recorder),
        }
    }

    /// The live session of a command that a program cannot have.
    pub(crate) fn must_live(&self, what: &str) -> Result<&Live> {
        self.live().ok_or_else(|| Error::refused(Reason::NotSupported, "", format!("a program cannot have {what}")))
    }

    /// The session's id. Keep it secret: it gives access to the session. Empty in a program.
    pub fn id(&self) -> &str {
        self.live().map_or("", |live| &live.opened.session_id)
    }

    /// How often the stream was opened again after a broken connection.
    pub fn reconnects(&self) -> u32 {
        self.live().map_or(0, |live| live.writer.reconnects())
    }

    // Commands

    pub(crate) fn send(&self, command: command::Command) {
        match &self.0.sink {
            Sink::Live(live) => live.writer.send(command),
            Sink::Recorder(recorder) => lock(recorder).send(command),
        }
    }

    pub(crate) fn op(&self, call: &Call, mode: GradMode, made: &[u64]) {
        match &self.0.sink {
            Sink::Live(live) => live.writer.op(call, mode, made),
            Sink::Recorder(recorder) => lock(recorder).send(command::Command::Op(call.request(mode, made.to_vec()))),
        }
    }

    pub(crate) fn failed(&self, error: Error) {
        match &self.0.sink {
            Sink::Live(live) => live.writer.failed(error),
            Sink::Recorder(recorder) => lock(recorder).failed(error),
        }
    }

    pub(crate) fn release(&self, id: u64) {
        if let Some(live) = self.live() {
            live.writer.release(id);
        }
    }

    /// Sends a command and waits. An earlier refusal comes first.
    pub(crate) fn ask(&self, command: command::Command) -> Pending<proto::result::Result> {
        let writer = match self.waits() {
            Ok(live) => Arc::clone(&live.writer),
            Err(error) => return Pending::ready(Err(error)),
        };
        let answer = writer.ask(command);
        Pending::new(async move { checked(&writer, answer.await.ok()) })
    }

    /// The live session of a wait; a program's recorder keeps the mistake.
    fn waits(&self) -> Result<&Live> {
        let live = self.must_live("a wait for values");
        if let (Err(error), Some(recorder)) = (&live, self.recorder()) {
            lock(recorder).failed(error.clone());
        }
        live
    }

    /// Sends all commands, and waits until they are answered. The error is the first refusal since the last wait or
    /// read. In a program it does nothing.
    pub fn wait(&self) -> Pending<()> {
        let Some(live) = self.live() else { return Pending::ready(Ok(())) };
        let writer = Arc::clone(&live.writer);
        let done = writer.flush();
        Pending::new(async move {
            let _ = done.await; // it ends without a message
            match writer.dead().or_else(|| writer.take_failure()) {
                Some(error) => Err(error),
                None => Ok(()),
            }
        })
    }

    /// Makes a unary call of the protocol, for what this crate does not cover. It is made again while the connection
    /// fails: give a request that changes something a request id.
    ///
    /// ```ignore
    /// let request = DescribeRequest { session_id: session.id().into(), ..Default::default() };
    /// let told = session.unary(request, |mut client, request| async move { client.describe(request).await }).wait()?;
    /// ```
    pub fn unary<Q, R, F>(&self, request: Q, call: impl Fn(Client, Q) -> F + Send + Sync + 'static) -> Pending<R>
    where
        Q: Clone + Send + Sync + 'static,
        R: Send + 'static,
        F: Future<Output = std::result::Result<Response<R>, Status>> + Send + 'static,
    {
        match self.waits() {
            Ok(live) => {
                let connection = Arc::clone(&live.connection);
                live.spawn(async move { connection.retried(request, call).await })
            }
            Err(error) => Pending::ready(Err(error)),
        }
    }

    /// Stops the session's running and waiting commands. They fail with [`Reason::Cancelled`].
    pub fn cancel(&self) -> Pending<()> {
        let request = proto::CancelRequest { session_id: self.id().to_owned(), ..Default::default() };
        self.unary(request, |mut client, request| async move { client.cancel(request).await }).map(|_| Ok(()))
    }

    /// Waits for all commands and ends the session; the server frees what it holds. The error is the first refusal
    /// since the last wait or read.
    pub fn close(&self) -> Pending<()> {
        let Some(live) = self.live() else { return Pending::ready(Ok(())) };
        if live.closed.swap(true, Ordering::Relaxed) {
            return Pending::ready(Ok(()));
        }
        let (done, session) = (self.wait(), self.clone());
        Pending::new(async move {
            let result = done.await;
            let live = session.live().expect("it is no program");
            live.writer.kill(Error::Closed);
            live.writer.drop_all_hooks();
            let request = proto::CloseSessionRequest { session_id: session.id().to_owned() };
            let ended =
                session.unary(request, |mut client, request| async move { client.close_session(request).await });
            let ended = ended.await;
            result.and(ended.map(drop))
        })
    }

    /// Seeds the session's random generator, which draws PyTorch's numbers on the CPU (torch.manual_seed).
    pub fn manual_seed(&self, seed: i64) {
        let set = Some(proto::manual_seed_request::Set::Seed(seed));
        let algorithm = proto::RandomAlgorithm::Mt19937.into();
        let request = proto::ManualSeedRequest { set, algorithm, ..Default::default() };
        self.send(command::Command::ManualSeed(request));
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.live().is_some() { "Session" } else { "Session of a program" })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let Sink::Live(live) = &self.sink else { return };
        live.writer.kill(Error::Closed);
        if !live.closed.load(Ordering::Relaxed) {
            let request = proto::CloseSessionRequest { session_id: live.opened.session_id.clone() };
            if let Ok(mut client) = live.connection.client() {
                live.runtime.end_with(async move {
                    // Without an answer, the session's lease runs out.
                    let _ = tokio::time::timeout(FAREWELL, client.close_session(request)).await;
                });
            }
        }
    }
}

impl Live {
    /// Runs a future in the session's thread.
    pub fn spawn<T: Send + 'static>(&self, future: impl Future<Output = Result<T>> + Send + 'static) -> Pending<T> {
        self.runtime.spawn(future)
    }

    /// An id for a request that must be applied once.
    pub fn request_id(&self) -> String {
        format!("{}-{}", self.prefix, self.requests.fetch_add(1, Ordering::Relaxed))
    }

    /// Notes that a program is the most recently run one. Returns whether the server may have forgotten it.
    pub fn ran(&self, hash: [u8; 32]) -> bool {
        let mut recent = lock(&self.recent);
        let known = recent.iter().rposition(|each| *each == hash);
        if let Some(place) = known {
            recent.remove(place);
        }
        recent.push_back(hash);
        if self.max_programs > 0 && recent.len() > self.max_programs {
            recent.pop_front();
        }
        known.is_none()
    }

    /// Whether the server still has a program.
    pub fn has(&self, hash: &[u8; 32]) -> bool {
        lock(&self.recent).contains(hash)
    }

    /// Notes the programs of a file as the most recently run ones, in the server's order: first those that it had.
    pub fn loaded(&self, programs: &[[u8; 32]]) {
        let (had, fresh): (Vec<[u8; 32]>, Vec<_>) = programs.iter().partition(|hash| self.has(hash));
        for hash in had.into_iter().chain(fresh) {
            self.ran(hash);
        }
    }
}

/// Opens a session at a server, or at the server of the cluster that it names.
async fn open(connection: &Connection) -> Result<proto::OpenSessionResponse> {
    let options = &connection.options;
    let mut request = proto::OpenSessionRequest {
        client: options.client.clone(),
        lease_ms: options.lease.as_millis() as u32,
        follows_endpoint: true,
        device_type: options.device_type.clone(),
        ..Default::default()
    };
    let call = |mut client: Client, request| async move { client.open_session(request).await };
    let answer = connection.open(request.clone(), call).await?;
    let Some(endpoint) = elsewhere(Some(&answer)) else { return Ok(answer) };
    connection.move_to(endpoint)?;
    request.follows_endpoint = false;
    connection.open(request, call).await
}

/// The server of the cluster that is to open a session instead, if the answer names one.
pub(crate) fn elsewhere(answer: Option<&proto::OpenSessionResponse>) -> Option<&str> {
    answer.filter(|told| told.session_id.is_empty() && !told.endpoint.is_empty()).map(|told| told.endpoint.as_str())
}

/// Renews the lease three times in its length.
async fn keep_alive(writer: &Writer, connection: &Connection, session_id: &str, lease: Duration) {
    let period = (lease / 3).max(Duration::from_millis(10));
    let request = proto::KeepAliveRequest { session_id: session_id.to_owned() };
    loop {
        tokio::time::sleep(period).await;
        if writer.dead().is_some() {
            return;
        }
        let Ok(mut client) = connection.client() else { return };
        let limit = period.max(Duration::from_secs(1));
        if let Ok(Err(status)) = tokio::time::timeout(limit, client.keep_alive(request.clone())).await {
            let error = connection.failed(&status);
            if error.reason().is_some_and(|reason| reason != Reason::Unspecified) && !error.may_retry() {
                return writer.kill(error);
            }
        }
    }
}

/// The session's thread, with an event loop for its connection.
pub(crate) struct Runtime {
    pub handle: Handle,
    stop: Mutex<Option<oneshot::Sender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    id: ThreadId,
}

impl Runtime {
    pub fn start() -> std::io::Result<Runtime> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new().name("gradwire".into()).spawn(move || {
            let _ = runtime.block_on(stopped); // the sender is dropped
            runtime.shutdown_background();
        })?;
        let id = thread.thread().id();
        Ok(Runtime { handle, stop: Mutex::new(Some(stop)), thread: Mutex::new(Some(thread)), id })
    }

    /// Runs a future in the thread.
    pub fn spawn<T: Send + 'static>(&self, future: impl Future<Output = Result<T>> + Send + 'static) -> Pending<T> {
        let (done, result) = oneshot::channel();
        self.handle.spawn(async move {
            let _ = done.send(future.await); // the caller may wait no more
        });
        Pending::new(async move { result.await.unwrap_or(Err(Error::Closed)) })
    }

    /// Runs a last future, and then ends the thread.
    fn end_with(&self, future: impl Future<Output = ()> + Send + 'static) {
        let stop = lock(&self.stop).take();
        self.handle.spawn(async move {
            future.await;
            drop(stop);
        });
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        drop(lock(&self.stop).take());
        let thread = lock(&self.thread).take();
        // A tensor may be dropped by the thread itself, which cannot wait for its own end.
        if let Some(thread) = thread.filter(|_| std::thread::current().id() != self.id) {
            let _ = thread.join();
        }
    }
}

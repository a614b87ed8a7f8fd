//! The writer of a session: it numbers commands, sends them over one stream after another, and keeps what is not
//! answered.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::mem::take;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len, message, uint64};
use tokio::sync::{Notify, oneshot};
use tokio::task::{AbortHandle, JoinHandle};
use tokio_stream::StreamExt;

use crate::autograd::HookFunction;
use crate::call::Call;
use crate::error::{Error, Reason, Result};
use crate::lock;
use crate::proto::{self, GradMode, command::Command as Kind};
use crate::wire::Connect;

/// Commands at which a batch is sent while few are under way.
pub(crate) const SEND_AT: usize = 64;
/// Commands up to which a batch grows while many are under way.
const GROW_TO: usize = 1024;
/// Bytes up to which it grows, and up to which it grows after a break. A larger message would hardly pass a connection
/// that breaks all the time.
const GROW_BYTES: [usize; 2] = [8 << 10, 2 << 10];
/// Batches under way; the server stops reading at 16.
const MOST_SENT: usize = 8;
/// Refusals that are remembered for commands that depend on them.
const MOST_ROOTS: usize = 1024;
/// Refusals of quiet commands kept until the next wait.
const MOST_FAILURES: usize = 64;
/// The longest message of an op that the server prepares.
const MOST_PREPARED_BYTES: usize = 256;
/// Streams that break since the last answer to a batch, and times the patience; then no connection seems to carry it.
const MOST_PATIENCES: u32 = 10;
/// A stream that lasts for this part of the patience has carried its batches: the server computes.
const PATIENCE_PARTS: u32 = 4;
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(10);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(1);

type Answers = HashMap<u64, oneshot::Sender<proto::Result>>;

/// What a writer must know of the session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Opened {
    pub session_id: String,
    pub writer: u32,
    pub epoch: u64,
    pub limits: proto::Limits,
    pub patience: Duration,
}

/// A batch of commands, kept until its answer comes.
struct Batch {
    first: u64,
    last: u64,
    commands: Vec<u8>,
    /// The message, once it was sent: it is sent again unchanged.
    message: Option<Bytes>,
    acknowledged: u64,
    /// Bytes of its RunRequest, which take credit.
    size: i64,
    waiting: Answers,
}

impl Batch {
    /// Makes the message. Its acknowledgement stays the same when it is sent again.
    fn seal(&mut self, acknowledged: u64) -> Bytes {
        if let Some(message) = &self.message {
            return message.clone();
        }
        let mut head = BytesMut::with_capacity(32);
        uint64::encode(3, &self.first, &mut head);
        if acknowledged > 0 {
            uint64::encode(5, &acknowledged, &mut head);
        }
        let size = head.len() + self.commands.len();
        let mut made = BytesMut::with_capacity(key_len(2) + encoded_len_varint(size as u64) + size);
        encode_key(2, WireType::LengthDelimited, &mut made);
        encode_varint(size as u64, &mut made);
        made.put(head);
        made.put_slice(&take(&mut self.commands));
        (self.size, self.acknowledged) = (size as i64, acknowledged);
        self.message.insert(made.freeze()).clone()
    }
}

/// The streams that broke since the last answer to a batch.
#[derive(Default)]
struct BrokenStreams {
    count: u32,
    /// When the first broke.
    since: Option<Instant>,
    acknowledged: u64,
}

#[derive(Default)]
struct State {
    // Commands that wait for the next batch, encoded.
    commands: Vec<u8>,
    words: Vec<u8>,
    calls: u32,
    count: usize,
    waiting: Answers,
    first: u64, // seq of the first of them
    next: u64,  // seq of the next command

    prepared: HashMap<Vec<u8>, u32>,
    seen: HashSet<Vec<u8>>,
    scratch: Vec<u8>,

    // Batches that are not answered, in order; those before `sent` were sent on the present stream.
    queue: VecDeque<Batch>,
    sent: usize,
    /// Batches that may be under way: few after a break, so that an answer comes before the next one.
    window: usize,
    credit: i64,
    attached: bool,
    acknowledged: u64,
    told: u64, // acknowledged by a message
    attempt: u32,
    reconnects: u32,
    dead: Option<Error>,
    waiters: Vec<(u64, oneshot::Sender<()>)>,
    run: Option<AbortHandle>,

    failures: Vec<Error>,
    roots: HashMap<u64, Error>,
    root_order: VecDeque<u64>,
}

/// The writer. Its methods may be called from any thread; `run` is a task of the session's own thread.
pub(crate) struct Writer {
    opened: Opened,
    state: Mutex<State>,
    /// Ids for the next batch's release. A drop takes no other lock, so it may happen anywhere.
    released: Mutex<Vec<u64>>,
    /// The functions of hooks. They are dropped without a lock, since they may hold tensors.
    pub hooks: Mutex<HashMap<u64, HookFunction>>,
    /// A batch was answered: threads that wait because their batch can grow no more look again.
    room: Condvar,
    /// There may be a message to send.
    changed: Notify,
}

type Guard<'a> = MutexGuard<'a, State>;

impl Writer {
    pub fn new(opened: Opened) -> Arc<Writer> {
        let state = State { first: 1, next: 1, window: MOST_SENT, ..State::default() };
        Arc::new(Writer {
            opened,
            state: Mutex::new(state),
            released: Mutex::default(),
            hooks: Mutex::default(),
            room: Condvar::new(),
            changed: Notify::new(),
        })
    }

    // Commands that wait for the next batch

    /// Adds a command that is answered only if it fails.
    pub fn send(&self, command: Kind) {
        let command = proto::Command { command: Some(command), quiet: true, timeout_ms: 0 };
        drop(self.add(lock(&self.state), &command, None));
    }

    fn add<'a>(
        &'a self,
        mut state: Guard<'a>,
        command: &proto::Command,
        answer: Option<oneshot::Sender<proto::Result>>,
    ) -> Guard<'a> {
        let most = self.opened.limits.max_message_bytes as usize;
        let size = state.commands.len() + state.words.len() + command.encoded_len() + 1024;
        if state.count > 0 && most > 0 && size > most {
            self.cut(&mut state);
        }
        state.end_calls();
        message::encode(6, command, &mut state.commands);
        if let Some(answer) = answer {
            let seq = state.next;
            state.waiting.insert(seq, answer);
        }
        self.counted(state)
    }

    /// Follows every command: it sends a batch that is large enough, and waits while the batch can grow no more.
    fn counted<'a>(&'a self, mut state: Guard<'a>) -> Guard<'a> {
        state.next += 1;
        state.count += 1;
        if state.count < SEND_AT {
            return state;
        }
        let limit = self.opened.limits.max_batch_commands as usize;
        let most = if limit > 0 { limit.min(GROW_TO) } else { GROW_TO };
        let full = |state: &State| {
            let bytes = GROW_BYTES[usize::from(state.window < MOST_SENT)];
            state.count >= most || state.commands.len() + state.words.len() >= bytes
        };
        while full(&state) && state.queue.len() >= MOST_SENT && state.dead.is_none() {
            state = self.room.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        if state.queue.len() < MOST_SENT || state.dead.is_some() {
            self.cut(&mut state);
        }
        state
    }

    /// Adds a call of an op: the second time and later as a call of a prepared op.
    pub fn op(&self, call: &Call, mode: GradMode, made: &[u64]) {
        let mut state = lock(&self.state);
        let mut key = take(&mut state.scratch);
        key.clear();
        let can = call.key(&mut key, mode, made.len());
        let mut number = if can { state.prepared.get(&key).copied() } else { None };
        if number.is_none() && can && state.seen.contains(&key) {
            (state, number) = self.prepare(state, &key, call, mode, made);
        }
        if let Some(number) = number {
            call.words(&mut state.words, number, made);
            state.calls += 1;
            state = self.counted(state);
        } else {
            if can && state.seen.len() < 4 * self.opened.limits.max_prepared as usize {
                state.seen.insert(key.clone());
            }
            let request = call.request(mode, made.to_vec());
            let command = proto::Command { command: Some(Kind::Op(request)), quiet: true, timeout_ms: 0 };
            state = self.add(state, &command, None);
        }
        state.scratch = key;
    }

    /// Adds a Prepare, if the server allows one more.
    fn prepare<'a>(
        &'a self,
        mut state: Guard<'a>,
        key: &[u8],
        call: &Call,
        mode: GradMode,
        made: &[u64],
    ) -> (Guard<'a>, Option<u32>) {
        let request = call.request(mode, made.to_vec());
        let number = state.prepared.len() as u32;
        if u64::from(number) >= self.opened.limits.max_prepared || request.encoded_len() > MOST_PREPARED_BYTES {
            return (state, None);
        }
        state.seen.remove(key);
        let kind = Kind::Prepare(proto::Prepare { number, op: Some(request) });
        let command = proto::Command { command: Some(kind), quiet: true, timeout_ms: 0 };
        // The command is added before `add` may wait: a call by another thread comes after it.
        state.prepared.insert(key.to_vec(), number);
        (self.add(state, &command, None), Some(number))
    }

    pub fn release(&self, id: u64) {
        lock(&self.released).push(id);
    }

    /// Notes a failure for the next wait.
    pub fn failed(&self, error: Error) {
        lock(&self.state).note(error);
    }

    /// Makes a batch of the commands that wait. Releases are its end: the server answers before it frees.
    fn cut(&self, state: &mut State) {
        let released = take(&mut *lock(&self.released));
        state.end_calls();
        if !released.is_empty() {
            let request = proto::ReleaseRequest { tensors: released, ..Default::default() };
            let command = proto::Command { command: Some(Kind::Release(request)), quiet: true, timeout_ms: 0 };
            message::encode(6, &command, &mut state.commands);
            state.next += 1;
        }
        if state.commands.is_empty() {
            return;
        }
        let capacity = state.commands.len();
        let commands = std::mem::replace(&mut state.commands, Vec::with_capacity(capacity.min(1 << 16)));
        let waiting = take(&mut state.waiting);
        let (first, last) = (state.first, state.next - 1);
        (state.first, state.count) = (state.next, 0);
        if state.dead.is_none() {
            let batch = Batch { first, last, commands, message: None, acknowledged: 0, size: 0, waiting };
            state.queue.push_back(batch);
            self.changed.notify_one();
        }
    }

    // Waiting

    /// Adds a command and sends it. The receiver has its answer; it is closed if the session ends.
    pub fn ask(&self, command: Kind) -> oneshot::Receiver<proto::Result> {
        let (answer, result) = oneshot::channel();
        let command = proto::Command { command: Some(command), quiet: false, timeout_ms: 0 };
        let mut state = self.add(lock(&self.state), &command, Some(answer));
        self.cut(&mut state);
        result
    }

    /// Sends what waits. The receiver ends when all is answered.
    pub fn flush(&self) -> oneshot::Receiver<()> {
        let (done, ended) = oneshot::channel();
        let mut state = lock(&self.state);
        self.cut(&mut state);
        if let Some(batch) = state.queue.back() {
            let last = batch.last;
            state.waiters.push((last, done));
        }
        ended
    }

    /// Returns the first refusal of a quiet command since the last wait. The others are dropped: most follow from it.
    pub fn take_failure(&self) -> Option<Error> {
        take(&mut lock(&self.state).failures).into_iter().next()
    }

    /// Replaces a refusal that follows from an earlier one by that one.
    pub fn origin(&self, error: Error) -> Error {
        let root = error.refusal().map_or(0, |refusal| refusal.root_seq);
        lock(&self.state).roots.get(&root).cloned().unwrap_or(error)
    }

    pub fn dead(&self) -> Option<Error> {
        lock(&self.state).dead.clone()
    }

    pub fn reconnects(&self) -> u32 {
        lock(&self.state).reconnects
    }

    /// Ends everything with an error.
    pub fn kill(&self, error: Error) {
        let mut state = lock(&self.state);
        if state.dead.is_some() {
            return;
        }
        state.dead = Some(error);
        self.cut(&mut state);
        (state.sent, state.waiters) = (0, Vec::new());
        let dropped = (take(&mut state.queue), take(&mut state.waiting));
        if let Some(run) = state.run.take() {
            run.abort();
        }
        drop(state);
        self.room.notify_all();
        drop(dropped);
    }

    // The stream

    /// Keeps a stream open until the writer ends. Call it in the session's runtime.
    pub fn start(self: &Arc<Self>, connect: Connect) {
        let writer = Arc::clone(self);
        let task = tokio::spawn(async move { writer.run(connect).await });
        lock(&self.state).run = Some(task.abort_handle());
    }

    /// Counts a stream that broke after its start was answered. Returns a failure if so many broke for so long that no
    /// connection seems to carry the next batch. A server that answers a stream's start only would otherwise be tried
    /// for ever. One batch may compute for longer than the patience.
    fn uncarried(&self, broken: &mut BrokenStreams, lasted: Duration, error: &Error) -> Option<Error> {
        let state = lock(&self.state);
        let short = lasted <= self.opened.patience / PATIENCE_PARTS;
        let Some(batch) = state.queue.front().filter(|_| short) else {
            *broken = BrokenStreams::default();
            return None;
        };
        if broken.acknowledged != state.acknowledged {
            *broken = BrokenStreams { acknowledged: state.acknowledged, ..Default::default() };
        }
        broken.count += 1;
        let (count, most) = (broken.count, MOST_PATIENCES * self.opened.patience);
        if broken.since.get_or_insert_with(Instant::now).elapsed() <= most || count < MOST_PATIENCES {
            return None;
        }
        let size = batch.size;
        let what =
            format!("{count} connections broke in {most:?} before a batch of {size} bytes was answered: {error}");
        Some(Error::unavailable(what))
    }

    async fn run(self: Arc<Self>, connect: Connect) {
        let mut since = None; // of the first failure after the last answer
        let mut broken = BrokenStreams::default();
        let mut pause = FIRST_PAUSE;
        loop {
            let began = Instant::now();
            let (progress, error) = self.stream(&connect).await;
            if progress {
                (since, pause) = (None, FIRST_PAUSE);
            }
            if !error.may_retry() {
                return self.kill(error);
            }
            if progress && let Some(failure) = self.uncarried(&mut broken, began.elapsed(), &error) {
                return self.kill(failure);
            }
            if since.get_or_insert_with(Instant::now).elapsed() > self.opened.patience {
                let patience = self.opened.patience;
                return self.kill(Error::unavailable(format!("no answer for {patience:?}: {error}")));
            }
            tokio::time::sleep(jittered(pause)).await;
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    /// Opens a stream and sends all that is not answered. Returns how it ended, and whether it had an answer.
    async fn stream(self: &Arc<Self>, connect: &Connect) -> (bool, Error) {
        let mut wire = match connect(self.attach()).await {
            Ok(wire) => wire,
            Err(error) => return (false, error),
        };
        let writer = Arc::clone(self);
        let send = wire.send;
        let _sender = Abort(tokio::spawn(async move {
            loop {
                let Some(message) = writer.next_message() else {
                    writer.changed.notified().await;
                    continue;
                };
                if send.send(message).await.is_err() {
                    return; // the stream's end says why
                }
            }
        }));
        let mut progress = false;
        loop {
            match wire.receive.next().await {
                Some(Ok(message)) => self.received(message),
                Some(Err(error)) => return (progress, error),
                None => return (progress, Error::unavailable("the server ended the stream")),
            }
            progress = true;
        }
    }

    /// Begins a stream. Returns its first message.
    fn attach(&self) -> Bytes {
        let mut state = lock(&self.state);
        state.attempt += 1;
        if state.attempt > 1 {
            state.reconnects += 1;
            state.window = 1;
        }
        (state.sent, state.credit, state.attached) = (0, 0, false);
        state.told = state.acknowledged;
        let attach = proto::StreamAttach {
            session_id: self.opened.session_id.clone(),
            writer: self.opened.writer,
            epoch: self.opened.epoch,
            acknowledged_seq: state.acknowledged,
            attempt: state.attempt,
            joined_answers: true,
        };
        request(proto::stream_request::Request::Attach(attach))
    }

    /// Returns a message that may be sent now: a batch for which there is credit, or an acknowledgement before a pause.
    fn next_message(&self) -> Option<Bytes> {
        let state = &mut *lock(&self.state);
        if !state.attached {
            return None;
        }
        if state.sent < state.queue.len() && state.sent < state.window {
            let batch = &mut state.queue[state.sent];
            let message = batch.seal(state.acknowledged);
            if state.credit < batch.size {
                return None;
            }
            state.credit -= batch.size;
            state.sent += 1;
            state.told = state.told.max(batch.acknowledged);
            return Some(message);
        }
        if state.queue.is_empty() && state.acknowledged > state.told + SEND_AT as u64 {
            state.told = state.acknowledged;
            let acknowledge = proto::StreamAcknowledge { acknowledged_seq: state.acknowledged };
            return Some(request(proto::stream_request::Request::Acknowledge(acknowledge)));
        }
        None
    }

    fn received(&self, message: proto::StreamResponse) {
        let mut state = lock(&self.state);
        state.credit += message.credit_bytes as i64;
        let mut dropped = Vec::new();
        match message.response {
            Some(proto::stream_response::Response::Attached(_)) => state.attached = true,
            Some(proto::stream_response::Response::Batch(run)) => {
                dropped = state.answered(message.batches.max(1) as usize, run);
            }
            None => {}
        }
        drop(state);
        self.changed.notify_one();
        self.room.notify_all();
        self.drop_hooks(&dropped);
    }

    /// Forgets the functions of all hooks.
    pub fn drop_all_hooks(&self) {
        let functions = take(&mut *lock(&self.hooks));
        drop(functions);
    }

    /// Forgets the functions of hooks.
    pub fn drop_hooks(&self, numbers: &[u64]) {
        if numbers.is_empty() {
            return;
        }
        let mut hooks = lock(&self.hooks);
        let functions: Vec<_> = numbers.iter().filter_map(|number| hooks.remove(number)).collect();
        drop(hooks);
        drop(functions);
    }
}

impl State {
    fn end_calls(&mut self) {
        if self.calls > 0 {
            let calls = proto::Calls { count: self.calls, words: take(&mut self.words).into() };
            let command = proto::Command { command: Some(Kind::Calls(calls)), quiet: false, timeout_ms: 0 };
            message::encode(6, &command, &mut self.commands);
            self.calls = 0;
        }
    }

    fn note(&mut self, error: Error) {
        if self.failures.len() < MOST_FAILURES {
            self.failures.push(error);
        }
    }

    /// Takes batches from the queue, of which the last one has the results. Returns hooks that can be dropped.
    fn answered(&mut self, count: usize, run: proto::RunResponse) -> Vec<u64> {
        let count = count.min(self.queue.len());
        let Some(mut last) = self.queue.drain(..count).last() else { return Vec::new() };
        self.sent = self.sent.saturating_sub(count);
        self.acknowledged = last.last;
        self.window = (2 * self.window).min(MOST_SENT);
        for mut result in run.results {
            let answer = last.waiting.remove(&result.seq);
            if let Some(proto::result::Result::Error(told)) = &mut result.result {
                self.refused(result.seq, told.clone(), answer.is_none());
            }
            if let Some(answer) = answer {
                let _ = answer.send(result); // the caller may wait no more
            }
        }
        let acknowledged = self.acknowledged;
        // A finished wait drops its sender.
        self.waiters.retain(|(seq, _)| *seq > acknowledged);
        run.dropped_hooks
    }

    /// Remembers a refusal as the origin of others and, of a quiet command, for the next wait.
    fn refused(&mut self, seq: u64, told: proto::Error, quiet: bool) {
        let error = Error::from_proto(told);
        let depends = error.reason() == Some(Reason::DependencyFailed);
        let root = error.refusal().map_or(0, |refusal| refusal.root_seq);
        if !depends {
            if self.root_order.len() == MOST_ROOTS {
                let oldest = self.root_order.pop_front().expect("there are many");
                self.roots.remove(&oldest);
            }
            self.roots.insert(seq, error.clone());
            self.root_order.push_back(seq);
        }
        if quiet && !(depends && self.roots.contains_key(&root)) {
            self.note(error);
        }
    }
}

/// Ends a task when it goes out of scope.
struct Abort(JoinHandle<()>);

impl Drop for Abort {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn request(request: proto::stream_request::Request) -> Bytes {
    proto::StreamRequest { request: Some(request), ..Default::default() }.encode_to_vec().into()
}

/// Between half of the pause and one and a half, so that many clients do not come back at once.
fn jittered(pause: Duration) -> Duration {
    let drawn = RandomState::new().build_hasher().finish() % 1024;
    pause / 2 + pause * drawn as u32 / 1024
}

/// The result of a command that was asked for, after earlier refusals.
pub(crate) fn checked(writer: &Writer, answer: Option<proto::Result>) -> Result<proto::result::Result> {
    let Some(answer) = answer else { return Err(writer.dead().unwrap_or(Error::Closed)) };
    if let Some(earlier) = writer.take_failure() {
        return Err(earlier);
    }
    match answer.result {
        Some(proto::result::Result::Error(told)) => Err(writer.origin(Error::from_proto(told))),
        Some(result) => Ok(result),
        None => Err(Error::unavailable("the server's answer has no result")),
    }
}

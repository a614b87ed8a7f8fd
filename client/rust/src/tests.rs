//! Tests of the writer against a scripted stream, which does what a live server does not do on demand, and of bytes
//! against tests/conformance/golden.json.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::Message;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::metadata::MetadataValue;

use crate::call::{Argument, Call};
use crate::error::{Error, Reason, Result};
use crate::proto::{self, StreamResponse, command::Command, stream_request::Request, stream_response::Response};
use crate::session::{Runtime, Session};
use crate::tensor::Tensor;
use crate::values::{Arriving, Complex, Element, bytes_of};
use crate::wire::{Connect, Wire};
use crate::writer::{Opened, SEND_AT, Writer};
use crate::{IndexItem, lock};

/// The server's side of a stream.
struct Peer {
    attempt: u32,
    from: mpsc::Receiver<Bytes>,
    to: mpsc::Sender<Result<StreamResponse>>,
}

impl Peer {
    async fn next(&mut self) -> Option<(Bytes, proto::RunRequest)> {
        loop {
            let data = self.from.recv().await?;
            let message = proto::StreamRequest::decode(data.clone()).unwrap();
            if let Some(Request::Batch(batch)) = message.request {
                return Some((data, batch));
            }
        }
    }

    async fn attached(&self, credit: u64) {
        let attached = Response::Attached(proto::StreamAttached { epoch: 1, ..Default::default() });
        self.send(StreamResponse { response: Some(attached), credit_bytes: credit, batches: 0 }).await;
    }

    async fn answer(&self, credit: u64, batches: u32, results: Vec<proto::Result>) {
        let run = Response::Batch(proto::RunResponse { results, ..Default::default() });
        self.send(StreamResponse { response: Some(run), credit_bytes: credit, batches }).await;
    }

    async fn send(&self, message: StreamResponse) {
        let _ = self.to.send(Ok(message)).await; // the stream may be over
    }

    async fn refuse(&self, reason: Reason) {
        let told = proto::Error { reason: reason.into(), message: "scripted".into(), ..Default::default() };
        let _ = self.to.send(Err(Error::from_proto(told))).await;
    }

    /// Keeps the stream open until the client ends it.
    async fn stay(mut self) {
        while self.from.recv().await.is_some() {}
    }
}

/// A writer whose streams a script serves.
struct Scripted {
    writer: Arc<Writer>,
    _runtime: Runtime,
}

fn scripted<F: Future<Output = ()> + Send + 'static>(
    patience: Duration,
    script: impl Fn(Peer) -> F + Send + Sync + 'static,
) -> Scripted {
    let limits =
        proto::Limits { max_message_bytes: 1 << 20, max_batch_commands: 1024, max_prepared: 4, ..Default::default() };
    let writer = Writer::new(Opened { session_id: "s".into(), writer: 1, epoch: 1, limits, patience });
    let connect: Connect = Box::new(move |attach| {
        let (send, from) = mpsc::channel(4);
        let (to, receive) = mpsc::channel(4);
        let message = proto::StreamRequest::decode(attach).unwrap();
        let Some(Request::Attach(attach)) = message.request else { panic!("a stream begins with attach") };
        tokio::spawn(script(Peer { attempt: attach.attempt, from, to }));
        Box::pin(async move { Ok(Wire { send, receive: Box::pin(ReceiverStream::new(receive)) }) })
    });
    let runtime = Runtime::start().unwrap();
    let own = Arc::clone(&writer);
    runtime.handle.spawn(async move { own.start(connect) });
    Scripted { writer, _runtime: runtime }
}

fn seed(value: i64) -> Command {
    let set = Some(proto::manual_seed_request::Set::Seed(value));
    Command::ManualSeed(proto::ManualSeedRequest { set, ..Default::default() })
}

/// Waits for everything, as Session::wait does.
fn wait(writer: &Writer) -> Result<()> {
    let done = writer.flush();
    let _ = done.blocking_recv(); // it ends without a message
    writer.dead().or_else(|| writer.take_failure()).map_or(Ok(()), Err)
}

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn credit_and_batches_under_way_are_bounded() {
    const CREDIT: u64 = 10_000; // suffices for the largest batch
    let most = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&most);
    let server = scripted(PATIENCE, move |mut peer| {
        let most = Arc::clone(&counted);
        async move {
            peer.attached(CREDIT).await;
            let mut open = VecDeque::new();
            loop {
                // What comes within a moment is under way at the same time.
                let wait = if open.is_empty() { Duration::from_secs(9) } else { Duration::from_millis(20) };
                match tokio::time::timeout(wait, peer.next()).await {
                    Ok(Some((_, batch))) => {
                        open.push_back(batch.encoded_len());
                        let bytes: usize = open.iter().sum();
                        assert!(bytes as u64 <= CREDIT, "{bytes} bytes under way");
                        most.fetch_max(open.len(), Ordering::Relaxed);
                    }
                    Ok(None) => return,
                    Err(_) => {
                        let Some(size) = open.pop_front() else { return };
                        peer.answer(size as u64, 0, Vec::new()).await;
                    }
                }
            }
        }
    });
    (0..3_000).for_each(|value| server.writer.send(seed(value)));
    wait(&server.writer).unwrap();
    let most = most.load(Ordering::Relaxed);
    assert!((2..=8).contains(&most), "{most} batches under way");
}

#[test]
fn unanswered_batches_are_sent_again_unchanged() {
    let seen: Arc<Mutex<Vec<(u32, Bytes)>>> = Arc::default();
    let told = Arc::clone(&seen);
    let server = scripted(PATIENCE, move |mut peer| {
        let seen = Arc::clone(&told);
        async move {
            peer.attached(1 << 20).await;
            let Some((data, _)) = peer.next().await else { return };
            lock(&seen).push((peer.attempt, data));
            let times = lock(&seen).len();
            match times {
                1 => {} // the connection breaks
                2 => peer.refuse(Reason::StreamTaken).await,
                _ => {
                    peer.answer(0, 0, Vec::new()).await;
                    peer.stay().await;
                }
            }
        }
    });
    (0..10).for_each(|value| server.writer.send(seed(value)));
    wait(&server.writer).unwrap();
    let seen = lock(&seen);
    let attempts: Vec<u32> = seen.iter().map(|(attempt, _)| *attempt).collect();
    assert_eq!(attempts, [1, 2, 3]);
    assert!(seen.iter().all(|(_, data)| *data == seen[0].1));
    assert_eq!(server.writer.reconnects(), 2);
}

#[test]
fn forgotten_results_end_the_session() {
    let server = scripted(PATIENCE, |mut peer| async move {
        peer.attached(1 << 20).await;
        peer.next().await;
        peer.refuse(Reason::ResultForgotten).await;
    });
    let answer = server.writer.ask(seed(0));
    assert!(answer.blocking_recv().is_err());
    assert_eq!(wait(&server.writer).unwrap_err().reason(), Some(Reason::ResultForgotten));
}

#[test]
fn patience_ends() {
    let server = scripted(Duration::from_millis(50), |_| async {});
    let begun = Instant::now();
    server.writer.send(seed(0));
    assert!(matches!(wait(&server.writer), Err(Error::Connection { .. })));
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn joined_answers_answer_several_batches() {
    let server = scripted(PATIENCE, |mut peer| async move {
        peer.attached(1 << 20).await;
        for _ in 0..3 {
            peer.next().await;
        }
        peer.answer(0, 3, Vec::new()).await;
        peer.stay().await;
    });
    (0..2 * SEND_AT as i64 + 1).for_each(|value| server.writer.send(seed(value)));
    wait(&server.writer).unwrap();
}

#[test]
fn a_failure_is_told_once_and_its_consequences_never() {
    let server = scripted(PATIENCE, |mut peer| async move {
        peer.attached(1 << 20).await;
        peer.next().await;
        let refused = |seq: u64, reason: Reason, root_seq: u64| proto::Result {
            seq,
            result: Some(proto::result::Result::Error(proto::Error {
                reason: reason.into(),
                message: format!("command {seq}"),
                root_seq,
                ..Default::default()
            })),
        };
        let results = vec![refused(1, Reason::Shape, 0), refused(2, Reason::DependencyFailed, 1)];
        peer.answer(1 << 20, 0, results).await;
        peer.stay().await;
    });
    (0..3).for_each(|value| server.writer.send(seed(value)));
    assert_eq!(wait(&server.writer).unwrap_err().reason(), Some(Reason::Shape));
    assert!(server.writer.take_failure().is_none());
    let depends = proto::Error { reason: Reason::DependencyFailed.into(), root_seq: 1, ..Default::default() };
    assert_eq!(server.writer.origin(Error::from_proto(depends)).reason(), Some(Reason::Shape));
}

// Bytes

fn golden() -> Value {
    let near = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/conformance");
    let folder = std::env::var("GRADWIRE_CONFORMANCE").unwrap_or(near.into());
    serde_json::from_slice(&std::fs::read(format!("{folder}/golden.json")).unwrap()).unwrap()
}

/// The items of a list; none if it is absent.
fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn unhex(text: &Value) -> Vec<u8> {
    let text = text.as_str().unwrap();
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn hex(data: &[u8]) -> String {
    data.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn words_of_prepared_calls() {
    let session = Session::recording();
    let tensor = |id: &Value| Tensor::borrowed(&session, id.as_u64().unwrap());
    let argument = |given: &Value| -> Argument {
        let (kind, value) = given.as_object().unwrap().iter().next().unwrap();
        match &kind[..] {
            "tensor" => tensor(value).into(),
            "tensors" => list(value).iter().map(tensor).collect::<Vec<_>>().into(),
            "float" => value.as_f64().unwrap().into(),
            "integer" => value.as_i64().unwrap().into(),
            "integers" => list(value).iter().map(|each| each.as_i64().unwrap()).collect::<Vec<_>>().into(),
            "boolean" => value.as_bool().unwrap().into(),
            "index" => vec![IndexItem::from(0)].into(),
            unknown => panic!("unknown kind {unknown}"),
        }
    };
    let vectors = golden();
    assert!(list(&vectors["prepared_calls"]).len() > 3);
    for vector in list(&vectors["prepared_calls"]) {
        let op = vector["op"].as_str().unwrap().to_owned();
        let mut call = Call::new(op.clone());
        for each in list(&vector["args"]) {
            call = call.arg(argument(each));
        }
        for (name, each) in vector["named"].as_object().into_iter().flatten() {
            call = call.named(name.clone(), argument(each));
        }
        if op == "getitem" {
            let mut key = Vec::new();
            assert!(!call.key(&mut key, proto::GradMode::Unspecified, 1), "an index has no words here");
            continue;
        }
        let outputs: Vec<u64> = list(&vector["outputs"]).iter().map(|id| id.as_u64().unwrap()).collect();
        let mut words = Vec::new();
        call.words(&mut words, vector["number"].as_u64().unwrap() as u32, &outputs);
        assert_eq!(hex(&words), vector["words"], "{op}");
    }
}

#[test]
fn hashes_of_programs() {
    let vectors = golden();
    assert!(!list(&vectors["programs"]).is_empty());
    for vector in list(&vectors["programs"]) {
        let program = proto::Program::decode(&unhex(&vector["bytes"])[..]).unwrap();
        assert_eq!(hex(&Sha256::digest(program.encode_to_vec())), vector["sha256"]);
    }
}

#[test]
fn trailers_of_refusals() {
    let vectors = golden();
    assert!(!list(&vectors["errors"]).is_empty());
    for vector in list(&vectors["errors"]) {
        let mut status = Status::unknown("");
        status.metadata_mut().insert_bin("gradwire-error-bin", MetadataValue::from_bytes(&unhex(&vector["bytes"])));
        let error = Error::from_status(&status);
        let told = error.refusal().unwrap();
        assert_eq!(Value::from(told.reason.as_str_name().trim_start_matches("REASON_")), vector["reason"]);
        assert_eq!(Value::from(&told.message[..]), vector["message"]);
        assert_eq!(Value::from(told.code as i32), vector["code"]);
        assert_eq!(Value::from(&told.op[..]), vector["metadata"]["op"]);
        assert_eq!(told.shape.as_ref().map(Vec::len), Some(2));
    }
}

/// Lets the values' bytes arrive in parts of every size.
fn arrive<T: Element + PartialEq + std::fmt::Debug>(values: &[T]) {
    let bytes = bytes_of(values);
    for size in 1..=bytes.len() {
        let mut arriving = Arriving::<T>::new(bytes.len() as u64);
        for (index, part) in bytes.chunks(size).enumerate() {
            assert_eq!(arriving.bytes(), (index * size) as u64);
            arriving.extend(part);
        }
        assert_eq!(arriving.bytes(), bytes.len() as u64);
        assert_eq!(arriving.into_values(), values, "in parts of {size} bytes");
    }
}

#[test]
fn parts_of_a_download_end_anywhere_in_an_element() {
    arrive(&[1.5f32, -2.0, 3.25]);
    arrive(&[1u16, 2, 65535]);
    arrive(&[true, false, true]);
    arrive(&[7u8, 8]);
    arrive(&[Complex { re: 1f64, im: -1.0 }, Complex { re: 0.5, im: 2.0 }]);
}

//! Values above `limits.max_inline_bytes` travel in chunks, and a broken transfer is resumed.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;

use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::pending::Pending;
use crate::proto::{self, upload_request::Part};
use crate::session::Session;
use crate::values::{Arriving, Element};
use crate::writer::{FIRST_PAUSE, LONGEST_PAUSE};

const CHUNK: usize = 256 << 10;
/// Chunks shrink to this size while calls break before one has arrived.
const LEAST_CHUNK: usize = 4 << 10;

impl Session {
    /// Sends values in chunks. After a broken call it asks how many bytes have arrived, and sends the others.
    pub(crate) fn upload(&self, data: Bytes) -> Pending<proto::Transfer> {
        let live = match self.must_live("large values") {
            Ok(live) => live,
            Err(error) => return Pending::ready(Err(error)),
        };
        let connection = Arc::clone(&live.connection);
        let start = proto::UploadStart {
            session_id: self.id().to_owned(),
            total_bytes: data.len() as u64,
            request_id: live.request_id(),
            ..Default::default()
        };
        let chunk = match live.opened.limits.chunk_bytes as usize {
            0 => CHUNK,
            bytes => bytes,
        };
        live.spawn(async move {
            let total_bytes = start.total_bytes;
            let state = Uploading { most: chunk, chunk: AtomicUsize::new(0), reached: AtomicU64::new(0) };
            let transfer_id = resumed(&connection, || upload(&connection, &start, &data, &state)).await?;
            Ok(proto::Transfer { transfer_id, total_bytes, ..Default::default() })
        })
    }

    /// Fetches a transfer's values. After a broken call it asks for the bytes that are missing.
    pub(crate) fn download<T: Element>(&self, transfer: proto::Transfer) -> Pending<Vec<T>> {
        let live = match self.must_live("large values") {
            Ok(live) => live,
            Err(error) => return Pending::ready(Err(error)),
        };
        let connection = Arc::clone(&live.connection);
        let session_id = self.id().to_owned();
        live.spawn(async move {
            let data = tokio::sync::Mutex::new(Arriving::new(transfer.total_bytes));
            resumed(&connection, || async {
                let mut data = data.lock().await;
                download(&connection, &session_id, &transfer, &mut data).await
            })
            .await?;
            Ok(data.into_inner().into_values())
        })
    }
}

/// A part of a transfer: it is finished, or broke after progress or without any.
type Attempt<T> = std::result::Result<T, (bool, Error)>;

/// What the attempts of an upload know of the earlier ones.
struct Uploading {
    /// The size of chunks that the server allows.
    most: usize,
    /// The size of chunks in the last attempt, or 0.
    chunk: AtomicUsize,
    /// How many bytes the earlier attempts brought.
    reached: AtomicU64,
}

impl Uploading {
    /// The size of the next attempt's chunks: a chunk arrives as a whole or not at all.
    fn next_chunk(&self, progress: bool) -> usize {
        let next = match self.chunk.load(Ordering::Relaxed) {
            0 => self.most,
            before if progress => self.most.min(2 * before),
            before => (before / 2).max(self.most.min(LEAST_CHUNK)),
        };
        self.chunk.store(next, Ordering::Relaxed);
        next
    }
}

/// Sends what has not arrived.
async fn upload(
    connection: &Connection,
    start: &proto::UploadStart,
    data: &Bytes,
    state: &Uploading,
) -> Attempt<String> {
    let asked = send(connection, start.clone(), Bytes::new(), state.most).await.map_err(|error| (false, error))?;
    let arrived = asked.received_bytes;
    let progress = arrived > state.reached.swap(arrived, Ordering::Relaxed);
    let chunk = state.next_chunk(progress);
    let begin = proto::UploadStart { transfer_id: asked.transfer_id, offset: arrived, ..start.clone() };
    let rest = data.slice(arrived as usize..);
    let told = send(connection, begin, rest, chunk).await.map_err(|error| (progress, error))?;
    if told.received_bytes == start.total_bytes {
        return Ok(told.transfer_id);
    }
    Err((progress, Error::unavailable("the server received a part of the upload")))
}

/// Makes one call of Upload.
async fn send(
    connection: &Connection,
    start: proto::UploadStart,
    data: Bytes,
    chunk: usize,
) -> Result<proto::UploadResponse> {
    let chunks = (0..data.len()).step_by(chunk).map(move |at| {
        let part = data.slice(at..data.len().min(at + chunk));
        proto::UploadRequest { part: Some(Part::Data(part)) }
    });
    let messages = std::iter::once(proto::UploadRequest { part: Some(Part::Start(start)) }).chain(chunks);
    let answer = connection.client()?.upload(tokio_stream::iter(messages)).await;
    answer.map(tonic::Response::into_inner).map_err(|status| connection.failed(&status))
}

async fn download<T: Element>(
    connection: &Connection,
    session_id: &str,
    transfer: &proto::Transfer,
    data: &mut Arriving<T>,
) -> Attempt<()> {
    let before = data.bytes();
    let request = proto::DownloadRequest {
        session_id: session_id.to_owned(),
        transfer_id: transfer.transfer_id.clone(),
        offset: before,
    };
    let broken = |status: &tonic::Status| connection.failed(status);
    let mut client = connection.client().map_err(|error| (false, error))?;
    let mut parts = client.download(request).await.map_err(|status| (false, broken(&status)))?.into_inner();
    loop {
        match parts.message().await {
            Ok(Some(part)) if part.offset == data.bytes() => data.extend(&part.data),
            Ok(Some(_)) => return Err((false, Error::unavailable("a part of the download is missing"))),
            Ok(None) if data.bytes() == transfer.total_bytes => return Ok(()),
            Err(_) if data.bytes() == transfer.total_bytes => return Ok(()),
            Ok(None) => return Err((data.bytes() > before, Error::unavailable("the download ended early"))),
            Err(status) => return Err((data.bytes() > before, broken(&status))),
        }
    }
}

/// Repeats a part of a transfer until it succeeds. It gives up after the session's patience without progress.
async fn resumed<T, F: Future<Output = Attempt<T>>>(connection: &Connection, part: impl Fn() -> F) -> Result<T> {
    let (mut since, mut pause) = (Instant::now(), FIRST_PAUSE);
    loop {
        match part().await {
            Ok(done) => return Ok(done),
            Err((true, error)) if error.may_retry() => (since, pause) = (Instant::now(), FIRST_PAUSE),
            Err((false, error)) if error.may_retry() && since.elapsed() <= connection.options.patience => {}
            Err((_, error)) => return Err(error),
        }
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
}

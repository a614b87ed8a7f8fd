//! A stream by a Unix socket in the abstract namespace: each message follows its length.

use std::collections::HashMap;
use std::io;
use std::os::linux::fs::MetadataExt;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream as Socket};

use bytes::Bytes;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

use super::Wire;
use crate::error::{Error, Reason, Result};
use crate::proto::{self, StreamResponse};

/// In a length: the message is the stream's status, and the last one.
const LAST: u32 = 1 << 31;

/// google.rpc.Status.
#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// google.protobuf.Any.
#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

/// google.rpc.ErrorInfo.
#[derive(Clone, PartialEq, Message)]
struct ErrorInfo {
    #[prost(string, tag = "1")]
    reason: String,
    #[prost(map = "string, string", tag = "3")]
    metadata: HashMap<String, String>,
}

/// Opens a stream. Fails if the socket is not there, or is another user's.
pub(crate) async fn connect(name: &str, attach: Bytes) -> io::Result<Wire> {
    let socket = Socket::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    socket.set_nonblocking(true)?;
    let stream = UnixStream::from_std(socket)?;
    if stream.peer_cred()?.uid() != std::fs::metadata("/proc/self")?.st_uid() {
        return Err(io::Error::from(io::ErrorKind::PermissionDenied));
    }
    let (from, mut to) = stream.into_split();
    write(&mut to, &attach).await?;
    let (send, mut messages) = mpsc::channel::<Bytes>(4);
    tokio::spawn(async move {
        while let Some(message) = messages.recv().await {
            if write(&mut to, &message).await.is_err() {
                return; // the end of what is read says why
            }
        }
    });
    let (received, receive) = mpsc::channel(4);
    tokio::spawn(read(BufReader::new(from), received));
    Ok(Wire { send, receive: Box::pin(ReceiverStream::new(receive)) })
}

async fn write(to: &mut OwnedWriteHalf, message: &[u8]) -> io::Result<()> {
    let mut framed = Vec::with_capacity(4 + message.len());
    framed.extend_from_slice(&(message.len() as u32).to_le_bytes());
    framed.extend_from_slice(message);
    to.write_all(&framed).await
}

async fn read(mut from: BufReader<OwnedReadHalf>, received: mpsc::Sender<Result<StreamResponse>>) {
    loop {
        let message = one(&mut from).await.unwrap_or_else(|error| Some(Err(Error::unavailable(error.to_string()))));
        let Some(message) = message else { return };
        let ended = message.is_err();
        if received.send(message).await.is_err() || ended {
            return;
        }
    }
}

/// Reads a message; none at the end.
async fn one(from: &mut BufReader<OwnedReadHalf>) -> io::Result<Option<Result<StreamResponse>>> {
    let length = from.read_u32_le().await?;
    let mut data = vec![0; (length & !LAST) as usize];
    from.read_exact(&mut data).await?;
    let data = Bytes::from(data);
    if length & LAST == 0 {
        return Ok(Some(Ok(StreamResponse::decode(data)?)));
    }
    let status = Status::decode(data)?;
    Ok((status.code != 0).then(|| Err(refusal(status))))
}

fn refusal(status: Status) -> Error {
    let info = status.details.iter().find(|detail| detail.type_url.ends_with("/google.rpc.ErrorInfo"));
    let info = info.and_then(|detail| ErrorInfo::decode(detail.value.clone()).ok());
    let reason = info.as_ref().and_then(|info| Reason::from_str_name(&format!("REASON_{}", info.reason)));
    match (info, reason) {
        (Some(info), Some(reason)) => Error::from_proto(proto::Error {
            code: status.code,
            reason: reason.into(),
            message: status.message,
            metadata: info.metadata,
            root_seq: 0,
        }),
        _ => Error::Connection { code: Code::from(status.code), message: status.message },
    }
}

//! A stream of messages over gRPC, in bytes: batches are encoded once, and sent again unchanged.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes};
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Request, Status};

use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::proto::StreamResponse;
use crate::proto::stream_response::Response;

#[cfg(target_os = "linux")]
#[path = "local_stream.rs"]
mod local;

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Opens a stream whose first message is the given one.
pub(crate) type Connect = Box<dyn Fn(Bytes) -> BoxFuture<Result<Wire>> + Send + Sync>;

/// An open stream: what is sent, and what comes.
pub(crate) struct Wire {
    pub send: mpsc::Sender<Bytes>,
    pub receive: Pin<Box<dyn Stream<Item = Result<StreamResponse>> + Send>>,
}

/// A stream of the service: by the server's Unix socket where that works, else by gRPC.
pub(crate) async fn connect(connection: &Arc<Connection>, attach: Bytes) -> Result<Wire> {
    #[cfg(target_os = "linux")]
    if let Some(name) = connection.local_stream() {
        // The socket is gone when the server has restarted, and absent where it is on another machine.
        if let Ok(wire) = local::connect(&name, attach.clone()).await {
            return Ok(watched(connection, wire));
        }
    }
    let mut grpc = Grpc::new(connection.service()?).max_decoding_message_size(usize::MAX);
    grpc.ready().await.map_err(|error| Error::unavailable(error.to_string()))?;
    let (send, messages) = mpsc::channel(4);
    // The server answers to the first message only.
    send.try_send(attach).expect("the channel is empty");
    let path = PathAndQuery::from_static("/gradwire.v1.AutogradService/Stream");
    let request = Request::new(ReceiverStream::new(messages));
    let answer = grpc.streaming(request, path, BytesCodec).await.map_err(|status| connection.failed(&status))?;
    let receive = answer.into_inner().map(|message| message.map_err(|status| Error::from_status(&status)));
    Ok(watched(connection, Wire { send, receive: Box::pin(receive) }))
}

/// Tells the connection what decides where the next stream goes.
fn watched(connection: &Arc<Connection>, wire: Wire) -> Wire {
    let connection = Arc::clone(connection);
    let receive = wire.receive.map(move |message| {
        if let Ok(StreamResponse { response: Some(Response::Attached(attached)), .. }) = &message {
            connection.attached(&attached.local_stream);
        }
        message.map_err(|error| if error.moved_to().is_some() { connection.noted(error) } else { error })
    });
    Wire { send: wire.send, receive: Box::pin(receive) }
}

/// Sends bytes as they are.
struct BytesCodec;

impl Codec for BytesCodec {
    type Encode = Bytes;
    type Decode = StreamResponse;
    type Encoder = BytesCodec;
    type Decoder = BytesCodec;

    fn encoder(&mut self) -> BytesCodec {
        BytesCodec
    }

    fn decoder(&mut self) -> BytesCodec {
        BytesCodec
    }
}

impl Encoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> std::result::Result<(), Status> {
        buffer.reserve(item.remaining());
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for BytesCodec {
    type Item = StreamResponse;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> std::result::Result<Option<StreamResponse>, Status> {
        StreamResponse::decode(buffer).map(Some).map_err(|error| Status::internal(error.to_string()))
    }
}

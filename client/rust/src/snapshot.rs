//! Snapshots: a session's values, gradients, graph and random generator under a name on the server.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::connection::{Client, Connection};
use crate::error::{Error, Reason};
use crate::options::ConnectOptions;
use crate::pending::Pending;
use crate::proto;
use crate::session::{Runtime, Session, elsewhere};
use crate::tensor::Tensor;

impl Session {
    /// Stores the session as a snapshot of that name, after all commands. [`Session::restore`] opens the snapshot and
    /// returns the given tensors by their names. A time to live of zero takes the server's limit. The server needs
    /// --state-dir.
    pub fn save<K: Into<String>, T: Borrow<Tensor>>(
        &self,
        name: &str,
        tensors: impl IntoIterator<Item = (K, T)>,
        live: Duration,
    ) -> Pending<()> {
        let mut request = proto::SaveSessionRequest {
            session_id: self.id().to_owned(),
            name: name.to_owned(),
            ttl_ms: live.as_millis() as u64,
            tensors: Vec::new(),
        };
        let mut held = Vec::new(); // until they are saved
        for (key, tensor) in tensors {
            let (key, tensor): (String, Tensor) = (key.into(), tensor.borrow().clone());
            match tensor.usable() {
                Ok(session) if session.is(self) => {}
                Ok(_) => {
                    let message = format!("{key:?} is a tensor of another session");
                    return Pending::ready(Err(Error::refused(Reason::ArgumentValue, "", message)));
                }
                Err(error) => return Pending::ready(Err(error)),
            }
            request.tensors.push(proto::NamedTensor { name: key, id: tensor.id() });
            held.push(tensor);
        }
        let (done, session) = (self.wait(), self.clone());
        Pending::new(async move {
            done.await?;
            let saved = session.unary(request, |mut client, request| async move { client.save_session(request).await });
            let result = saved.await.map(drop);
            drop(held);
            result
        })
    }

    /// Opens a new session from a snapshot, at a server of [`Session::connect`]'s kind of address. Returns it with the
    /// tensors that were saved under names.
    pub fn restore(address: &str, name: &str, options: ConnectOptions) -> Pending<(Session, HashMap<String, Tensor>)> {
        let runtime = match Runtime::start() {
            Ok(runtime) => runtime,
            Err(error) => return Pending::ready(Err(Error::unavailable(error.to_string()))),
        };
        let address = address.to_owned();
        let request = proto::RestoreSessionRequest {
            name: name.to_owned(),
            lease_ms: options.lease.as_millis() as u32,
            client: options.client.clone(),
            named_only: true,
            follows_endpoint: true,
            device_type: options.device_type.clone(),
        };
        let opened = runtime.spawn(async move {
            let connection = Arc::new(Connection::new(&address, options)?);
            let call = |mut client: Client, request| async move { client.restore_session(request).await };
            let mut answer = connection.open(request.clone(), call).await?;
            if let Some(endpoint) = elsewhere(answer.session.as_ref()) {
                connection.move_to(endpoint)?;
                let there = proto::RestoreSessionRequest { follows_endpoint: false, ..request };
                answer = connection.open(there, call).await?;
            }
            Ok((connection, answer))
        });
        Pending::new(async move {
            let (connection, answer) = opened.await?;
            let session = Session::begin(runtime, connection, answer.session.unwrap_or_default())?;
            let mut known: HashMap<u64, Tensor> = HashMap::new(); // a tensor may have several names
            let mut tensors = HashMap::new();
            for each in answer.tensors {
                let id = each.spec.map_or(0, |spec| spec.id);
                let tensor = known.entry(id).or_insert_with(|| Tensor::owned(&session, id)).clone();
                tensors.insert(each.name, tensor);
            }
            Ok((session, tensors))
        })
    }

    /// Deletes a snapshot of the caller's on the session's server.
    pub fn delete_snapshot(&self, name: &str) -> Pending<()> {
        let request = proto::DeleteSnapshotRequest { name: name.to_owned() };
        self.unary(request, |mut client, request| async move { client.delete_snapshot(request).await }).map(|_| Ok(()))
    }
}

//! Large values.

use std::time::Duration;

use crate::servers::{Cutting, session};
use gradwire::{ConnectOptions, DType, Session};

fn up_and_down(session: &Session, bytes: usize) {
    let data: Vec<u8> = (0..bytes).map(|place| (place % 251) as u8).collect();
    let made = session.tensor_from_bytes(DType::Uint8, data.clone(), [bytes as i64]);
    assert!(made.to_vec::<u8>().wait().unwrap() == data);
}

/// Each connection attaches, so the server answers; but it breaks before the batch has arrived.
#[test]
fn a_batch_that_no_connection_carries_ends_with_an_error() {
    let Some(proxy) = Cutting::new(100_000, 100_000) else { return };
    let options = ConnectOptions::default().local_stream(false).patience(Duration::from_millis(800));
    let session = Session::connect_with(&proxy.address, options).wait().unwrap();
    let large = session.tensor_from_bytes(DType::Uint8, vec![0; 800_000], [800_000]); // within the limit of one message
    let error = large.to_vec::<u8>().wait().unwrap_err().to_string();
    assert!(error.contains(" connections broke in 8s before a batch of 800"), "{error}");
}

#[test]
fn large_values_go_up_and_down() {
    let Some(session) = session() else { return };
    up_and_down(&session, 8 << 20);
}

#[test]
fn large_values_go_through_broken_connections() {
    // Messages of the server's chunk, 1 MiB, pass few of these connections.
    let Some(proxy) = Cutting::new(100_000, 1_000_000) else { return };
    let session = Session::connect(&proxy.address).wait().unwrap();
    up_and_down(&session, 5 << 20);
    drop(session);
    assert!(proxy.end() > 1);
}

//! Snapshots of a session.

use std::time::Duration;

use gradwire::{ConnectOptions, Reason, Session, Tensor, no_grad};

use crate::servers::{address, session, variable};

#[test]
fn a_snapshot_goes_on_where_it_was_saved() {
    let (Some(session), Some(address)) = (session(), address()) else { return };
    let w = session.tensor([1f32, 2.0, 3.0]).requires_grad_(true);
    let loss = (&w * &w).sum();
    let saved =
        session.save("rust-snapshot", [("w", &w), ("loss", &loss), ("again", &w)], Duration::from_secs(60)).wait();
    if saved.as_ref().is_err_and(|error| error.reason() == Some(Reason::NotSupported)) {
        eprintln!("skipped: the server has no folder for snapshots");
        return;
    }
    saved.unwrap();
    no_grad(|| w.mul_(100.0)); // after the snapshot
    let restore = || Session::restore(&address, "rust-snapshot", ConnectOptions::default()).wait();
    let (again, tensors) = restore().unwrap();
    tensors["loss"].backward().unwrap(); // the graph was saved, too
    let values = |tensor: &Tensor| tensor.to_vec::<f32>().wait().unwrap();
    assert_eq!(values(&tensors["w"].grad()), [2.0, 4.0, 6.0]);
    assert_eq!(values(&tensors["again"]), [1.0, 2.0, 3.0]);
    again.close().wait().unwrap();
    session.delete_snapshot("rust-snapshot").wait().unwrap();
    assert_eq!(restore().unwrap_err().reason(), Some(Reason::SnapshotNotFound));
    let other = self::session().unwrap().ones([1]);
    assert!(session.save("rust-other", [("x", &other)], Duration::ZERO).wait().is_err());
}

#[test]
fn a_snapshot_is_restored_at_the_server_that_the_first_one_names() {
    let (Some(session), Some(moving)) = (session(), variable("GRADWIRE_MOVING")) else { return };
    let w = session.ones([2]);
    session.save("rust-placed", [("w", &w)], Duration::from_secs(60)).wait().unwrap();
    let (again, tensors) = Session::restore(&moving, "rust-placed", ConnectOptions::default()).wait().unwrap();
    assert_eq!(tensors["w"].to_vec::<f32>().wait().unwrap(), [1.0, 1.0]);
    again.close().wait().unwrap();
    session.delete_snapshot("rust-placed").wait().unwrap();
}

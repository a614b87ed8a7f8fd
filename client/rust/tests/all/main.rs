//! Tests against a live server, whose address `make test-sdks` gives. Without one they are skipped.

mod bulk;
mod conformance;
mod connection;
mod page;
mod programs;
mod readme;
mod servers;
mod session;
mod snapshots;
mod stubs;

#[path = "../../examples/digits.rs"]
#[allow(dead_code)]
mod digits;
#[path = "../../examples/exported.rs"]
#[allow(dead_code)]
mod exported;
#[path = "../../examples/line.rs"]
#[allow(dead_code)]
mod line;

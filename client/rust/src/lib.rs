//! Tensors and gradients on a [gradwire](https://github.com/gradwire/gradwire) server, with PyTorch's semantics.
//!
//! Tensors live on the server. Ops return at once: their commands are queued and sent in batches over one stream. A
//! mistake surfaces at the next wait or read, as an [`Error`] with PyTorch's sentence. A tensor made from a failed one
//! fails with the first error.
//!
//! ```ignore
//! let session = Session::connect("127.0.0.1:50051").wait()?;
//! let a = session.tensor([1f32, 2.0, 3.0]).requires_grad_(true);
//! (&a * &a).sum().backward()?;
//! let gradient: Vec<f32> = a.grad().to_vec().wait()?; // 2, 4, 6
//! session.close().wait()?;
//! ```
//!
//! # Waiting
//!
//! What waits for the server returns a [`Pending`]. In async code `.await` it, on any runtime. Elsewhere call
//! [`Pending::wait`]. A session has a thread of its own for its connection.
//!
//! # Names
//!
//! Methods of [`Tensor`] and [`Session`] have PyTorch's names. An op with options has a second function, whose name ends
//! in `_with`: `a.sum()` and `a.sum_with(SumOptions::default().dim([0]))`. Functions below `torch.nn.functional`,
//! `torch.linalg`, `torch.fft` and `torch.special` are in modules of these names.
//!
//! # Errors
//!
//! A session survives refusals: a refused command changes nothing. After a broken connection the session sends again
//! what was not answered, and the server applies nothing twice. Only after [`ConnectOptions::patience`] without an
//! answer it fails.
//!
//! # Memory
//!
//! A dropped tensor is released with the next batch. Clones of a tensor are the same tensor.

#![deny(unsafe_code)]
#![warn(missing_docs)]

use std::sync::{Mutex, MutexGuard};

mod autograd;
mod bulk;
mod call;
mod connection;
mod error;
mod memory;
mod operators;
#[rustfmt::skip]
mod ops;
mod options;
mod pending;
mod program;
mod program_file;
mod session;
mod snapshot;
mod tensor;
#[cfg(test)]
mod tests;
mod values;
mod wire;
mod writer;

#[rustfmt::skip]
pub mod fft;
#[rustfmt::skip]
pub mod functional;
#[rustfmt::skip]
pub mod linalg;
#[rustfmt::skip]
pub mod special;

/// The messages and the stub of the protocol, for what this crate does not cover; see [`Session::unary`].
#[allow(missing_docs, clippy::all)]
#[path = "proto/gradwire.v1.rs"]
#[rustfmt::skip]
pub mod proto;

pub use autograd::{BackwardOptions, Hook, NoGrad, backward, grad, grad_with, inference_mode, no_grad};
pub use call::{Argument, Call, Number, Operand, Scalar};
pub use connection::Client;
pub use error::{BoxError, Error, Reason, Refusal, Result};
pub use ops::*;
pub use options::ConnectOptions;
pub use pending::Pending;
pub use program::{Input, Program, RunOptions};
pub use program_file::{FileProgram, ProgramFile};
pub use session::Session;
pub use tensor::{Description, IndexItem, Tensor};
pub use values::{Complex, DType, Element, Payload};

/// Locks a mutex. No code panics while it holds one, so a poisoned one is whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

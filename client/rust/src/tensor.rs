//! Tensors of a session, and expressions that index them.

use std::fmt;
use std::ops::{Bound, RangeBounds, RangeFull};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::call::{Call, Operand, unexpected};
use crate::error::{Error, Result};
use crate::pending::Pending;
use crate::proto::{self, command::Command, index_item::Item};
use crate::session::Session;
use crate::values::DType;

/// A tensor of a session. Its values are on the server, and may not be computed yet. A tensor that could not be made has
/// an error, which every read of it returns, and every tensor made from it has the error, too.
///
/// Clones are the same tensor. When the last one is dropped, the server frees the tensor, unless a graph or another
/// tensor needs its values.
#[derive(Clone)]
pub struct Tensor(Arc<Handle>);

struct Handle {
    session: Option<Session>,
    id: Result<u64>,
    released: AtomicBool,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.release();
    }
}

impl Handle {
    fn release(&self) {
        if let (Ok(id), Some(session), false) = (&self.id, &self.session, self.released.swap(true, Ordering::Relaxed)) {
            session.release(*id);
        }
    }
}

/// What the server tells of a tensor without its values.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// Element type.
    pub dtype: DType,
    /// Sizes of the dimensions.
    pub shape: Vec<i64>,
    /// The device: "cpu", "cuda:0".
    pub device: String,
    /// Whether it requires a gradient.
    pub requires_grad: bool,
    /// Whether no graph made it.
    pub is_leaf: bool,
    /// Name of the node that made it, as in PyTorch; empty for a leaf.
    pub grad_fn: String,
    /// Whether a non-leaf keeps its gradient.
    pub retains_grad: bool,
    /// Whether it shares the bytes of another tensor.
    pub is_view: bool,
    /// Number of in-place changes of its bytes.
    pub version: u64,
}

impl Tensor {
    /// A tensor whose id the session releases.
    pub(crate) fn owned(session: &Session, id: u64) -> Tensor {
        Tensor::with(Some(session), Ok(id), false)
    }

    /// A tensor whose id somebody else releases.
    pub(crate) fn borrowed(session: &Session, id: u64) -> Tensor {
        Tensor::with(Some(session), Ok(id), true)
    }

    /// A tensor that could not be made.
    pub(crate) fn failed(session: Option<&Session>, error: Error) -> Tensor {
        Tensor::with(session, Err(error), true)
    }

    fn with(session: Option<&Session>, id: Result<u64>, released: bool) -> Tensor {
        Tensor(Arc::new(Handle { session: session.cloned(), id, released: AtomicBool::new(released) }))
    }

    /// Its id; 0 if it could not be made.
    pub(crate) fn id(&self) -> u64 {
        *self.0.id.as_ref().unwrap_or(&0)
    }

    pub(crate) fn session_of(&self) -> Option<&Session> {
        self.0.session.as_ref()
    }

    /// Why the tensor could not be made, as far as it is known without waiting.
    pub fn error(&self) -> Option<&Error> {
        self.0.id.as_ref().err()
    }

    /// Its session, or why it could not be made.
    pub(crate) fn usable(&self) -> Result<&Session> {
        match (&self.0.id, &self.0.session) {
            (Err(error), _) => Err(error.clone()),
            (Ok(_), Some(session)) => Ok(session),
            (Ok(_), None) => Err(Error::Closed),
        }
    }

    /// Sends a command, or notes the tensor's error for the next wait.
    pub(crate) fn send(&self, command: Command) {
        match (self.usable(), &self.0.session) {
            (Ok(session), _) => session.send(command),
            (Err(error), Some(session)) => session.failed(error),
            (Err(_), None) => {} // nobody could wait for it
        }
    }

    /// Sends a command that waits.
    pub(crate) fn ask(&self, command: Command) -> Pending<proto::result::Result> {
        match self.usable() {
            Ok(session) => session.ask(command),
            Err(error) => Pending::ready(Err(error)),
        }
    }

    /// Frees the tensor on the server now, and not when its last clone is dropped. Use it no more.
    pub fn release(&self) {
        self.0.release();
    }

    /// Asks for shape, dtype and flags.
    pub fn describe(&self) -> Pending<Description> {
        let request = proto::DescribeRequest { tensors: vec![self.id()], ..Default::default() };
        self.ask(Command::Describe(request)).map(|result| {
            let proto::result::Result::Describe(mut told) = result else { return Err(unexpected()) };
            let spec = told.tensors.pop().ok_or_else(unexpected)?;
            Ok(Description {
                dtype: spec.dtype(),
                shape: spec.shape,
                device: spec.device,
                requires_grad: spec.requires_grad,
                is_leaf: spec.is_leaf,
                grad_fn: spec.grad_fn,
                retains_grad: spec.retains_grad,
                is_view: spec.is_view,
                version: spec.version,
            })
        })
    }

    /// Asks for the sizes of the dimensions.
    pub fn shape(&self) -> Pending<Vec<i64>> {
        self.describe().map(|description| Ok(description.shape))
    }

    /// Takes a part: `a.index(&[0.into(), (1..3).into()])` is `a[0, 1:3]`.
    pub fn index(&self, items: &[IndexItem]) -> Tensor {
        Call::new("getitem").arg(self).arg(items).one()
    }

    /// Assigns to a part: `a[items] = value`. Returns the tensor.
    pub fn set_index(&self, items: &[IndexItem], value: impl Into<Operand>) -> Tensor {
        Call::new("setitem_").arg(self).arg(items).arg(value.into()).in_place()
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.id {
            Ok(id) => write!(f, "Tensor({id})"),
            Err(error) => write!(f, "Tensor({error})"),
        }
    }
}

/// An item of an index expression. It is made of an integer, a range, a tensor of integers or bools, or a bool:
/// `0.into()`, `(1..3).into()`, `(..).into()`, `(&mask).into()`.
#[derive(Clone, Debug)]
pub struct IndexItem(Place);

#[derive(Clone, Debug)]
enum Place {
    Item(Item),
    Tensor(Tensor),
}

impl IndexItem {
    /// Takes positions from start to before stop, in steps; negative ones count from the end.
    pub fn slice(start: Option<i64>, stop: Option<i64>, step: Option<i64>) -> IndexItem {
        IndexItem(Place::Item(Item::Slice(proto::Slice { start, stop, step })))
    }

    /// Stands for all dimensions that the other items do not name.
    pub fn ellipsis() -> IndexItem {
        IndexItem(Place::Item(Item::Ellipsis(true)))
    }

    /// A new dimension of size 1.
    pub fn new_axis() -> IndexItem {
        IndexItem(Place::Item(Item::NewAxis(true)))
    }

    fn range(range: impl RangeBounds<i64>) -> IndexItem {
        let start = match range.start_bound() {
            Bound::Included(start) => Some(*start),
            Bound::Excluded(before) => Some(before + 1),
            Bound::Unbounded => None,
        };
        let stop = match range.end_bound() {
            Bound::Included(-1) | Bound::Unbounded => None, // ..=-1 ends with the last position
            Bound::Included(last) => Some(last + 1),
            Bound::Excluded(stop) => Some(*stop),
        };
        IndexItem::slice(start, stop, None)
    }

    pub(crate) fn tensor(&self) -> Option<&Tensor> {
        match &self.0 {
            Place::Item(_) => None,
            Place::Tensor(tensor) => Some(tensor),
        }
    }

    pub(crate) fn message(&self) -> proto::IndexItem {
        let item = match &self.0 {
            Place::Item(item) => *item,
            Place::Tensor(tensor) => Item::Tensor(tensor.id()),
        };
        proto::IndexItem { item: Some(item) }
    }
}

impl From<i64> for IndexItem {
    fn from(position: i64) -> IndexItem {
        IndexItem(Place::Item(Item::Integer(position)))
    }
}

impl From<bool> for IndexItem {
    fn from(mask: bool) -> IndexItem {
        IndexItem(Place::Item(Item::Boolean(mask)))
    }
}

impl From<&Tensor> for IndexItem {
    fn from(tensor: &Tensor) -> IndexItem {
        IndexItem(Place::Tensor(tensor.clone()))
    }
}

impl From<RangeFull> for IndexItem {
    fn from(_: RangeFull) -> IndexItem {
        IndexItem::slice(None, None, None)
    }
}

macro_rules! ranges {
    ($($range:ident),*) => {$(
        impl From<std::ops::$range<i64>> for IndexItem {
            fn from(range: std::ops::$range<i64>) -> IndexItem {
                IndexItem::range(range)
            }
        }
    )*};
}

ranges!(Range, RangeFrom, RangeTo, RangeInclusive, RangeToInclusive);

impl Tensor {
    /// Sets a leaf's flag (requires_grad_). Returns the tensor.
    pub fn requires_grad_(&self, requires_grad: bool) -> Tensor {
        let request = proto::SetRequiresGradRequest { tensor: self.id(), requires_grad, ..Default::default() };
        self.send(Command::SetRequiresGrad(request));
        self.clone()
    }

    /// Makes a non-leaf keep its gradient in the next backward.
    pub fn retain_grad(&self) {
        self.send(Command::RetainGrad(proto::RetainGradRequest { tensor: self.id(), ..Default::default() }));
    }

    /// The tensor's gradient. Reading it fails where there is none: see [`Tensor::has_grad`].
    pub fn grad(&self) -> Tensor {
        let session = match self.usable() {
            Ok(session) => session,
            Err(error) => return Tensor::failed(self.session_of(), error),
        };
        let made = Tensor::owned(session, session.next_id());
        session.send(Command::Grad(proto::GradRequest { tensor: self.id(), id: made.id(), ..Default::default() }));
        made
    }

    /// Asks whether the tensor has a gradient.
    pub fn has_grad(&self) -> Pending<bool> {
        let session = match self.usable() {
            Ok(session) => session,
            Err(error) => return Pending::ready(Err(error)),
        };
        let made = Tensor::owned(session, session.next_id());
        let request = proto::GradRequest { tensor: self.id(), id: made.id(), ..Default::default() };
        session.ask(Command::Grad(request)).map(|result| {
            let proto::result::Result::Grad(told) = result else { return Err(unexpected()) };
            Ok(told.grad.is_some())
        })
    }

    /// Sets the gradient; `None` clears it.
    pub fn set_grad(&self, grad: Option<&Tensor>) {
        let request =
            proto::SetGradRequest { tensor: self.id(), grad: grad.map_or(0, Tensor::id), ..Default::default() };
        self.send_with(grad, Command::SetGrad(request));
    }

    /// Clears the gradient.
    pub fn zero_grad(&self) {
        self.set_grad(None);
    }

    /// Makes the tensor share another's values; no graph records it (`a.data = b`).
    pub fn set_data(&self, data: &Tensor) {
        let request = proto::SetDataRequest { tensor: self.id(), data: data.id(), ..Default::default() };
        self.send_with(Some(data), Command::SetData(request));
    }

    /// Sends a command that has another tensor, too.
    fn send_with(&self, other: Option<&Tensor>, command: Command) {
        let mut call = Call::new("");
        call.check(self);
        if let Some(other) = other {
            call.check(other);
        }
        match (call.checked(), self.session_of()) {
            (Ok(session), _) => session.send(command),
            (Err(error), Some(session)) => session.failed(error),
            (Err(_), None) => {} // nobody could wait for it
        }
    }
}

/// The session of several tensors, or why they cannot be used together.
pub(crate) fn session_of<'a>(op: &str, tensors: impl IntoIterator<Item = &'a Tensor>) -> Result<Session> {
    let mut call = Call::new(op.to_owned());
    tensors.into_iter().for_each(|tensor| call.check(tensor));
    call.checked().cloned()
}

pub(crate) fn ids(tensors: &[Tensor]) -> Vec<u64> {
    tensors.iter().map(Tensor::id).collect()
}

//! Calls of ops: their arguments, and their forms on the wire.

use std::borrow::{Borrow, Cow};

use crate::autograd::grad_mode;
use crate::error::{Error, Reason, Result};
use crate::pending::Pending;
use crate::proto::{self, GradMode, argument::Kind, command};
use crate::session::Session;
use crate::tensor::{IndexItem, Tensor};
use crate::values::{Complex, DType};

/// A placeholder for a floating-point number in a program; see [`Session::trace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number(pub(crate) u32);

/// An argument of an op.
#[derive(Clone, Debug)]
pub struct Argument(pub(crate) Value);

/// A tensor or a number, as an argument.
#[derive(Clone, Debug)]
pub struct Operand(pub(crate) Value);

/// A number, or a string where an op takes one in its place.
#[derive(Clone, Debug)]
pub struct Scalar(pub(crate) Value);

#[derive(Clone, Debug)]
pub(crate) enum Value {
    None,
    Tensor(Tensor),
    Tensors(Vec<Tensor>),
    Float(f64),
    Integer(i64),
    Boolean(bool),
    Text(String),
    DType(DType),
    Integers(Vec<i64>),
    Floats(Vec<f64>),
    Complex(Complex<f64>),
    Index(Vec<IndexItem>),
    Number(Number),
}

macro_rules! from {
    ($($type:ty => $value:expr, $($target:ident)*;)*) => {
        $($(impl From<$type> for $target {
            fn from(given: $type) -> $target {
                let make: fn($type) -> Value = $value;
                $target(make(given))
            }
        })*)*
    };
}

from! {
    f64 => Value::Float, Argument Operand Scalar;
    f32 => |x| Value::Float(x.into()), Argument Operand Scalar;
    i64 => Value::Integer, Argument Operand Scalar;
    i32 => |x| Value::Integer(x.into()), Argument Operand Scalar;
    u8 => |x| Value::Integer(x.into()), Argument Operand Scalar;
    usize => |x| Value::Integer(x as i64), Argument Operand Scalar;
    bool => Value::Boolean, Argument Operand Scalar;
    Complex<f64> => Value::Complex, Argument Operand Scalar;
    Complex<f32> => |x| Value::Complex(Complex { re: x.re.into(), im: x.im.into() }), Argument Operand Scalar;
    Number => Value::Number, Argument Operand Scalar;
    &str => |x| Value::Text(x.to_owned()), Argument Scalar;
    String => Value::Text, Argument Scalar;
    &Tensor => |x| Value::Tensor(x.clone()), Argument Operand;
    Tensor => Value::Tensor, Argument Operand;
    DType => Value::DType, Argument;
    Vec<i64> => Value::Integers, Argument;
    &[i64] => |x| Value::Integers(x.to_vec()), Argument;
    Vec<f64> => Value::Floats, Argument;
    &[f64] => |x| Value::Floats(x.to_vec()), Argument;
    Vec<Tensor> => Value::Tensors, Argument;
    &[Tensor] => |x| Value::Tensors(x.to_vec()), Argument;
    Vec<IndexItem> => Value::Index, Argument;
    &[IndexItem] => |x| Value::Index(x.to_vec()), Argument;
}

impl From<Operand> for Argument {
    fn from(given: Operand) -> Argument {
        Argument(given.0)
    }
}

impl From<Scalar> for Argument {
    fn from(given: Scalar) -> Argument {
        Argument(given.0)
    }
}

/// `None` is Python's None.
impl<T: Into<Argument>> From<Option<T>> for Argument {
    fn from(given: Option<T>) -> Argument {
        given.map_or(Argument(Value::None), Into::into)
    }
}

/// The tensors of a slice of tensors or of references.
pub(crate) fn tensors(given: &[impl Borrow<Tensor>]) -> Vec<Tensor> {
    given.iter().map(|tensor| tensor.borrow().clone()).collect()
}

/// Options of an op: arguments by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options(Vec<(&'static str, Value)>);

impl Options {
    pub fn set(mut self, name: &'static str, value: impl Into<Argument>) -> Options {
        self.0.retain(|(known, _)| *known != name);
        self.0.push((name, value.into().0));
        self
    }

    pub fn operand(self, name: &'static str, value: impl Into<Operand>) -> Options {
        self.set(name, value.into())
    }

    pub fn scalar(self, name: &'static str, value: impl Into<Scalar>) -> Options {
        self.set(name, value.into())
    }
}

/// Collects the arguments of an op. The functions of this crate use it. Use it for an op whose name is known only at
/// run time.
#[derive(Debug)]
#[must_use = "a call is sent by `one`, `several`, `in_place` or `list`"]
pub struct Call {
    op: Cow<'static, str>,
    session: Option<Session>,
    args: Vec<(Cow<'static, str>, Value)>,
    error: Option<Error>,
}

impl Call {
    /// Begins a call of the op that `ListOps` names.
    pub fn new(op: impl Into<Cow<'static, str>>) -> Call {
        Call { op: op.into(), session: None, args: Vec::with_capacity(4), error: None }
    }

    /// Sets the session. Without it, there must be a tensor among the arguments.
    pub fn session(mut self, session: &Session) -> Call {
        self.session = Some(session.clone());
        self
    }

    /// Adds an argument by place.
    pub fn arg(self, value: impl Into<Argument>) -> Call {
        self.add(Cow::Borrowed(""), value.into().0)
    }

    /// Adds an argument by name.
    pub fn named(self, name: impl Into<Cow<'static, str>>, value: impl Into<Argument>) -> Call {
        self.add(name.into(), value.into().0)
    }

    pub(crate) fn operand(self, value: impl Into<Operand>) -> Call {
        self.arg(value.into())
    }

    pub(crate) fn scalar(self, value: impl Into<Scalar>) -> Call {
        self.arg(value.into())
    }

    /// Adds a list of tensors by place.
    pub(crate) fn tensors(self, list: &[impl Borrow<Tensor>]) -> Call {
        self.add(Cow::Borrowed(""), Value::Tensors(tensors(list)))
    }

    pub(crate) fn options(mut self, options: Options) -> Call {
        for (name, value) in options.0 {
            self = self.add(Cow::Borrowed(name), value);
        }
        self
    }

    fn add(mut self, name: Cow<'static, str>, value: Value) -> Call {
        match &value {
            Value::Tensor(tensor) => self.check(tensor),
            Value::Tensors(list) => list.iter().for_each(|tensor| self.check(tensor)),
            Value::Index(items) => items.iter().filter_map(IndexItem::tensor).for_each(|tensor| self.check(tensor)),
            _ => {}
        }
        self.args.push((name, value));
        self
    }

    /// Takes the session of a tensor, and the error of one that could not be made.
    pub(crate) fn check(&mut self, tensor: &Tensor) {
        if let (None, Some(error)) = (&self.error, tensor.error()) {
            self.error = Some(error.clone());
        }
        match (&self.session, tensor.session_of()) {
            (None, Some(session)) => self.session = Some(session.clone()),
            (Some(own), Some(session)) if !own.is(session) && self.error.is_none() => {
                let message = "the tensors of a call belong to different sessions";
                self.error = Some(Error::refused(Reason::ArgumentValue, &self.op, message));
            }
            _ => {}
        }
    }

    /// Returns the session, or why the call cannot be sent.
    pub(crate) fn checked(&self) -> Result<&Session> {
        match (&self.error, &self.session) {
            (Some(error), _) => Err(error.clone()),
            (None, Some(session)) => Ok(session),
            (None, None) => {
                let message = "a call without a session needs a tensor";
                Err(Error::refused(Reason::ArgumentType, &self.op, message))
            }
        }
    }

    /// Sends the call with fresh ids for its results. If it cannot be sent, the next wait reports it, too.
    fn run<const N: usize>(&self) -> [Tensor; N] {
        match self.checked() {
            Ok(session) => {
                let ids: [u64; N] = std::array::from_fn(|_| session.next_id());
                session.op(self, grad_mode(), &ids);
                ids.map(|id| Tensor::owned(session, id))
            }
            Err(error) => {
                if let Some(session) = &self.session {
                    session.failed(error.clone());
                }
                std::array::from_fn(|_| Tensor::failed(self.session.as_ref(), error.clone()))
            }
        }
    }

    /// Applies an op with one result, or an in-place form.
    pub fn one(self) -> Tensor {
        if self.op.ends_with('_') {
            return self.in_place();
        }
        let [made] = self.run();
        made
    }

    /// Applies an op with as many results as the array has places.
    pub fn several<const N: usize>(self) -> [Tensor; N] {
        self.run()
    }

    /// Applies an in-place form, and returns its first tensor.
    pub fn in_place(self) -> Tensor {
        let [] = self.run();
        if let Err(error) = self.checked() {
            return Tensor::failed(self.session.as_ref(), error);
        }
        let first = self.args.into_iter().find_map(|(_, value)| match value {
            Value::Tensor(tensor) => Some(tensor),
            _ => None,
        });
        first.unwrap_or_else(|| {
            let message = "an in-place form needs a tensor";
            Tensor::failed(None, Error::refused(Reason::ArgumentType, &self.op, message))
        })
    }

    /// Applies an op that returns a list. It waits, because only the answer has the list's length.
    pub fn list(self) -> Pending<Vec<Tensor>> {
        let session = match self.checked() {
            Ok(session) => session.clone(),
            Err(error) => return Pending::ready(Err(error)),
        };
        let request = self.request(grad_mode(), Vec::new());
        session.ask(command::Command::Op(request)).map(move |result| {
            let proto::result::Result::Op(answer) = result else { return Err(unexpected()) };
            Ok(answer.outputs.iter().map(|spec| Tensor::owned(&session, spec.id)).collect())
        })
    }

    /// The call as a message.
    pub(crate) fn request(&self, mode: GradMode, outputs: Vec<u64>) -> proto::OpRequest {
        let args = self.args.iter().map(|(name, value)| value.message(name)).collect();
        let op = self.op.clone().into_owned();
        proto::OpRequest { op, args, outputs, grad_mode: mode.into(), ..Default::default() }
    }

    /// Appends what two calls must have in common to be calls of one prepared op: all but ids and floats. Returns
    /// whether the op can be prepared.
    pub(crate) fn key(&self, key: &mut Vec<u8>, mode: GradMode, results: usize) -> bool {
        key.extend_from_slice(self.op.as_bytes());
        key.extend_from_slice(&[0, mode as u8]);
        key.extend_from_slice(&(results as u32).to_le_bytes());
        for (name, value) in &self.args {
            key.push(value.tag());
            key.extend_from_slice(name.as_bytes());
            key.push(0);
            match value {
                Value::None | Value::Tensor(_) | Value::Float(_) => {}
                Value::Tensors(list) => key.extend_from_slice(&(list.len() as u32).to_le_bytes()),
                Value::Integer(value) => key.extend_from_slice(&value.to_le_bytes()),
                Value::Boolean(value) => key.push(u8::from(*value)),
                Value::Text(text) => {
                    key.extend_from_slice(text.as_bytes());
                    key.push(0);
                }
                Value::DType(dtype) => key.push(*dtype as u8),
                Value::Integers(list) => {
                    key.extend_from_slice(&(list.len() as u32).to_le_bytes());
                    list.iter().for_each(|value| key.extend_from_slice(&value.to_le_bytes()));
                }
                // Rare, and sent as they are.
                Value::Floats(_) | Value::Complex(_) | Value::Index(_) | Value::Number(_) => return false,
            }
        }
        true
    }

    /// Appends a prepared call: the op's number, then its places.
    pub(crate) fn words(&self, words: &mut Vec<u8>, number: u32, outputs: &[u64]) {
        words.extend_from_slice(&u64::from(number).to_le_bytes());
        for (_, value) in &self.args {
            match value {
                Value::Tensor(tensor) => words.extend_from_slice(&tensor.id().to_le_bytes()),
                Value::Float(value) => words.extend_from_slice(&value.to_le_bytes()),
                Value::Tensors(list) => {
                    list.iter().for_each(|tensor| words.extend_from_slice(&tensor.id().to_le_bytes()));
                }
                _ => {}
            }
        }
        outputs.iter().for_each(|id| words.extend_from_slice(&id.to_le_bytes()));
    }
}

pub(crate) fn unexpected() -> Error {
    Error::unavailable("the server's answer is not one of this command")
}

impl Value {
    fn tag(&self) -> u8 {
        match self {
            Value::None => 0,
            Value::Tensor(_) => 1,
            Value::Tensors(_) => 2,
            Value::Float(_) => 3,
            Value::Integer(_) => 4,
            Value::Boolean(_) => 5,
            Value::Text(_) => 6,
            Value::DType(_) => 7,
            Value::Integers(_) => 8,
            Value::Floats(_) => 9,
            Value::Complex(_) => 10,
            Value::Index(_) => 11,
            Value::Number(_) => 12,
        }
    }

    fn message(&self, name: &str) -> proto::Argument {
        let kind = match self {
            Value::None => Kind::None(proto::NoneValue {}),
            Value::Tensor(tensor) => Kind::Tensor(tensor.id()),
            Value::Tensors(list) => Kind::Tensors(proto::TensorList { ids: list.iter().map(Tensor::id).collect() }),
            Value::Float(value) => Kind::Float(*value),
            Value::Integer(value) => Kind::Integer(*value),
            Value::Boolean(value) => Kind::Boolean(*value),
            Value::Text(text) => Kind::String(text.clone()),
            Value::DType(dtype) => Kind::Dtype((*dtype).into()),
            Value::Integers(list) => Kind::Integers(proto::IntList { values: list.clone() }),
            Value::Floats(list) => Kind::Floats(proto::DoubleList { values: list.clone() }),
            Value::Complex(value) => Kind::Complex(proto::Complex { real: value.re, imag: value.im }),
            Value::Index(items) => Kind::Index(proto::Index { items: items.iter().map(IndexItem::message).collect() }),
            Value::Number(number) => Kind::Number(number.0),
        };
        proto::Argument { name: name.to_owned(), kind: Some(kind) }
    }
}

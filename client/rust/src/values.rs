//! Element types, and values as the protocol has them: little-endian, row-major, without gaps.

use bytes::Bytes;

use crate::autograd::grad_mode;
use crate::error::{Error, Reason, Result};
use crate::memory::prefer_huge_pages;
use crate::pending::Pending;
use crate::proto::{self, command::Command, create_request::Source, read_response::Result as Told};
use crate::session::Session;
use crate::tensor::Tensor;

/// An element type, by PyTorch's names.
pub use crate::proto::Dtype as DType;

/// A complex number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Complex<T> {
    /// Real part.
    pub re: T,
    /// Imaginary part.
    pub im: T,
}

/// A Rust type that is an element type of tensors.
pub trait Element: Copy + Send + sealed::Sealed + 'static {
    /// The element type.
    const DTYPE: DType;
}

mod sealed {
    /// How an element is written and read.
    pub trait Sealed: Sized {
        const SIZE: usize;
        /// `to` has `SIZE` bytes.
        fn write(self, to: &mut [u8]);
        /// `from` has `SIZE` bytes.
        fn read(from: &[u8]) -> Self;
    }
}

use sealed::Sealed;

macro_rules! element {
    ($($type:ty => $dtype:ident),*) => {$(
        impl Element for $type {
            const DTYPE: DType = DType::$dtype;
        }

        impl Sealed for $type {
            const SIZE: usize = size_of::<$type>();

            #[inline]
            fn write(self, to: &mut [u8]) {
                to.copy_from_slice(&self.to_le_bytes());
            }

            #[inline]
            fn read(from: &[u8]) -> $type {
                <$type>::from_le_bytes(from.try_into().expect("a chunk has the size of an element"))
            }
        }
    )*};
}

element! {
    f32 => Float32, f64 => Float64, i8 => Int8, i16 => Int16, i32 => Int32, i64 => Int64, u8 => Uint8, u16 => Uint16,
    u32 => Uint32, u64 => Uint64
}

impl Element for bool {
    const DTYPE: DType = DType::Bool;
}

impl Sealed for bool {
    const SIZE: usize = 1;

    #[inline]
    fn write(self, to: &mut [u8]) {
        to[0] = self.into();
    }

    #[inline]
    fn read(from: &[u8]) -> bool {
        from[0] != 0
    }
}

impl Element for Complex<f32> {
    const DTYPE: DType = DType::Complex64;
}

impl Element for Complex<f64> {
    const DTYPE: DType = DType::Complex128;
}

impl<T: Sealed> Sealed for Complex<T> {
    const SIZE: usize = 2 * T::SIZE;

    #[inline]
    fn write(self, to: &mut [u8]) {
        let (re, im) = to.split_at_mut(T::SIZE);
        self.re.write(re);
        self.im.write(im);
    }

    #[inline]
    fn read(from: &[u8]) -> Complex<T> {
        let (re, im) = from.split_at(T::SIZE);
        Complex { re: T::read(re), im: T::read(im) }
    }
}

impl DType {
    /// PyTorch's name: "float32".
    pub fn name(self) -> String {
        self.as_str_name().trim_start_matches("DTYPE_").to_lowercase()
    }

    /// Bytes of an element.
    pub fn size(self) -> usize {
        match self {
            DType::Unspecified => 0,
            DType::Int8 | DType::Uint8 | DType::Bool => 1,
            DType::Float16 | DType::Bfloat16 | DType::Int16 | DType::Uint16 => 2,
            DType::Float32 | DType::Int32 | DType::Uint32 => 4,
            DType::Float64 | DType::Int64 | DType::Uint64 | DType::Complex64 => 8,
            DType::Complex128 => 16,
        }
    }
}

// The loops over chunks of a constant size compile to vector instructions, for each type. They are compiled in the
// user's crate, so `read` and `write` must be inlined there: a call for each element took longer than the network.

pub(crate) fn bytes_of<T: Element>(values: &[T]) -> Vec<u8> {
    let mut made = vec![0; values.len() * T::SIZE];
    prefer_huge_pages(&mut made);
    made.chunks_exact_mut(T::SIZE).zip(values).for_each(|(to, value)| value.write(to));
    made
}

fn values_of<T: Element>(data: &[u8]) -> Vec<T> {
    data.chunks_exact(T::SIZE).map(T::read).collect()
}

/// Values whose bytes arrive in parts. Each is written once, to where it stays.
pub(crate) struct Arriving<T> {
    values: Vec<T>,
    rest: Vec<u8>, // of an element whose other bytes come with the next part
}

impl<T: Element> Arriving<T> {
    pub(crate) fn new(total_bytes: u64) -> Arriving<T> {
        let mut values = Vec::with_capacity(total_bytes as usize / T::SIZE);
        prefer_huge_pages(values.spare_capacity_mut());
        Arriving { values, rest: Vec::with_capacity(T::SIZE) }
    }

    /// How many bytes have arrived.
    pub(crate) fn bytes(&self) -> u64 {
        (self.values.len() * T::SIZE + self.rest.len()) as u64
    }

    pub(crate) fn extend(&mut self, mut part: &[u8]) {
        if !self.rest.is_empty() {
            let (missing, others) = part.split_at(part.len().min(T::SIZE - self.rest.len()));
            self.rest.extend_from_slice(missing);
            if self.rest.len() < T::SIZE {
                return;
            }
            self.values.push(T::read(&self.rest));
            self.rest.clear();
            part = others;
        }
        let whole = part.chunks_exact(T::SIZE);
        self.rest.extend_from_slice(whole.remainder());
        self.values.extend(whole.map(T::read));
    }

    pub(crate) fn into_values(self) -> Vec<T> {
        self.values
    }
}

impl Session {
    /// Makes a leaf of one dimension.
    pub fn tensor<T: Element>(&self, values: impl AsRef<[T]>) -> Tensor {
        let values = values.as_ref();
        self.tensor_from_bytes(T::DTYPE, bytes_of(values), [values.len() as i64])
    }

    /// Makes a leaf of values in row-major order.
    pub fn tensor_with_shape<T: Element>(&self, values: impl AsRef<[T]>, shape: impl AsRef<[i64]>) -> Tensor {
        self.tensor_from_bytes(T::DTYPE, bytes_of(values.as_ref()), shape)
    }

    /// Makes a leaf of zero dimensions.
    pub fn scalar<T: Element>(&self, value: T) -> Tensor {
        self.tensor_from_bytes(T::DTYPE, bytes_of(&[value]), [])
    }

    /// Makes a leaf of little-endian bytes in row-major order. Large values travel in chunks: then it blocks this
    /// thread until the server has them.
    pub fn tensor_from_bytes(&self, dtype: DType, data: impl Into<Bytes>, shape: impl AsRef<[i64]>) -> Tensor {
        self.made_of(dtype, data.into(), shape.as_ref()).unwrap_or_else(|error| {
            self.failed(error.clone());
            Tensor::failed(Some(self), error)
        })
    }

    fn made_of(&self, dtype: DType, data: Bytes, shape: &[i64]) -> Result<Tensor> {
        let elements = shape.iter().try_fold(1usize, |all, size| all.checked_mul((*size).try_into().ok()?));
        let expected = elements.and_then(|elements| elements.checked_mul(dtype.size()));
        if expected != Some(data.len()) {
            let (name, found) = (dtype.name(), data.len());
            let expected = expected.map_or("no".to_owned(), |bytes| bytes.to_string());
            let message = format!("shape {shape:?} of {name} has {expected} bytes, not {found}");
            return Err(Error::refused(Reason::PayloadSize, "", message));
        }
        let shape = shape.to_vec();
        let source = if data.len() > self.max_inline() {
            let transfer = self.upload(data).wait()?;
            Source::Transfer(proto::Transfer { dtype: dtype.into(), shape, ..transfer })
        } else {
            Source::Payload(proto::Payload { dtype: dtype.into(), shape, data })
        };
        let id = self.next_id();
        let mode = grad_mode().into();
        self.send(Command::Create(proto::CreateRequest {
            id,
            grad_mode: mode,
            source: Some(source),
            ..Default::default()
        }));
        Ok(Tensor::owned(self, id))
    }
}

/// A tensor's values: little-endian, row-major, without gaps.
#[derive(Clone, Debug)]
pub struct Payload {
    /// Element type.
    pub dtype: DType,
    /// Sizes of the dimensions.
    pub shape: Vec<i64>,
    /// The bytes.
    pub data: Bytes,
}

impl Payload {
    /// The values, if the element type is `T`.
    ///
    /// # Errors
    ///
    /// [`Reason::Dtype`] if it is another.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if self.dtype != T::DTYPE {
            let message = format!("the tensor has {}, not {}", self.dtype.name(), T::DTYPE.name());
            return Err(Error::refused(Reason::Dtype, "", message));
        }
        Ok(values_of(&self.data))
    }

    /// The values of any real element type as f64. Integers beyond 2^53 are rounded.
    ///
    /// # Errors
    ///
    /// [`Reason::Dtype`] for complex values.
    pub fn to_f64(&self) -> Result<Vec<f64>> {
        let data = &self.data;
        Ok(match self.dtype {
            DType::Float64 => values_of(data),
            DType::Float32 => converted::<f32>(data, f64::from),
            DType::Int8 => converted::<i8>(data, f64::from),
            DType::Int16 => converted::<i16>(data, f64::from),
            DType::Int32 => converted::<i32>(data, f64::from),
            DType::Int64 => converted::<i64>(data, |value| value as f64),
            DType::Uint8 | DType::Bool => converted::<u8>(data, f64::from),
            DType::Uint16 => converted::<u16>(data, f64::from),
            DType::Uint32 => converted::<u32>(data, f64::from),
            DType::Uint64 => converted::<u64>(data, |value| value as f64),
            DType::Bfloat16 => converted::<u16>(data, |half| f64::from(f32::from_bits(u32::from(half) << 16))),
            DType::Float16 => converted::<u16>(data, from_half),
            DType::Complex64 | DType::Complex128 | DType::Unspecified => {
                let message = format!("values of {} cannot be converted to real numbers", self.dtype.name());
                return Err(Error::refused(Reason::Dtype, "", message));
            }
        })
    }
}

fn converted<T: Element>(data: &[u8], convert: impl Fn(T) -> f64) -> Vec<f64> {
    data.chunks_exact(T::SIZE).map(|bytes| convert(T::read(bytes))).collect()
}

/// Converts an IEEE 754 binary16.
fn from_half(half: u16) -> f64 {
    let sign = if half >> 15 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(half >> 10 & 31), f64::from(half & 1023));
    match exponent {
        31 if fraction != 0.0 => f64::NAN,
        31 => sign * f64::INFINITY,
        0 => sign * fraction * 2f64.powi(-24),
        _ => sign * (1024.0 + fraction) * 2f64.powi(exponent - 25),
    }
}

/// Fetches the values of an answer as bytes.
async fn payload_of(session: &Session, told: Told) -> Result<Payload> {
    match told {
        Told::Payload(payload) => Ok(Payload { dtype: payload.dtype(), shape: payload.shape, data: payload.data }),
        Told::Transfer(transfer) => {
            let (dtype, shape) = (transfer.dtype(), transfer.shape.clone());
            Ok(Payload { dtype, shape, data: session.download::<u8>(transfer).await?.into() })
        }
    }
}

impl Tensor {
    /// Fetches the values. The error is the first refusal since the last wait or read.
    pub fn read(&self) -> Pending<Payload> {
        let told = self.ask_values();
        Pending::new(async move {
            let (session, told) = told.await?;
            payload_of(&session, told).await
        })
    }

    /// Fetches the values of a tensor whose element type is `T`.
    pub fn to_vec<T: Element>(&self) -> Pending<Vec<T>> {
        let told = self.ask_values();
        Pending::new(async move {
            match told.await? {
                (session, Told::Transfer(transfer)) if transfer.dtype() == T::DTYPE => session.download(transfer).await,
                // Of another type the bytes are fetched, too: the server keeps a transfer until it is read.
                (session, told) => payload_of(&session, told).await?.to_vec(),
            }
        })
    }

    fn ask_values(&self) -> Pending<(Session, Told)> {
        let session = match self.usable() {
            Ok(session) => session.clone(),
            Err(error) => return Pending::ready(Err(error)),
        };
        let request = proto::ReadRequest { tensor: self.id(), ..Default::default() };
        let answer = session.ask(Command::Read(request));
        Pending::new(async move {
            let proto::result::Result::Read(read) = answer.await? else { return Err(crate::call::unexpected()) };
            read.result.map(|told| (session, told)).ok_or_else(crate::call::unexpected)
        })
    }

    /// Fetches the values of a tensor of any real element type, and converts them.
    pub fn to_f64(&self) -> Pending<Vec<f64>> {
        self.read().map(|payload| payload.to_f64())
    }

    /// Fetches the value of a tensor of one element.
    pub fn item(&self) -> Pending<f64> {
        self.to_f64().map(|values| match values[..] {
            [value] => Ok(value),
            _ => {
                let message = format!("a Tensor with {} elements cannot be converted to Scalar", values.len());
                Err(Error::refused(Reason::Runtime, "item", message))
            }
        })
    }
}

//! Rust's operators on tensors: `&a + &b`, `2.0 * &a`, `-&a`, `a += 1.0`.

use std::ops::{Add, AddAssign, BitAnd, BitOr, BitXor, Div, DivAssign, Mul, MulAssign, Neg, Not, Rem, Sub, SubAssign};

use crate::call::{Call, Number, Operand};
use crate::tensor::Tensor;
use crate::values::Complex;

macro_rules! binary {
    ($($trait:ident $method:ident $op:literal),*) => {$(
        impl<R: Into<Operand>> $trait<R> for &Tensor {
            type Output = Tensor;

            fn $method(self, right: R) -> Tensor {
                Call::new($op).arg(self).arg(right.into()).one()
            }
        }

        impl<R: Into<Operand>> $trait<R> for Tensor {
            type Output = Tensor;

            fn $method(self, right: R) -> Tensor {
                Call::new($op).arg(self).arg(right.into()).one()
            }
        }

        binary_of_number!($trait $method $op: f64, f32, i64, i32, Complex<f64>, Complex<f32>, Number);
    )*};
}

macro_rules! binary_of_number {
    ($trait:ident $method:ident $op:literal: $($number:ty),*) => {$(
        impl $trait<&Tensor> for $number {
            type Output = Tensor;

            fn $method(self, right: &Tensor) -> Tensor {
                Call::new($op).arg(self).arg(right).one()
            }
        }

        impl $trait<Tensor> for $number {
            type Output = Tensor;

            fn $method(self, right: Tensor) -> Tensor {
                Call::new($op).arg(self).arg(right).one()
            }
        }
    )*};
}

binary! {
    Add add "add", Sub sub "sub", Mul mul "mul", Div div "div", Rem rem "remainder", BitAnd bitand "bitwise_and",
    BitOr bitor "bitwise_or", BitXor bitxor "bitwise_xor"
}

macro_rules! unary {
    ($($trait:ident $method:ident $op:literal),*) => {$(
        impl $trait for &Tensor {
            type Output = Tensor;

            fn $method(self) -> Tensor {
                Call::new($op).arg(self).one()
            }
        }

        impl $trait for Tensor {
            type Output = Tensor;

            fn $method(self) -> Tensor {
                Call::new($op).arg(self).one()
            }
        }
    )*};
}

unary!(Neg neg "neg", Not not "bitwise_not");

macro_rules! in_place {
    ($($trait:ident $method:ident $op:literal),*) => {$(
        /// Changes the tensor in place, as in PyTorch.
        impl<R: Into<Operand>> $trait<R> for Tensor {
            fn $method(&mut self, right: R) {
                *self = Call::new($op).arg(&*self).arg(right.into()).in_place();
            }
        }
    )*};
}

in_place! {
    AddAssign add_assign "add_", SubAssign sub_assign "sub_", MulAssign mul_assign "mul_", DivAssign div_assign "div_"
}

//! Programs: commands that the server runs by one small command.

use std::borrow::Borrow;

use prost::Message;
use sha2::{Digest, Sha256};

use crate::call::{Number, tensors};
use crate::error::{Error, Reason, Result};
use crate::lock;
use crate::pending::Pending;
use crate::proto::{self, command::Command, program_step::Step};
use crate::session::Session;
use crate::tensor::{Tensor, ids, session_of};
use crate::values::DType;

/// Says what a tensor must be like to be bound to a program's input.
#[derive(Clone, Debug)]
#[must_use]
pub struct Input(proto::ProgramInput);

impl Input {
    /// An input of that element type and shape; for a sliced one, the shape of a slice.
    pub fn new(dtype: DType, shape: impl AsRef<[i64]>) -> Input {
        Input(proto::ProgramInput { dtype: dtype.into(), shape: shape.as_ref().to_vec(), ..Default::default() })
    }

    /// An input like a tensor.
    pub fn like(tensor: &Tensor) -> Pending<Input> {
        tensor.describe().map(|told| {
            let like = Input::new(told.dtype, told.shape).requires_grad(told.requires_grad);
            Ok(like.device(told.device))
        })
    }

    /// Sets whether it requires a gradient.
    pub fn requires_grad(mut self, requires_grad: bool) -> Input {
        self.0.requires_grad = requires_grad;
        self
    }

    /// Sets its device; without it, "cpu".
    pub fn device(mut self, device: impl Into<String>) -> Input {
        self.0.device = device.into();
        self
    }
}

/// What a run of a program can do without.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct RunOptions {
    numbers: Vec<f64>,
    repeat: u32,
    sliced: Vec<u32>,
    first: u32,
    stacked: bool,
}

impl RunOptions {
    /// Sets the program's numbers: one set for all repetitions, or one set for each.
    pub fn numbers(mut self, numbers: impl AsRef<[f64]>) -> RunOptions {
        self.numbers = numbers.as_ref().to_vec();
        self
    }

    /// Sets the number of repetitions. The default is 1.
    pub fn repeat(mut self, times: usize) -> RunOptions {
        self.repeat = times as u32;
        self
    }

    /// Names the inputs, counted from 0, of which each repetition takes the next slice along the first dimension.
    pub fn sliced(mut self, places: impl AsRef<[usize]>) -> RunOptions {
        self.sliced = places.as_ref().iter().map(|place| *place as u32).collect();
        self
    }

    /// Sets the number of slices to skip at the beginning.
    pub fn first(mut self, slices: usize) -> RunOptions {
        self.first = slices as u32;
        self
    }

    /// Returns the outputs of all repetitions along a new first dimension, instead of those of the last one.
    pub fn stacked(mut self, stacked: bool) -> RunOptions {
        self.stacked = stacked;
        self
    }
}

/// A list of commands that the server runs by one small command; see [`Session::trace`].
#[derive(Clone, Debug)]
pub struct Program {
    session: Session,
    bytes: Vec<u8>,
    hash: [u8; 32],
    inputs: usize,
    outputs: usize,
}

impl Session {
    /// Makes a program of what `f` does, and registers it. `f` gets a session that records, stand-ins for the inputs, and
    /// placeholders for as many numbers as `numbers` says, for example a learning rate. It may use only tensors of that
    /// session, reads none, and returns the outputs. Commands in `f` are not applied until the program runs.
    ///
    /// # Errors
    ///
    /// The first mistake that `f` makes. What only the server finds surfaces at the next wait.
    pub fn trace(
        &self,
        inputs: &[Input],
        numbers: usize,
        f: impl FnOnce(&Session, &[Tensor], &[Number]) -> Result<Vec<Tensor>>,
    ) -> Result<Program> {
        let live = self.must_live("a program")?;
        let inner = Session::recording();
        let stand_ins: Vec<Tensor> = inputs.iter().map(|_| Tensor::owned(&inner, inner.next_id())).collect();
        let placeholders: Vec<Number> = (0..numbers as u32).map(Number).collect();
        let outputs = f(&inner, &stand_ins, &placeholders)?;
        let recorder = inner.recorder().expect("it records");
        let recorded = std::mem::take(&mut *lock(recorder));
        if let Some(error) = recorded.error {
            return Err(error);
        }
        if !outputs.is_empty() && !session_of("program", &outputs)?.is(&inner) {
            let message = "an output of the program is not of its session";
            return Err(Error::refused(Reason::ArgumentValue, "", message));
        }
        let program = proto::Program {
            inputs: inputs.iter().map(|input| input.0.clone()).collect(),
            numbers: numbers as u32,
            steps: recorded.steps,
            outputs: ids(&outputs),
            ..Default::default()
        };
        let bytes = program.encode_to_vec();
        let hash = Sha256::digest(&bytes).into();
        let made = Program { session: self.clone(), bytes, hash, inputs: inputs.len(), outputs: outputs.len() };
        self.send(made.registration());
        live.ran(hash);
        Ok(made)
    }

    /// Completes a request and sends it.
    pub(crate) fn run_program(
        &self,
        mut request: proto::RunProgramRequest,
        inputs: &[Tensor],
        outputs: usize,
        options: RunOptions,
    ) -> Result<Vec<Tensor>> {
        if !inputs.is_empty() && !session_of("program", inputs)?.is(self) {
            let message = "the inputs belong to another session";
            return Err(Error::refused(Reason::ArgumentValue, "", message));
        }
        let made: Vec<Tensor> = (0..outputs).map(|_| Tensor::owned(self, self.next_id())).collect();
        request.outputs = ids(&made);
        request.numbers = options.numbers;
        request.repeat = options.repeat;
        request.sliced = options.sliced;
        request.first = options.first;
        request.stacked = options.stacked;
        self.send(Command::RunProgram(request));
        Ok(made)
    }

    /// The outputs, or as many tensors that could not be made.
    pub(crate) fn outputs(&self, made: Result<Vec<Tensor>>, count: usize) -> Vec<Tensor> {
        made.unwrap_or_else(|error| {
            self.failed(error.clone());
            (0..count).map(|_| Tensor::failed(Some(self), error.clone())).collect()
        })
    }
}

impl Program {
    fn registration(&self) -> Command {
        Command::RegisterProgram(proto::RegisterProgramRequest {
            hash: self.hash.to_vec().into(),
            program: self.bytes.clone().into(),
            ..Default::default()
        })
    }

    /// Binds tensors to the inputs and runs the program. A failure surfaces at the next wait or read.
    pub fn run(&self, inputs: &[impl Borrow<Tensor>]) -> Vec<Tensor> {
        self.run_with(inputs, RunOptions::default())
    }

    /// Is [`Program::run`] with options.
    pub fn run_with(&self, inputs: &[impl Borrow<Tensor>], options: RunOptions) -> Vec<Tensor> {
        let made = self.try_run(&tensors(inputs), options);
        self.session.outputs(made, self.outputs)
    }

    fn try_run(&self, inputs: &[Tensor], options: RunOptions) -> Result<Vec<Tensor>> {
        if inputs.len() != self.inputs {
            let message = format!("the program takes {} inputs, not {}", self.inputs, inputs.len());
            return Err(Error::refused(Reason::ArgumentType, "", message));
        }
        let live = self.session.must_live("a program")?;
        let _running = lock(&live.running);
        if live.ran(self.hash) {
            self.session.send(self.registration());
        }
        let hash = self.hash.to_vec().into();
        let request = proto::RunProgramRequest { hash, inputs: ids(inputs), ..Default::default() };
        self.session.run_program(request, inputs, self.outputs, options)
    }
}

/// Makes steps of a program of a session's commands.
#[derive(Default)]
pub(crate) struct Recorder {
    steps: Vec<proto::ProgramStep>,
    error: Option<Error>,
}

impl Recorder {
    pub fn send(&mut self, command: Command) {
        let step = match command {
            Command::Create(request) => Step::Create(request),
            Command::Op(request) => Step::Op(request),
            Command::Backward(request) => Step::Backward(request),
            Command::RetainGrad(request) => Step::RetainGrad(request),
            Command::Grad(request) => Step::Grad(request),
            Command::Gradients(request) => Step::Gradients(request),
            Command::SetGrad(request) => Step::SetGrad(request),
            Command::SetRequiresGrad(request) => Step::SetRequiresGrad(request),
            Command::SetData(request) => Step::SetData(request),
            Command::ManualSeed(request) => Step::ManualSeed(request),
            _ => {
                let message = "a program cannot have this command";
                return self.failed(Error::refused(Reason::NotSupported, "", message));
            }
        };
        self.steps.push(proto::ProgramStep { step: Some(step) });
    }

    pub fn failed(&mut self, error: Error) {
        self.error.get_or_insert(error);
    }
}

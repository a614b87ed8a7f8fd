//! Gradients: modes, backward, and hooks that it runs.

use std::borrow::Borrow;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::call::{tensors, unexpected};
use crate::error::{BoxError, Error, Reason, Result};
use crate::lock;
use crate::proto::{self, GradMode, HookKind, command::Command, result};
use crate::session::{Live, Session};
use crate::tensor::{Tensor, ids, session_of};

thread_local! {
    static MODE: Cell<GradMode> = const { Cell::new(GradMode::Unspecified) };
}

/// This thread's mode, which each op is sent with.
pub(crate) fn grad_mode() -> GradMode {
    MODE.get()
}

/// Sets this thread's mode until it is dropped. It cannot leave the thread, so it cannot be held across an `.await` of a
/// task that moves between threads.
#[derive(Debug)]
#[must_use = "the mode ends when the guard is dropped"]
pub struct NoGrad {
    before: GradMode,
    here: PhantomData<*const ()>,
}

impl NoGrad {
    /// Until the guard is dropped, this thread's ops record no graph, and leaves may be changed in place
    /// (torch.no_grad).
    #[allow(clippy::new_without_default)]
    pub fn new() -> NoGrad {
        NoGrad::with(GradMode::Disabled)
    }

    fn with(mode: GradMode) -> NoGrad {
        NoGrad { before: MODE.replace(mode), here: PhantomData }
    }
}

impl Drop for NoGrad {
    fn drop(&mut self) {
        MODE.set(self.before);
    }
}

/// Runs `f`. Ops inside record no graph, and leaves may be changed in place (torch.no_grad).
pub fn no_grad<T>(f: impl FnOnce() -> T) -> T {
    let _guard = NoGrad::new();
    f()
}

/// Runs `f`. Ops inside record no graph, and their results can never be part of one (torch.inference_mode).
pub fn inference_mode<T>(f: impl FnOnce() -> T) -> T {
    let _guard = NoGrad::with(GradMode::Inference);
    f()
}

/// What [`backward`] and [`grad_with`] can do without.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct BackwardOptions {
    gradients: Vec<Tensor>,
    inputs: Vec<Tensor>,
    retain_graph: Option<bool>,
    create_graph: bool,
    check_nan: bool,
    allow_unused: bool,
}

impl BackwardOptions {
    /// Sets gradients of the tensors, in order. One of a tensor with one element may be missing: then it is 1.
    pub fn gradients(mut self, gradients: &[impl Borrow<Tensor>]) -> BackwardOptions {
        self.gradients = tensors(gradients);
        self
    }

    /// Sets the only tensors that receive gradients. Only for `backward`.
    pub fn inputs(mut self, inputs: &[impl Borrow<Tensor>]) -> BackwardOptions {
        self.inputs = tensors(inputs);
        self
    }

    /// Keeps the graph's saved values for another backward, or not. Without it, `create_graph` decides.
    pub fn retain_graph(mut self, retain: bool) -> BackwardOptions {
        self.retain_graph = Some(retain);
        self
    }

    /// Makes the gradients themselves differentiable, and keeps the graph.
    pub fn create_graph(mut self, create: bool) -> BackwardOptions {
        self.create_graph = create;
        self
    }

    /// Refuses a backward in which a node yields nan.
    pub fn check_nan(mut self, check: bool) -> BackwardOptions {
        self.check_nan = check;
        self
    }

    /// Lets [`grad_with`] return `None` for an input that the outputs do not depend on.
    pub fn allow_unused(mut self, allow: bool) -> BackwardOptions {
        self.allow_unused = allow;
        self
    }
}

/// Differentiates several tensors at once (torch.autograd.backward); see [`Tensor::backward`].
///
/// # Errors
///
/// Those of tensors that could not be made. Refusals surface at the next wait, except in a session with hooks.
pub fn backward(tensors_: &[impl Borrow<Tensor>], options: BackwardOptions) -> Result<()> {
    let list = tensors(tensors_);
    let session = session_of("backward", list.iter().chain(&options.gradients).chain(&options.inputs))?;
    let mut request = proto::BackwardRequest {
        tensors: ids(&list),
        gradients: ids(&options.gradients),
        inputs: ids(&options.inputs),
        retain_graph: options.retain_graph,
        create_graph: options.create_graph,
        check_nan: options.check_nan,
        ..Default::default()
    };
    match with_hooks(&session) {
        Some(live) => {
            request.answers_hooks = true;
            run_hooks(&session, live, Command::Backward(request)).map(drop)
        }
        None => {
            session.send(Command::Backward(request));
            Ok(())
        }
    }
}

/// Returns the gradients of outputs by inputs, and changes no leaf's (torch.autograd.grad).
///
/// # Errors
///
/// As [`backward`].
pub fn grad(outputs: &[impl Borrow<Tensor>], inputs: &[impl Borrow<Tensor>]) -> Result<Vec<Tensor>> {
    let found = grad_with(outputs, inputs, BackwardOptions::default())?;
    Ok(found.into_iter().flatten().collect())
}

/// Is [`grad`] with options. With [`BackwardOptions::allow_unused`] it blocks this thread until the answer is there.
///
/// # Errors
///
/// As [`backward`].
pub fn grad_with(
    outputs: &[impl Borrow<Tensor>],
    inputs: &[impl Borrow<Tensor>],
    options: BackwardOptions,
) -> Result<Vec<Option<Tensor>>> {
    let (outputs, inputs) = (tensors(outputs), tensors(inputs));
    let session = session_of("grad", outputs.iter().chain(&inputs).chain(&options.gradients))?;
    let made: Vec<Tensor> = inputs.iter().map(|_| Tensor::owned(&session, session.next_id())).collect();
    let request = proto::GradientsRequest {
        outputs: ids(&outputs),
        inputs: ids(&inputs),
        grad_outputs: ids(&options.gradients),
        retain_graph: options.retain_graph,
        create_graph: options.create_graph,
        allow_unused: options.allow_unused,
        check_nan: options.check_nan,
        results: ids(&made),
        answers_hooks: with_hooks(&session).is_some(),
        ..Default::default()
    };
    let waits = request.answers_hooks || options.allow_unused;
    let Some(live) = session.live().filter(|_| waits) else {
        session.send(Command::Gradients(request));
        return Ok(made.into_iter().map(Some).collect());
    };
    let found = run_hooks(&session, live, Command::Gradients(request))?;
    Ok(made.into_iter().zip(found).map(|(tensor, spec)| (spec.id != 0).then_some(tensor)).collect())
}

impl Tensor {
    /// Adds gradients to the leaves that the tensor depends on. A refusal surfaces at the next wait. In a session with
    /// hooks it blocks this thread, runs the hooks in it, and returns refusals at once.
    ///
    /// # Errors
    ///
    /// That of a tensor that could not be made, or of a hook.
    pub fn backward(&self) -> Result<()> {
        backward(&[self], BackwardOptions::default())
    }

    /// Is [`Tensor::backward`] with options.
    ///
    /// # Errors
    ///
    /// As [`Tensor::backward`].
    pub fn backward_with(&self, options: BackwardOptions) -> Result<()> {
        backward(&[self], options)
    }
}

type Function<T> = dyn Fn(&Tensor) -> std::result::Result<T, BoxError> + Send + Sync;

/// The function of a hook.
#[derive(Clone)]
pub(crate) enum HookFunction {
    Gradient(Arc<Function<Option<Tensor>>>),
    Accumulated(Arc<Function<()>>),
}

/// A registered hook. It stays when this is dropped: see [`Hook::remove`].
#[derive(Debug)]
pub struct Hook {
    session: Session,
    number: u64,
}

impl Hook {
    /// Removes the hook.
    pub fn remove(self) {
        if let Some(live) = self.session.live() {
            live.writer.drop_hooks(&[self.number]);
            let request = proto::RemoveHookRequest { hook: self.number, ..Default::default() };
            self.session.send(Command::RemoveHook(request));
        }
    }
}

impl Tensor {
    /// Calls `f` with the gradient of the tensor in each backward. If `f` returns a tensor, it is used in its place. An
    /// error of `f` ends the backward, which returns it.
    ///
    /// # Errors
    ///
    /// That of a tensor that could not be made, or [`Reason::NotSupported`] in a program.
    pub fn register_hook(
        &self,
        f: impl Fn(&Tensor) -> std::result::Result<Option<Tensor>, BoxError> + Send + Sync + 'static,
    ) -> Result<Hook> {
        self.register(HookFunction::Gradient(Arc::new(f)), HookKind::Tensor)
    }

    /// Calls `f` with the leaf after a backward has added to its gradient.
    ///
    /// # Errors
    ///
    /// As [`Tensor::register_hook`].
    pub fn register_post_accumulate_grad_hook(
        &self,
        f: impl Fn(&Tensor) -> std::result::Result<(), BoxError> + Send + Sync + 'static,
    ) -> Result<Hook> {
        self.register(HookFunction::Accumulated(Arc::new(f)), HookKind::Accumulated)
    }

    fn register(&self, function: HookFunction, kind: HookKind) -> Result<Hook> {
        let session = self.usable()?;
        let live = session.must_live("hooks").inspect_err(|error| session.failed(error.clone()))?;
        let number = session.next_id();
        lock(&live.writer.hooks).insert(number, function);
        let kind = kind.into();
        let request = proto::RegisterHookRequest { hook: number, tensor: self.id(), kind, ..Default::default() };
        session.send(Command::RegisterHook(request));
        Ok(Hook { session: session.clone(), number })
    }
}

fn with_hooks(session: &Session) -> Option<&Live> {
    session.live().filter(|live| !lock(&live.writer.hooks).is_empty())
}

/// Sends a backward and runs the hooks at which it stops. Returns the gradients of `grad`.
fn run_hooks(session: &Session, live: &Live, mut command: Command) -> Result<Vec<proto::TensorSpec>> {
    let mut failed = None; // by a hook
    let mut _replacement; // lives until the command that names it is answered
    loop {
        let (due, gradients) = match session.ask(command).wait()? {
            result::Result::Backward(answer) => (answer.due, Vec::new()),
            result::Result::Gradients(answer) => (answer.due, answer.gradients),
            result::Result::ResumeBackward(answer) => (answer.due, answer.gradients),
            _ => return Err(unexpected()),
        };
        if let Some(error) = failed {
            return Err(error);
        }
        let Some(due) = due else { return Ok(gradients) };
        let mut resume = proto::ResumeBackwardRequest { backward: due.backward, ..Default::default() };
        match run_hook(session, live, &due) {
            Ok(given) => {
                (resume.replaces, resume.gradients) = (given.is_some(), given.iter().map(Tensor::id).collect());
                _replacement = given;
            }
            Err(error) => {
                resume.abandon = true;
                failed = Some(match error.downcast::<Error>() {
                    Ok(own) => *own,
                    Err(other) => Error::Hook(other.into()),
                });
            }
        }
        command = Command::ResumeBackward(resume);
    }
}

/// Calls the function of a hook.
fn run_hook(session: &Session, live: &Live, due: &proto::HookCall) -> std::result::Result<Option<Tensor>, BoxError> {
    let function = lock(&live.writer.hooks).get(&due.hook).cloned();
    // The ids are this client's to release.
    let given: Vec<Tensor> = due.gradients.iter().map(|spec| Tensor::owned(session, spec.id)).collect();
    let _others: Vec<Tensor> = due.others.iter().map(|spec| Tensor::owned(session, spec.id)).collect();
    match function {
        None => {
            let message = format!("the backward stopped at hook {}, which this client does not have", due.hook);
            Err(Error::refused(Reason::NotSupported, "", message).into())
        }
        Some(HookFunction::Accumulated(f)) => {
            let leaf = due.leaf.as_ref().map_or(0, |leaf| leaf.id);
            f(&Tensor::borrowed(session, leaf)).map(|()| None)
        }
        Some(HookFunction::Gradient(f)) => match given.first() {
            Some(gradient) if gradient.id() != 0 => {
                let replacement = f(gradient)?;
                if let Some(error) = replacement.as_ref().and_then(Tensor::error) {
                    return Err(error.clone().into());
                }
                // Its id would mean another tensor here.
                if replacement.as_ref().and_then(Tensor::session_of).is_some_and(|of| !of.is(session)) {
                    let message = "the hook's gradient belongs to another session";
                    return Err(Error::refused(Reason::ArgumentValue, "", message).into());
                }
                Ok(replacement)
            }
            _ => Ok(None),
        },
    }
}

//! Takes training steps of a small network for `python -m benchmarks.languages`: it reads lines "mode steps" and answers
//! each with the seconds that they took.

use std::error::Error;
use std::io::BufRead;
use std::time::Instant;

use gradwire::proto::{self, GradMode, argument::Kind};
use gradwire::{Client, DType, Input, Pending, Program, Result, RunOptions, Session, Tensor, functional, no_grad};
use tonic::{Response, Status};

const BATCH: i64 = 128;
const SIZES: [i64; 3] = [64, 256, 10];
const RATE: f64 = 0.01;

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).ok_or("the server's address is missing")?;
    let session = Session::connect(&address).wait()?;
    let side = Side::new(&session)?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (mode, steps) = line.split_once(' ').ok_or("a line is not \"mode steps\"")?;
        let steps = steps.trim().parse()?;
        let begun = Instant::now();
        side.take(mode, steps)?;
        println!("{}", begun.elapsed().as_secs_f64());
    }
    session.close().wait()?;
    Ok(())
}

struct Side {
    parameters: Vec<Tensor>,
    inputs: Tensor,
    labels: Tensor,
    program: Program,
    unary: Unary,
}

impl Side {
    fn new(session: &Session) -> Result<Side> {
        session.manual_seed(0);
        let mut parameters = Vec::new();
        for (rows, columns) in SIZES.iter().zip(&SIZES[1..]) {
            let weight = session.randn([*rows, *columns]) / (*rows as f64).sqrt();
            parameters.push(weight.requires_grad_(true));
            parameters.push(session.zeros([*columns]).requires_grad_(true));
        }
        let inputs = session.randn([BATCH, SIZES[0]]);
        let labels = session.randint(0, SIZES[2], [BATCH]);
        let bound: Vec<&Tensor> = parameters.iter().chain([&inputs, &labels]).collect();
        let like = bound.iter().map(|tensor| Input::like(tensor).wait()).collect::<Result<Vec<Input>>>()?;
        let program =
            session.trace(&like, 0, |_, bound, _| Ok(vec![step(&bound[..4], &bound[4], &bound[5])?.detach()]))?;
        let unary = Unary::new(session)?;
        Ok(Side { parameters, inputs, labels, program, unary })
    }

    /// Takes steps and reads the last loss.
    fn take(&self, mode: &str, steps: usize) -> std::result::Result<(), Box<dyn Error>> {
        let bound: Vec<&Tensor> = self.parameters.iter().chain([&self.inputs, &self.labels]).collect();
        let mut loss = None;
        match mode {
            "unary" => {
                for _ in 0..steps {
                    self.unary.step()?;
                }
                return Ok(());
            }
            "stream" => {
                for _ in 0..steps {
                    loss = Some(step(&self.parameters, &self.inputs, &self.labels)?);
                }
            }
            "program" => {
                for _ in 0..steps {
                    loss = self.program.run(&bound).pop();
                }
            }
            "repeated" => loss = self.program.run_with(&bound, RunOptions::default().repeat(steps)).pop(),
            _ => return Err(format!("unknown mode {mode}").into()),
        }
        let loss = loss.ok_or("there was no step")?.item().wait()?;
        if loss > 0.0 { Ok(()) } else { Err(format!("the loss is {loss}").into()) }
    }
}

/// A step of gradient descent.
fn step(parameters: &[Tensor], inputs: &Tensor, labels: &Tensor) -> Result<Tensor> {
    let hidden = (inputs.matmul(&parameters[0]) + &parameters[1]).relu();
    let loss = functional::cross_entropy(&(hidden.matmul(&parameters[2]) + &parameters[3]), labels);
    loss.backward()?;
    no_grad(|| {
        for each in parameters {
            each.sub_(each.grad() * RATE);
            each.zero_grad();
        }
    });
    Ok(loss)
}

/// Takes the steps by single calls of the generated stub, each of which waits.
struct Unary {
    session: Session,
    id: String,
    inputs: u64,
    labels: u64,
    parameters: Vec<u64>,
}

impl Unary {
    fn new(session: &Session) -> Result<Unary> {
        let request = proto::OpenSessionRequest { client: "w2-unary".into(), ..Default::default() };
        let opened = session.unary(request, |mut client, request| async move { client.open_session(request).await });
        let id = opened.wait()?.session_id;
        let mut made = Unary { session: session.clone(), id, inputs: 0, labels: 0, parameters: Vec::new() };
        let sized = |sizes: &[i64]| argument("", Kind::Integers(proto::IntList { values: sizes.to_vec() }));
        let dtype = argument("dtype", Kind::Dtype(DType::Int64.into()));
        made.inputs = made.op("randn", vec![sized(&[BATCH, SIZES[0]])], GradMode::Enabled)?;
        made.labels = made.op("zeros", vec![sized(&[BATCH]), dtype], GradMode::Enabled)?;
        for (rows, columns) in SIZES.iter().zip(&SIZES[1..]) {
            for (op, shape) in [("randn", &[*rows, *columns][..]), ("zeros", &[*columns][..])] {
                let tensor = made.op(op, vec![sized(shape)], GradMode::Enabled)?;
                let session_id = made.id.clone();
                let request =
                    proto::SetRequiresGradRequest { session_id, tensor, requires_grad: true, ..Default::default() };
                made.call(request, |mut client, request| async move { client.set_requires_grad(request).await })?;
                made.parameters.push(tensor);
            }
        }
        Ok(made)
    }

    fn call<Q, R, F>(&self, request: Q, call: impl Fn(Client, Q) -> F + Send + Sync + 'static) -> Result<R>
    where
        Q: Clone + Send + Sync + 'static,
        R: Send + 'static,
        F: Future<Output = std::result::Result<Response<R>, Status>> + Send + 'static,
    {
        let answer: Pending<R> = self.session.unary(request, call);
        answer.wait()
    }

    fn op(&self, op: &str, args: Vec<proto::Argument>, mode: GradMode) -> Result<u64> {
        let (session_id, op) = (self.id.clone(), op.to_owned());
        let request = proto::OpRequest { session_id, op, args, grad_mode: mode.into(), ..Default::default() };
        let answer = self.call(request, |mut client, request| async move { client.op(request).await })?;
        Ok(answer.outputs[0].id)
    }

    fn step(&self) -> Result<()> {
        let session_id = || self.id.clone();
        let mut made = Vec::new();
        let mut apply = |op: &str, args: &[u64]| -> Result<u64> {
            let args = args.iter().map(|id| argument("", Kind::Tensor(*id))).collect();
            made.push(self.op(op, args, GradMode::Enabled)?);
            Ok(made[made.len() - 1])
        };
        let p = &self.parameters;
        let hidden = apply("matmul", &[self.inputs, p[0]])?;
        let hidden = apply("add", &[hidden, p[1]])?;
        let hidden = apply("relu", &[hidden])?;
        let scores = apply("matmul", &[hidden, p[2]])?;
        let scores = apply("add", &[scores, p[3]])?;
        let loss = apply("cross_entropy", &[scores, self.labels])?;
        let request = proto::BackwardRequest { session_id: session_id(), tensors: vec![loss], ..Default::default() };
        self.call(request, |mut client, request| async move { client.backward(request).await })?;
        for parameter in p {
            let request = proto::GradRequest { session_id: session_id(), tensor: *parameter, ..Default::default() };
            let told = self.call(request, |mut client, request| async move { client.grad(request).await })?;
            let gradient = told.grad.map_or(0, |spec| spec.id);
            let tensor = |id: u64| argument("", Kind::Tensor(id));
            let scaled = self.op("mul", vec![tensor(gradient), argument("", Kind::Float(RATE))], GradMode::Disabled)?;
            self.op("sub_", vec![tensor(*parameter), tensor(scaled)], GradMode::Disabled)?;
            made.extend([gradient, scaled]);
            let request = proto::SetGradRequest { session_id: session_id(), tensor: *parameter, ..Default::default() };
            self.call(request, |mut client, request| async move { client.set_grad(request).await })?;
        }
        let request = proto::ReleaseRequest { session_id: session_id(), tensors: made, ..Default::default() };
        self.call(request, |mut client, request| async move { client.release(request).await }).map(drop)
    }
}

fn argument(name: &str, kind: Kind) -> proto::Argument {
    proto::Argument { name: name.to_owned(), kind: Some(kind) }
}

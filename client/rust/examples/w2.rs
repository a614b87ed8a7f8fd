//! Measures steps and large values for `python -m benchmarks.languages`, which documents the lines that it reads and
//! answers.

use std::error::Error;
use std::io::BufRead;
use std::time::Instant;

use bytes::Bytes;
use gradwire::proto::{self, GradMode, argument::Kind, upload_request::Part};
use gradwire::{Client, DType, Input, Pending, Program, Result, RunOptions, Session, Tensor, functional, no_grad};
use tonic::{Response, Status};

const BATCH: i64 = 128;
const SIZES: [i64; 3] = [64, 256, 10];
const TINY: [i64; 3] = [8, 8, 4];
const RATE: f64 = 0.01;

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).ok_or("the server's address is missing")?;
    let session = Session::connect(&address).wait()?;
    let side = Side::new(&session)?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (mode, count) = line.split_once(' ').ok_or("a line is not \"mode count\"")?;
        println!("{}", side.measure(mode, count.trim().parse()?)?);
    }
    session.close().wait()?;
    Ok(())
}

/// A network and a batch for it.
struct Network {
    parameters: Vec<Tensor>,
    inputs: Tensor,
    labels: Tensor,
}

impl Network {
    fn new(session: &Session, sizes: [i64; 3], batch: i64) -> Network {
        let mut parameters = Vec::new();
        for (rows, columns) in sizes.iter().zip(&sizes[1..]) {
            let weight = session.randn([*rows, *columns]) / (*rows as f64).sqrt();
            parameters.push(weight.requires_grad_(true));
            parameters.push(session.zeros([*columns]).requires_grad_(true));
        }
        let (inputs, labels) = (session.randn([batch, sizes[0]]), session.randint(0, sizes[2], [batch]));
        Network { parameters, inputs, labels }
    }

    fn bound(&self) -> Vec<&Tensor> {
        self.parameters.iter().chain([&self.inputs, &self.labels]).collect()
    }

    fn step(&self) -> Result<Tensor> {
        step(&self.parameters, &self.inputs, &self.labels)
    }
}

struct Side {
    session: Session,
    network: Network,
    small: Network,
    program: Program,
    unary: Unary,
}

impl Side {
    fn new(session: &Session) -> Result<Side> {
        session.manual_seed(0);
        let (network, small) = (Network::new(session, SIZES, BATCH), Network::new(session, TINY, 4));
        let bound = network.bound();
        let like = bound.iter().map(|tensor| Input::like(tensor).wait()).collect::<Result<Vec<Input>>>()?;
        let program =
            session.trace(&like, 0, |_, bound, _| Ok(vec![step(&bound[..4], &bound[4], &bound[5])?.detach()]))?;
        Ok(Side { session: session.clone(), unary: Unary::new(session)?, network, small, program })
    }

    /// Returns the seconds of a line's work.
    fn measure(&self, mode: &str, count: usize) -> std::result::Result<f64, Box<dyn Error>> {
        match mode {
            "upload" => return Ok(self.upload(count)?),
            "download" => return self.download(count),
            "bare-upload" => return Ok(self.unary.upload(count)?),
            "bare-download" => return self.unary.download(count),
            _ => {}
        }
        let begun = Instant::now();
        self.take(mode, count)?;
        Ok(begun.elapsed().as_secs_f64())
    }

    /// Takes steps and reads the last loss.
    fn take(&self, mode: &str, steps: usize) -> std::result::Result<(), Box<dyn Error>> {
        let bound = self.network.bound();
        let mut loss = None;
        match mode {
            "repeated" => loss = self.program.run_with(&bound, RunOptions::default().repeat(steps)).pop(),
            "unary" | "stream" | "memory" | "program" => {
                for _ in 0..steps {
                    match mode {
                        "unary" => self.unary.step()?,
                        "stream" => loss = Some(self.network.step()?),
                        "memory" => loss = Some(self.small.step()?),
                        _ => loss = self.program.run(&bound).pop(),
                    }
                }
            }
            _ => return Err(format!("unknown mode {mode}").into()),
        }
        if mode == "unary" {
            return Ok(());
        }
        let loss = loss.ok_or("there was no step")?.item().wait()?;
        if loss > 0.0 { Ok(()) } else { Err(format!("the loss is {loss}").into()) }
    }

    fn upload(&self, mib: usize) -> Result<f64> {
        let values = vec![1f32; mib << 18];
        let begun = Instant::now();
        let _made = self.session.tensor(&values);
        self.session.wait().wait()?;
        Ok(begun.elapsed().as_secs_f64())
    }

    fn download(&self, mib: usize) -> std::result::Result<f64, Box<dyn Error>> {
        let held = self.session.ones([(mib << 18) as i64]);
        self.session.wait().wait()?;
        let begun = Instant::now();
        let values: Vec<f32> = held.to_vec().wait()?;
        let seconds = begun.elapsed().as_secs_f64();
        if values.last() == Some(&1.0) { Ok(seconds) } else { Err("the values are wrong".into()) }
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
    chunk: usize,
    inputs: u64,
    labels: u64,
    parameters: Vec<u64>,
}

impl Unary {
    fn new(session: &Session) -> Result<Unary> {
        let request =
            proto::OpenSessionRequest { client: "w2-unary".into(), lease_ms: 3_600_000, ..Default::default() };
        let opened = session.unary(request, |mut client, request| async move { client.open_session(request).await });
        let opened = opened.wait()?;
        let (id, chunk) = (opened.session_id, opened.limits.map_or(1 << 20, |limits| limits.chunk_bytes as usize));
        let mut made = Unary { session: session.clone(), id, chunk, inputs: 0, labels: 0, parameters: Vec::new() };
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

    fn upload(&self, mib: usize) -> Result<f64> {
        let (data, chunk) = (Bytes::from(vec![0u8; mib << 20]), self.chunk);
        let total_bytes = data.len() as u64;
        let start = proto::UploadStart { session_id: self.id.clone(), total_bytes, ..Default::default() };
        let begun = Instant::now();
        let told = self.call((start, data), move |mut client, (start, data)| async move {
            let parts =
                (0..data.len()).step_by(chunk).map(move |at| Part::Data(data.slice(at..data.len().min(at + chunk))));
            let parts = std::iter::once(Part::Start(start)).chain(parts);
            client.upload(tokio_stream::iter(parts.map(|part| proto::UploadRequest { part: Some(part) }))).await
        })?;
        let seconds = begun.elapsed().as_secs_f64();
        let shape = vec![total_bytes as i64];
        let transfer =
            proto::Transfer { transfer_id: told.transfer_id, dtype: DType::Uint8.into(), shape, total_bytes };
        let source = Some(proto::create_request::Source::Transfer(transfer));
        let request = proto::CreateRequest { session_id: self.id.clone(), source, ..Default::default() };
        let made = self.call(request, |mut client, request| async move { client.create(request).await })?;
        self.release(made.tensor.map_or(0, |spec| spec.id)).map(|()| seconds)
    }

    fn download(&self, mib: usize) -> std::result::Result<f64, Box<dyn Error>> {
        let size = argument("", Kind::Integers(proto::IntList { values: vec![(mib as i64) << 18] }));
        let tensor = self.op("ones", vec![size], GradMode::Disabled)?;
        let request = proto::ReadRequest { session_id: self.id.clone(), tensor };
        let read = self.call(request, |mut client, request| async move { client.read(request).await })?;
        let Some(proto::read_response::Result::Transfer(transfer)) = read.result else {
            return Err("the values came without a transfer".into());
        };
        let (session_id, transfer_id) = (self.id.clone(), transfer.transfer_id);
        let request = proto::DownloadRequest { session_id, transfer_id, offset: 0 };
        let begun = Instant::now();
        let received = self.call(request, |mut client, request| async move {
            let mut parts = client.download(request).await?.into_inner();
            let mut received = 0;
            while let Some(part) = parts.message().await? {
                received += part.data.len();
            }
            Ok(Response::new(received))
        })?;
        let seconds = begun.elapsed().as_secs_f64();
        self.release(tensor)?;
        if received == mib << 20 { Ok(seconds) } else { Err(format!("{received} bytes came").into()) }
    }

    fn release(&self, tensor: u64) -> Result<()> {
        let request =
            proto::ReleaseRequest { session_id: self.id.clone(), tensors: vec![tensor], ..Default::default() };
        self.call(request, |mut client, request| async move { client.release(request).await }).map(drop)
    }
}

fn argument(name: &str, kind: Kind) -> proto::Argument {
    proto::Argument { name: name.to_owned(), kind: Some(kind) }
}

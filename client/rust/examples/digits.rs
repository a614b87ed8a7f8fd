//! Trains a classifier of handwritten digits. A training step is a program: the server runs an epoch by one command.
//!
//! ```text
//! cargo run --release --example digits -- 127.0.0.1:50051
//! ```

use std::error::Error;
use std::fs::File;
use std::io::Read;

use flate2::read::GzDecoder;
use gradwire::{
    ArgmaxOptions, DType, Input, Program, Result, RunOptions, Session, Tensor, ToOptions, functional, no_grad,
};

const PIXELS: usize = 64;
const HIDDEN: usize = 256;
/// Images of a batch.
const ROWS: usize = 128;
/// Images for the test.
const HELD: usize = 360;

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:50051".into());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/data/digits.csv.gz");
    let accuracy = train(&address, path, 40)?;
    println!("accuracy on {HELD} images that it has not seen: {:.1} %", 100.0 * accuracy);
    Ok(())
}

/// Returns the accuracy on images that were not used.
pub fn train(address: &str, path: &str, epochs: usize) -> std::result::Result<f64, Box<dyn Error>> {
    let (images, digits) = load(path)?;
    let session = Session::connect(address).wait()?;
    session.manual_seed(0);
    let count = digits.len() - HELD;
    let x = session.tensor_with_shape(&images[..count * PIXELS], [count as i64, PIXELS as i64]);
    let y = session.tensor(&digits[..count]);
    let parameters = [
        layer(&session, PIXELS, HIDDEN),
        session.zeros([HIDDEN as i64]).requires_grad_(true),
        layer(&session, HIDDEN, 10),
        session.zeros([10]).requires_grad_(true),
    ];
    let step = trace(&session, &parameters)?;
    let bound: Vec<&Tensor> = parameters.iter().chain([&x, &y]).collect();
    for epoch in 1..=epochs {
        let options = RunOptions::default().numbers([0.2]).repeat(count / ROWS).sliced([4, 5]).stacked(true);
        let losses = step.run_with(&bound, options);
        if epoch % 10 == 0 {
            println!("epoch {epoch}: loss {:.4}", losses[0].mean().item().wait()?);
        }
    }
    let seen = session.tensor_with_shape(&images[count * PIXELS..], [HELD as i64, PIXELS as i64]);
    let wanted = session.tensor(&digits[count..]);
    let right = no_grad(|| forward(&parameters, &seen).argmax_with(ArgmaxOptions::default().dim(1)).eq(&wanted));
    let accuracy = right.to_with(ToOptions::default().dtype(DType::Float32)).mean().item().wait()?;
    session.close().wait()?;
    Ok(accuracy)
}

/// A matrix of weights, uniform within 1/√inputs as PyTorch's Linear makes them.
fn layer(session: &Session, inputs: usize, outputs: usize) -> Tensor {
    let bound = 1.0 / (inputs as f64).sqrt();
    let uniform = session.rand([inputs as i64, outputs as i64]);
    ((uniform - 0.5) * (2.0 * bound)).requires_grad_(true)
}

fn forward(parameters: &[Tensor], x: &Tensor) -> Tensor {
    let inner = (x.matmul(&parameters[0]) + &parameters[1]).relu();
    inner.matmul(&parameters[2]) + &parameters[3]
}

/// Makes the program of a step of gradient descent; its number is the learning rate.
fn trace(session: &Session, parameters: &[Tensor]) -> Result<Program> {
    let like = parameters.iter().map(|parameter| Input::like(parameter).wait());
    let mut inputs = like.collect::<Result<Vec<Input>>>()?;
    inputs.push(Input::new(DType::Float32, [ROWS as i64, PIXELS as i64]));
    inputs.push(Input::new(DType::Int64, [ROWS as i64]));
    session.trace(&inputs, 1, |_, inputs, numbers| {
        let (parameters, x, y) = (&inputs[..4], &inputs[4], &inputs[5]);
        let loss = functional::cross_entropy(&forward(parameters, x), y);
        loss.backward()?;
        no_grad(|| {
            for parameter in parameters {
                parameter.sub_(parameter.grad() * numbers[0]);
                parameter.zero_grad();
            }
        });
        Ok(vec![loss.detach()])
    })
}

/// Reads the images, with values in [0, 1], and their digits, in a random order.
fn load(path: &str) -> std::result::Result<(Vec<f32>, Vec<i64>), Box<dyn Error>> {
    let mut text = String::new();
    GzDecoder::new(File::open(path)?).read_to_string(&mut text)?;
    let mut lines: Vec<&str> = text.lines().collect();
    let mut random = 1u64; // a linear congruential generator
    for place in (1..lines.len()).rev() {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        lines.swap(place, (random >> 33) as usize % (place + 1));
    }
    let (mut images, mut digits) = (Vec::new(), Vec::new());
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        for field in &fields[..PIXELS] {
            images.push(field.trim().parse::<f32>()? / 16.0);
        }
        digits.push(fields[PIXELS].trim().parse::<f64>()? as i64);
    }
    Ok((images, digits))
}

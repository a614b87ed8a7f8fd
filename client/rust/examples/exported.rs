//! Trains a model that Python exported with `gradwire.export`: its network, its Adam optimizer and its step are in the
//! file. It trains, saves the file, and trains what it saved.
//!
//! ```text
//! cargo run --example exported -- 127.0.0.1:50051
//! ```

use std::error::Error;

use gradwire::{Session, Tensor};
use serde_json::Value;

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:50051".into());
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/conformance");
    for (found, wanted) in train(&address, folder)? {
        println!("loss {found:.6}; in PyTorch {wanted:.6}");
    }
    Ok(())
}

/// Trains with the inputs of `model.json`. Returns the losses, and PyTorch's.
pub fn train(address: &str, folder: &str) -> Result<Vec<(f64, f64)>, Box<dyn Error>> {
    let told: Value = serde_json::from_slice(&std::fs::read(format!("{folder}/model.json"))?)?;
    let mut file = std::fs::read(format!("{folder}/model.safetensors"))?;
    let session = Session::connect(address).wait()?;
    let rows = told["x"].as_array().ok_or("there is no x")?;
    let x: Vec<f32> = rows.iter().flat_map(numbers).map(|value| value as f32).collect();
    let columns = x.len() / rows.len();
    let x = session.tensor_with_shape(x, [rows.len() as i64, columns as i64]);
    let y = session.tensor(numbers(&told["y"]).map(|value| value as i64).collect::<Vec<_>>());
    let wanted: Vec<f64> = numbers(&told["losses"]).collect();
    let mut losses = Vec::new();
    for half in wanted.chunks(wanted.len() / 2) {
        let model = session.load_program(file).wait()?;
        let step = model.program("")?;
        for wanted in half {
            let loss: &Tensor = &step.run([("x", &x), ("y", &y)])[0];
            losses.push((loss.item().wait()?, *wanted));
        }
        file = model.save().wait()?.to_vec();
    }
    session.close().wait()?;
    Ok(losses)
}

fn numbers(list: &Value) -> impl Iterator<Item = f64> + '_ {
    list.as_array().into_iter().flatten().filter_map(Value::as_f64)
}

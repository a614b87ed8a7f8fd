//! Fits y = w x + b to points, with every tensor on a server.
//!
//! ```text
//! cargo run --example line -- 127.0.0.1:50051
//! ```

use gradwire::{Result, Session, functional, no_grad};

fn main() -> Result<()> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:50051".into());
    let (slope, intercept) = fit(&address)?;
    println!("y = {slope:.3} x + {intercept:.3}");
    Ok(())
}

/// Returns slope and intercept.
pub fn fit(address: &str) -> Result<(f64, f64)> {
    let session = Session::connect(address).wait()?;
    let x = session.tensor([0f32, 1.0, 2.0, 3.0]);
    let y = session.tensor([-1f32, 2.0, 5.0, 8.0]);
    let mut w = session.tensor([0f32]).requires_grad_(true);
    let mut b = session.tensor([0f32]).requires_grad_(true);
    for _ in 0..300 {
        let loss = functional::mse_loss(&(&x * &w + &b), &y);
        loss.backward()?;
        no_grad(|| {
            for parameter in [&mut w, &mut b] {
                *parameter -= parameter.grad() * 0.1;
                parameter.zero_grad();
            }
        });
    }
    let fitted = (w.item().wait()?, b.item().wait()?);
    session.close().wait()?;
    Ok(fitted)
}

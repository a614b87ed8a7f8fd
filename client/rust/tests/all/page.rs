//! The code of docs/languages/rust.md, but for the address.

use gradwire::{DType, Input, Reason, Result, Session, Tensor, functional, no_grad};

use crate::servers::session;

const PAGE: &str = include_str!("../../../../docs/languages/rust.md");

#[rustfmt::skip]
fn line(address: &str) -> Result<()> {
    let session = Session::connect(address).wait()?;
    let x = session.tensor([0f32, 1.0, 2.0, 3.0]);
    let y = session.tensor([-1f32, 2.0, 5.0, 8.0]);
    let mut w = session.tensor([0f32]).requires_grad_(true);
    for _ in 0..300 {
        let loss = functional::mse_loss(&(&x * &w - 1.0), &y);
        loss.backward()?;
        no_grad(|| w -= w.grad() * 0.1);
        w.zero_grad();
    }
    let slope = w.item().wait()?;
    println!("{slope:.4}"); // 3.0000
    session.close().wait()
}

#[rustfmt::skip]
fn leaves(session: &Session) -> Result<(Vec<f32>, Vec<f32>)> {
    let a = session.tensor([1f32, 2.0, 3.0]).requires_grad_(true);
    let b = &a * &a;
    b.retain_grad();
    b.sum().backward()?;
    let gradient: Vec<f32> = a.grad().to_vec().wait()?; // 2, 4, 6
    let kept: Vec<f32> = b.grad().to_vec().wait()?; // 1, 1, 1
    Ok((gradient, kept))
}

#[rustfmt::skip]
#[allow(clippy::collapsible_if)]
fn mistake(m: Tensor) -> Result<Vec<f32>> {
    let failed = m.matmul(&m).to_vec::<f32>().wait();
    if let Err(error) = &failed {
        if error.reason() == Some(Reason::Shape) {
            println!("{error}"); // matmul: mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3) (SHAPE)
        }
    }
    failed
}

#[rustfmt::skip]
fn hooked(a: Tensor) -> Result<()> {
    let hook = a.register_hook(|gradient| Ok(Some(gradient * 2.0)))?;
    (&a * &a).sum().backward()?;
    hook.remove();
    Ok(())
}

#[rustfmt::skip]
fn traced(session: &Session, a: &Tensor) -> Result<f64> {
    let inputs = [Input::new(DType::Float32, [3])];
    let program = session.trace(&inputs, 0, |_, inputs, _| Ok(vec![(&inputs[0] * 2.0).sum()]))?;
    let twice = program.run(&[a.detach()])[0].item().wait()?; // 12
    Ok(twice)
}

#[test]
fn the_code_of_the_page_does_what_it_says() {
    let Some(session) = session() else { return };
    line(&crate::servers::address().unwrap()).unwrap();
    assert_eq!(leaves(&session).unwrap(), (vec![2.0, 4.0, 6.0], vec![1.0; 3]));
    let error = mistake(session.ones([2, 3])).unwrap_err();
    assert_eq!(error.to_string(), "matmul: mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3) (SHAPE)");
    let a = session.tensor([1f32, 2.0, 3.0]).requires_grad_(true);
    hooked(a.clone()).unwrap();
    assert_eq!(a.grad().to_vec::<f32>().wait().unwrap(), [4.0, 8.0, 12.0]);
    assert_eq!(traced(&session, &a).unwrap(), 12.0);
}

#[test]
fn the_code_of_the_page_is_tested() {
    let tested = include_str!("page.rs");
    let mut blocks = 0;
    for part in PAGE.split("```rust\n").skip(1) {
        let block = part.split_once("```").unwrap().0;
        let lines: Vec<&str> = match block.split_once("fn main() -> Result<()> {\n") {
            Some((_, body)) => body.trim_end().trim_end_matches('}').lines().collect(),
            None => block.lines().collect(),
        };
        for line in lines {
            let line = line.replace("\"127.0.0.1:50051\"", "address");
            assert!(tested.contains(line.trim()), "it is not in page.rs: {line}");
        }
        blocks += 1;
    }
    assert!(blocks > 4);
}

//! The code of README.md, but for the address and for what is around it.

use gradwire::{Result, Session, functional, no_grad};

use crate::servers::address;

#[rustfmt::skip]
fn fit(address: &str) -> Result<f64> {
    // begins
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
    let slope = w.item().wait()?; // 3
    // ends
    session.close().wait()?;
    Ok(slope)
}

#[test]
fn the_code_of_the_readme_fits_a_line() {
    let Some(address) = address() else { return };
    assert!((fit(&address).unwrap() - 3.0).abs() < 1e-4);
}

#[test]
fn the_code_of_the_readme_is_tested() {
    let tested = include_str!("readme.rs").split_once("// begins\n").unwrap().1;
    let tested = tested.split_once("    // ends").unwrap().0;
    let page = include_str!("../../README.md").split_once("```rust\n").unwrap().1;
    let lines: Vec<&str> = page.split_once("```").unwrap().0.lines().filter(|line| line.starts_with("    ")).collect();
    let shown: String =
        lines.iter().filter(|line| !line.contains("println!")).map(|line| format!("{line}\n")).collect();
    let shown = shown.replace("\"127.0.0.1:50051\"", "address");
    assert_eq!(shown.trim_end_matches("    Ok(())\n"), tested);
}

#[test]
fn the_examples_run() {
    let Some(address) = address() else { return };
    let (slope, intercept) = crate::line::fit(&address).unwrap();
    assert!((slope - 3.0).abs() < 1e-2 && (intercept + 1.0).abs() < 1e-2, "{slope} {intercept}");
    let digits = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/data/digits.csv.gz");
    let accuracy = crate::digits::train(&address, digits, 30).unwrap();
    assert!(accuracy > 0.93, "{accuracy}");
}

#[test]
fn an_exported_model_trains_as_in_pytorch() {
    let Some(address) = address() else { return };
    let losses = crate::exported::train(&address, crate::servers::folder().to_str().unwrap()).unwrap();
    assert_eq!(losses.len(), 12);
    for (found, wanted) in losses {
        assert!((found - wanted).abs() <= 1e-5 * wanted, "{found} instead of {wanted}");
    }
}

//! Programs, and files of programs.

use gradwire::{Call, DType, Input, Reason, Result, Tensor, proto};
use serde_json::Value;

use crate::servers::session;

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.to_vec().wait().unwrap()
}

#[test]
fn mistakes_in_a_program() {
    let Some(session) = session() else { return };
    let outer = session.tensor([1f32, 2.0, 3.0]);
    let inputs = [Input::new(DType::Float32, [3])];
    let made = |body: &dyn Fn(&Tensor) -> Result<Tensor>| {
        let program = session.trace(&inputs, 0, |_, inputs, _| Ok(vec![body(&inputs[0])?]));
        program.and_then(|program| session.wait().wait().map(|()| program))
    };
    assert_eq!(made(&|x| Ok(x + &outer)).unwrap_err().reason(), Some(Reason::ArgumentValue));
    assert_eq!(made(&|x| x.item().wait().map(|_| x.clone())).unwrap_err().reason(), Some(Reason::NotSupported));
    assert!(made(&|x| Ok(Call::new("nonsense").arg(x).one())).is_err());
    assert!(made(&|x| x.register_hook(|_| Ok(None)).map(|_| x.clone())).is_err());
    assert!(made(&|_| Ok(outer.clone())).is_err());
    let double = made(&|x| Ok(x * 2.0)).unwrap();
    assert_eq!(values(&double.run(&[&outer])[0]), [2.0, 4.0, 6.0]);
    assert!(double.run(&[session.tensor([1f32])])[0].read().wait().is_err(), "an input of another shape is bound");
    let none: [Tensor; 0] = [];
    assert_eq!(double.run(&none)[0].read().wait().unwrap_err().reason(), Some(Reason::ArgumentType));
    assert!(session.wait().wait().is_err()); // it tells the same once more
}

#[test]
fn programs_that_the_server_forgets_are_registered_again() {
    let Some(session) = session() else { return };
    let request = proto::ServerInfoRequest {};
    let info = session.unary(request, |mut client, request| async move { client.server_info(request).await }).wait();
    let most = info.unwrap().limits.unwrap().max_programs as usize;
    assert!(most < 300, "the server keeps too many programs for this test: {most}");
    let x = session.tensor([1f32]);
    let inputs = [Input::new(DType::Float32, [1])];
    let made = (0..most + 2).map(|place| session.trace(&inputs, 0, |_, inputs, _| Ok(vec![&inputs[0] + place as f64])));
    let programs: Vec<_> = made.map(Result::unwrap).collect();
    for (place, program) in programs.iter().enumerate() {
        assert_eq!(values(&program.run(&[&x])[0]), [1.0 + place as f32]);
    }
}

#[test]
fn files_whose_programs_the_server_forgets_are_loaded_again() {
    let Some(session) = session() else { return };
    let request = proto::ServerInfoRequest {};
    let info = session.unary(request, |mut client, request| async move { client.server_info(request).await }).wait();
    let most = info.unwrap().limits.unwrap().max_programs;
    let path = crate::servers::folder().join("model.safetensors");
    let model = session.load_program(std::fs::read(path).unwrap()).wait().unwrap();
    let step = model.program("").unwrap();
    let (x, y) = (session.tensor_with_shape([1f32; 24], [6, 4]), session.tensor([0i64; 6]));
    let loss = || step.run([("x", &x), ("y", &y)])[0].item().wait().unwrap();
    let before = loss();
    let inputs = [Input::new(DType::Float32, [1])];
    for place in 0..most {
        session.trace(&inputs, 0, |_, inputs, _| Ok(vec![&inputs[0] + place as f64])).unwrap();
    }
    let after = loss();
    assert!(after < before && loss() < after, "{before}, then {after}");
}

#[test]
fn files_of_nonsense_are_refused() {
    let Some(session) = session() else { return };
    assert!(session.load_program("no file").wait().is_err());
    let path = crate::servers::folder().join("model.safetensors");
    let model = session.load_program(std::fs::read(path).unwrap()).wait().unwrap();
    assert!(model.program("nonsense").unwrap_err().to_string().contains("it has"));
    let step = model.program("").unwrap();
    assert_eq!(step.inputs().collect::<Vec<_>>(), ["x", "y"]);
    assert!(step.place("x").is_some() && step.place("nonsense").is_none());
    assert!(step.run([("x", session.tensor([1f32]))])[0].read().wait().is_err());
}

#[test]
fn an_exported_model_trains_as_from_python() {
    let (Some(session), Some(losses)) = (session(), crate::servers::variable("GRADWIRE_LOSSES")) else { return };
    let folder = crate::servers::folder();
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    let told: Value = serde_json::from_slice(&read("model.json")).unwrap();
    let list = |value: &Value| value.as_array().unwrap().clone();
    let rows = list(&told["x"]);
    let x: Vec<f32> = rows.iter().flat_map(list).map(|value| value.as_f64().unwrap() as f32).collect();
    let y: Vec<i64> = list(&told["y"]).iter().map(|value| value.as_i64().unwrap()).collect();
    let x = session.tensor_with_shape(&x, [y.len() as i64, (x.len() / y.len()) as i64]);
    let y = session.tensor(&y);
    let model = session.load_program(read("model.safetensors")).wait().unwrap();
    let step = model.program("").unwrap();
    let losses: Vec<f64> = serde_json::from_str(&losses).unwrap();
    assert!(!losses.is_empty());
    for expected in losses {
        let loss = step.run([("x", &x), ("y", &y)])[0].item().wait().unwrap();
        // serde_json reads the last bit of an f64 wrong; the losses are f32.
        assert_eq!((loss as f32).to_bits(), (expected as f32).to_bits(), "{loss} is not {expected}");
    }
    session.close().wait().unwrap();
}

//! Sessions and tensors against a live server.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use gradwire::{
    BackwardOptions, ClampOptions, Complex, ConnectOptions, DType, Element, Error, IndexItem, OPS_HASH, Reason,
    Session, SortOptions, SplitIntOptions, SumOptions, Tensor, cat, fft, functional, linalg, no_grad, proto,
};

use crate::servers::{Restarting, address, session};

#[test]
fn the_generated_ops_are_the_servers() {
    let Some(session) = session() else { return };
    let request = proto::ListOpsRequest { known_hash: OPS_HASH.into(), ..Default::default() };
    let listed = session.unary(request, |mut client, request| async move { client.list_ops(request).await }).wait();
    let listed = listed.unwrap();
    assert_eq!((&listed.hash[..], listed.ops.len()), (OPS_HASH, 0), "run `python -m tools.sdk_ops`");
}

#[track_caller]
fn check(tensor: &Tensor, wanted: &[f64]) {
    let found = tensor.to_f64().wait().unwrap();
    let near = found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-4);
    assert!(found.len() == wanted.len() && near, "{found:?} instead of {wanted:?}");
}

#[test]
fn typed_ops() {
    let Some(session) = session() else { return };
    let a = session.tensor_with_shape([3f32, 1.0, 2.0, 6.0, 5.0, 4.0], [2, 3]);
    let (values, indices) = a.sort_with(SortOptions::default().descending(true));
    check(&values, &[3.0, 2.0, 1.0, 6.0, 5.0, 4.0]);
    check(&indices, &[0.0, 2.0, 1.0, 0.0, 1.0, 2.0]);
    let (best, at) = a.max_dim(1);
    check(&best, &[3.0, 6.0]);
    check(&at, &[0.0, 0.0]);
    check(&a.max(), &[6.0]);
    check(&a.sum_with(SumOptions::default().dim([0])), &[9.0, 6.0, 6.0]);
    check(&a.clamp_with(ClampOptions::default().min(2).max(4.5)), &[3.0, 2.0, 2.0, 4.5, 4.5, 4.0]);
    check(&cat(&[&a, &a]).sum(), &[42.0]);
    check(&session.arange(4), &[0.0, 1.0, 2.0, 3.0]);
    check(&a.softmax(1).sum(), &[2.0]);
    check(&functional::leaky_relu(&-&a), &[-0.03, -0.01, -0.02, -0.06, -0.05, -0.04]);
    check(&linalg::norm(&a), &[91f64.sqrt()]);
    let row = SumOptions::default().dim([1]);
    check(&fft::fft(&a).abs().sum_with(row), &[6.0 + 2.0 * 3f64.sqrt(), 15.0 + 2.0 * 3f64.sqrt()]);
    let parts = a.split_int_with(2, SplitIntOptions::default().dim(1)).wait().unwrap();
    assert_eq!(parts.len(), 2);
    check(&parts[1], &[2.0, 4.0]);
}

#[test]
fn operators_and_indices() {
    let Some(session) = session() else { return };
    let a = session.tensor([1f32, 2.0, 3.0]);
    check(&(1.0 - &a), &[0.0, -1.0, -2.0]);
    check(&(2 / &a - &a * 0.5), &[1.5, 0.0, 2.0 / 3.0 - 1.5]);
    check(&(-(&a % 2.0)), &[-1.0, 0.0, -1.0]);
    check(&!(a.gt(1) & a.lt(3)), &[1.0, 0.0, 1.0]);
    let mut sum = a.cloned();
    let same = sum.clone();
    sum += &a;
    sum *= 2.0;
    sum -= 1;
    sum /= 2;
    check(&same, &[1.5, 3.5, 5.5]);
    let b = session.tensor_with_shape((0..6).collect::<Vec<i64>>(), [2, 3]);
    check(&b.index(&[1.into(), (0..2).into()]), &[3.0, 4.0]);
    check(&b.index(&[(..).into(), (-1).into()]), &[2.0, 5.0]);
    check(&b.index(&[0.into(), (..=1).into()]), &[0.0, 1.0]);
    check(&b.index(&[IndexItem::ellipsis(), IndexItem::slice(None, None, Some(2))]), &[0.0, 2.0, 3.0, 5.0]);
    check(&b.index(&[(&b.gt(3)).into()]), &[4.0, 5.0]);
    check(&b.set_index(&[(..).into(), 0.into()], 9), &[9.0, 1.0, 2.0, 9.0, 4.0, 5.0]);
}

#[test]
fn gradients() {
    let Some(session) = session() else { return };
    let a = session.tensor([2f32]).requires_grad_(true);
    let cube = &a * &a * &a;
    let create = BackwardOptions::default().create_graph(true);
    let first = gradwire::grad_with(&[&cube], &[&a], create).unwrap().remove(0).unwrap();
    check(&first, &[12.0]);
    let second = gradwire::grad(&[first], &[&a]).unwrap();
    check(&second[0], &[12.0]);
    let unused = session.tensor([1f32]).requires_grad_(true);
    let options = BackwardOptions::default().allow_unused(true);
    let found = gradwire::grad_with(&[&(&a * 2.0)], &[&a, &unused], options).unwrap();
    assert!(found[0].is_some() && found[1].is_none());
    assert!(!a.has_grad().wait().unwrap());
    no_grad(|| assert!(!(&a * 2.0).describe().wait().unwrap().requires_grad));
    assert!((&a * 2.0).describe().wait().unwrap().requires_grad);
}

#[test]
fn mistakes_have_pytorchs_sentences() {
    let Some(session) = session() else { return };
    let a = session.tensor_with_shape([1f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]);
    let failed = a.matmul(&a);
    let error = failed.exp().to_vec::<f32>().wait().unwrap_err();
    let told = error.refusal().unwrap();
    assert_eq!((told.reason, &told.op[..], told.shape.as_deref()), (Reason::Shape, "matmul", Some(&[2, 3][..])));
    assert!(error.to_string().contains("mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)"), "{error}");
    let sent = a.requires_grad_(true).exp().backward();
    let error = sent.and_then(|()| session.wait().wait()).unwrap_err();
    assert!(error.to_string().contains("grad can be implicitly created only for scalar outputs"), "{error}");
    let leaf = session.tensor([1f32]).requires_grad_(true);
    leaf.add_(1.0);
    let error = session.wait().wait().unwrap_err();
    assert_eq!(error.reason(), Some(Reason::LeafInPlace));
    assert!(error.to_string().contains("a leaf Variable that requires grad is being used in an in-place operation"));
    session.wait().wait().expect("a failure is told once");
    check(&a.sum(), &[21.0]);
    let error = failed.read().wait().unwrap_err();
    assert_eq!(error.reason(), Some(Reason::Shape), "a failed tensor fails with the first reason");
}

#[test]
fn mistakes_found_here() {
    let (Some(session), Some(other)) = (session(), session()) else { return };
    let (a, b) = (session.tensor([1f32]), other.tensor([1f32]));
    let mistakes =
        HashMap::from([("another session", a.add(&b)), ("shape", session.tensor_with_shape([1f32, 2.0], [3]))]);
    for (name, tensor) in mistakes {
        assert!(tensor.exp().read().wait().unwrap_err().reason().is_some(), "{name}");
    }
    assert!(session.wait().wait().unwrap_err().reason().is_some());
    assert_eq!(a.to_vec::<i64>().wait().unwrap_err().reason(), Some(Reason::Dtype));
    let error = session.tensor([1f32, 2.0]).item().wait().unwrap_err();
    assert!(error.to_string().contains("a Tensor with 2 elements cannot be converted to Scalar"), "{error}");
    assert_eq!(a.exp().error().map(Error::to_string), None);
}

#[test]
fn a_hook_returns_a_tensor_of_another_session() {
    let (Some(session), Some(other)) = (session(), session()) else { return };
    let foreign = other.tensor([5f32, 5.0]);
    let a = session.tensor([1f32, 2.0]).requires_grad_(true);
    let hook = a.register_hook(move |_| Ok(Some(foreign.clone()))).unwrap();
    let error = (&a * 2.0).sum().backward().unwrap_err();
    assert!(error.to_string().contains("belongs to another session"), "{error}");
    hook.remove();
    assert!(!a.has_grad().wait().unwrap());
}

#[test]
fn a_closed_session() {
    let Some(session) = session() else { return };
    let a = session.tensor([1f32]);
    session.close().wait().unwrap();
    assert!(matches!((&a + 1.0).to_vec::<f32>().wait(), Err(Error::Closed)));
    session.close().wait().unwrap();
}

#[test]
fn a_session_continues_after_the_server_restarts() {
    let Some(mut server) = Restarting::new() else { return };
    let options = ConnectOptions::default().local_stream(false);
    let session = Session::connect_with(&server.address, options).wait().unwrap();
    let sum = session.scalar(0f32);
    for round in 0..2 {
        for _ in 0..200 {
            sum.add_(1.0);
        }
        if round == 0 {
            server.restart();
        }
    }
    check(&sum, &[400.0]);
    assert!(session.reconnects() > 0);
}

#[test]
fn a_device_is_asked_for() {
    let Some(address) = address() else { return };
    let asked = |of: &str| Session::connect_with(&address, ConnectOptions::default().device_type(of)).wait();
    assert!(asked("cpu").is_ok());
    assert_eq!(asked("abacus").unwrap_err().reason(), Some(Reason::DeviceUnavailable));
}

#[test]
fn no_server() {
    let begun = Instant::now();
    let waited = Session::connect("127.0.0.1:1").wait_timeout(Duration::from_millis(100));
    assert!(waited.is_none() && begun.elapsed() < Duration::from_secs(5));
    let options = ConnectOptions::default().patience(Duration::from_millis(50));
    let error = Session::connect_with("127.0.0.1:1", options).wait().unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
    assert!(Session::connect("no address at all").wait().is_err());
    let told = Session::connect("127.0.0.1:1").wait_timeout(Duration::from_secs(60));
    let error = told.expect("a mistake is told before the session's patience ends").unwrap_err();
    assert!(error.to_string().contains("No server listens there: start `gradwire serve`"), "{error}");
}

#[test]
fn the_first_server_that_answers_is_used() {
    let Some(address) = address() else { return };
    let session = Session::connect(&format!("127.0.0.1:1, {address}")).wait().unwrap();
    check(&session.scalar(2f64), &[2.0]);
}

fn described(session: &Session) -> proto::DescribeResponse {
    session.wait().wait().unwrap();
    let request = proto::DescribeRequest { session_id: session.id().into(), ..Default::default() };
    session.unary(request, |mut client, request| async move { client.describe(request).await }).wait().unwrap()
}

#[test]
fn dropped_tensors_are_released() {
    let Some(session) = session() else { return };
    let a = session.tensor([1f32, 2.0, 3.0]);
    let mut last = a.clone();
    for _ in 0..5_000 {
        last = (&last + 0.0).cloned();
    }
    check(&last, &[1.0, 2.0, 3.0]);
    drop(a);
    assert_eq!(described(&session).tensor_count, 1);
}

#[test]
fn a_dropped_session_ends() {
    let (Some(session), Some(other)) = (session(), session()) else { return };
    let id = session.id().to_owned();
    let a = session.tensor([1f32]);
    drop(session);
    check(&a, &[1.0]); // a tensor keeps its session
    drop(a);
    let request = proto::DescribeRequest { session_id: id, ..Default::default() };
    let told = other.unary(request, |mut client, request| async move { client.describe(request).await }).wait();
    assert_eq!(told.unwrap_err().reason(), Some(Reason::SessionNotFound));
}

#[test]
fn threads_share_a_session() {
    let Some(session) = session() else { return };
    let sum = session.tensor([0f32]);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..100 {
                    sum.add_(1.0);
                    (&sum + 1.0).to_vec::<f32>().wait().unwrap();
                }
            });
        }
    });
    check(&sum, &[800.0]);
}

#[test]
fn async_code_awaits() {
    let Some(address) = address() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let found = runtime.block_on(async {
        let session = Session::connect(&address).await?;
        let a = session.tensor([1f32, 2.0]);
        let (one, two) = ((&a + 1.0).to_vec::<f32>(), (&a + 2.0).to_vec::<f32>()); // both are on the way
        let found = [one.await?, two.await?];
        session.close().await?;
        gradwire::Result::Ok(found)
    });
    assert_eq!(found.unwrap(), [[2.0, 3.0], [3.0, 4.0]]);
}

#[test]
fn values_of_every_type() {
    let Some(session) = session() else { return };
    round(&session, &[1.5f32, -2.0]);
    round(&session, &[1.5f64, -2.0]);
    round(&session, &[1i8, -2]);
    round(&session, &[1i16, -2]);
    round(&session, &[1i32, -2]);
    round(&session, &[1, i64::MIN]);
    round(&session, &[1u8, 255]);
    round(&session, &[1, u16::MAX]);
    round(&session, &[1, u32::MAX]);
    round(&session, &[1, u64::MAX]);
    round(&session, &[true, false]);
    round(&session, &[Complex { re: 0f32, im: 1.0 }, Complex { re: 2.0, im: -1.0 }]);
    round(&session, &[Complex { re: 0f64, im: 1.0 }, Complex { re: 2.0, im: -1.0 }]);
    let data = vec![0x00, 0x3c, 0x01, 0x00, 0x00, 0xfc, 0x55, 0xb5];
    let half = session.tensor_from_bytes(DType::Float16, data, [4]).to_f64().wait().unwrap();
    assert_eq!(half, [1.0, 2f64.powi(-24), f64::NEG_INFINITY, -0.333_251_953_125]);
}

fn round<T: Element + PartialEq + std::fmt::Debug>(session: &Session, values: &[T]) {
    assert_eq!(session.tensor(values).to_vec::<T>().wait().unwrap(), values);
}

#[test]
fn the_stream_by_a_unix_socket() {
    let Some(address) = address() else { return };
    let options = ConnectOptions::default().local_stream(true);
    let session = Session::connect_with(&address, options).wait().unwrap();
    let a = session.tensor([1f32, 2.0]).requires_grad_(true);
    (&a * &a).sum().backward().unwrap();
    check(&a.grad(), &[2.0, 4.0]);
    assert_eq!(a.matmul(&session.tensor([1f32])).item().wait().unwrap_err().reason(), Some(Reason::Shape));
    assert_eq!(session.reconnects(), 0);
    session.close().wait().unwrap();
}

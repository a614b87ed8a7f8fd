//! The code of docs/other-languages.md, which uses the stubs alone.

#[rustfmt::skip]
use gradwire::proto::{
    argument, autograd_service_client::AutogradServiceClient, create_request, read_response, Argument, BackwardRequest,
    CloseSessionRequest, CreateRequest, Dtype, GradRequest, OpRequest, OpenSessionRequest, Payload, ReadRequest,
};

use crate::servers::variable;

const PAGE: &str = include_str!("../../../../docs/other-languages.md");

#[rustfmt::skip]
async fn by_stubs(address: String) -> Result<f32, Box<dyn std::error::Error>> {
    let mut client = AutogradServiceClient::connect(address).await?;
    let opened = client.open_session(OpenSessionRequest { client: "rust".into(), ..Default::default() }).await?;
    let session_id = opened.into_inner().session_id;

    let payload = Payload { dtype: Dtype::Float32 as i32, shape: vec![], data: 3f32.to_le_bytes().to_vec().into() };
    let created = client.create(CreateRequest {
        session_id: session_id.clone(),
        requires_grad: true,
        source: Some(create_request::Source::Payload(payload)),
        ..Default::default()
    }).await?;
    let a = created.into_inner().tensor.unwrap().id;
    let argument = Argument { kind: Some(argument::Kind::Tensor(a)), ..Default::default() };
    let made = client.op(OpRequest {
        session_id: session_id.clone(),
        op: "mul".into(),
        args: vec![argument.clone(), argument],
        ..Default::default()
    }).await?;
    let b = made.into_inner().outputs[0].id;
    client.backward(BackwardRequest { session_id: session_id.clone(), tensors: vec![b], ..Default::default() }).await?;
    let grad = client.grad(GradRequest { session_id: session_id.clone(), tensor: a, ..Default::default() }).await?;
    let id = grad.into_inner().grad.unwrap().id;
    let read = client.read(ReadRequest { session_id: session_id.clone(), tensor: id }).await?;
    let Some(read_response::Result::Payload(values)) = read.into_inner().result else {
        return Err("the values come by Download".into());
    };
    let value = f32::from_le_bytes(values.data[..].try_into()?); // 6
    client.close_session(CloseSessionRequest { session_id }).await?;
    Ok(value)
}

#[test]
fn stubs_give_a_gradient() {
    let Some(address) = variable("GRADWIRE_ADDRESS") else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert_eq!(runtime.block_on(by_stubs(format!("http://{address}"))).unwrap(), 6.0);
}

#[test]
fn the_page_of_stubs_is_tested() {
    let block = PAGE.split_once("```rust\n").unwrap().1.split_once("```").unwrap().0;
    for line in block.lines() {
        let line = line.replace("\"http://127.0.0.1:50051\"", "address");
        assert!(include_str!("stubs.rs").contains(line.trim()), "it is not in stubs.rs: {line}");
    }
}

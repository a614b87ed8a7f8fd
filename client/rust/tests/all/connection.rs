//! TLS, tokens, several servers, and sessions that move.

use std::net::TcpListener;
use std::time::Duration;

use gradwire::{ConnectOptions, Error, Reason, Session};

use crate::servers::variable;

/// Opens a session, and tells what a sum is.
fn tried(address: &str, options: ConnectOptions) -> gradwire::Result<f64> {
    let session = Session::connect_with(address, options.patience(Duration::from_millis(200))).wait()?;
    let value = session.ones([2]).sum().item().wait()?;
    session.close().wait()?;
    Ok(value)
}

#[test]
fn tls_and_tokens() {
    let Some(address) = variable("GRADWIRE_SECURE") else { return };
    let pem = |name: &str| std::fs::read(variable(name).unwrap()).unwrap();
    let (ca, other) = (pem("GRADWIRE_SECURE_CA"), pem("GRADWIRE_SECURE_OTHER_CA"));
    let token = variable("GRADWIRE_SECURE_TOKEN").unwrap();
    let with = ConnectOptions::default;
    assert_eq!(tried(&address, with().ca(&ca).token(&token)).unwrap(), 2.0);
    for options in [with().ca(&ca), with().ca(&ca).token("wrong")] {
        let error = tried(&address, options).unwrap_err();
        assert_eq!(error.reason(), Some(Reason::Unauthenticated), "{error}");
        assert!(error.to_string().contains("ConnectOptions::token"), "{error}");
    }
    for (options, told) in
        [(with().ca(&other).token(&token), "ConnectOptions::ca"), (with().token(&token), "seems to use TLS")]
    {
        let error = tried(&address, options).unwrap_err();
        assert!(matches!(error, Error::Connection { .. }), "{error}");
        assert!(error.to_string().contains(told), "{error}");
    }
}

#[test]
fn a_dead_seed_is_passed_over() {
    let Some(address) = variable("GRADWIRE_ADDRESS") else { return };
    let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let session = Session::connect(&format!("{dead}, {address}")).wait().unwrap();
    assert_eq!(session.ones([3]).sum().item().wait().unwrap(), 3.0);
    session.close().wait().unwrap();
}

#[test]
fn a_session_that_moves_is_followed() {
    let Some(address) = variable("GRADWIRE_MOVING") else { return };
    let session = Session::connect_with(&address, ConnectOptions::default().local_stream(false)).wait().unwrap();
    let sum = session.zeros([]);
    for _ in 0..2000 {
        sum.add_(1);
    }
    assert_eq!(sum.item().wait().unwrap(), 2000.0);
    assert!(session.reconnects() > 0);
    let mut large = vec![0f32; 1 << 20];
    *large.last_mut().unwrap() = 7.0;
    assert_eq!(session.tensor(&large).to_vec::<f32>().wait().unwrap(), large);
    session.close().wait().unwrap();
}

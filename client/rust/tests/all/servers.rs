//! Where the servers for tests are; tests/conformance/README.md describes the variables.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;

use gradwire::{ConnectOptions, Session};

/// The address of a live server. Without one, the test is skipped.
pub fn address() -> Option<String> {
    variable("GRADWIRE_ADDRESS")
}

/// A variable that tells of a server. Without it, the test is skipped.
pub fn variable(name: &str) -> Option<String> {
    let value = std::env::var(name).ok();
    if value.is_none() {
        eprintln!("skipped: it needs a server; set {name}, or run make test-sdks");
    }
    value
}

/// A session on the live server.
pub fn session() -> Option<Session> {
    Some(Session::connect_with(&address()?, ConnectOptions::default()).wait().unwrap())
}

/// The folder tests/conformance.
pub fn folder() -> PathBuf {
    let near = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance");
    std::env::var("GRADWIRE_CONFORMANCE").map_or(near, PathBuf::from)
}

/// A server of the test's own, which can be restarted. It ends with this value.
pub struct Restarting {
    pub address: String,
    control: BufReader<TcpStream>,
}

impl Restarting {
    pub fn new() -> Option<Restarting> {
        let control = BufReader::new(TcpStream::connect(variable("GRADWIRE_RESTARTING")?).unwrap());
        let mut made = Restarting { address: String::new(), control };
        made.address = made.line();
        Some(made)
    }

    /// Kills the server, and starts it again on its state directory.
    pub fn restart(&mut self) {
        writeln!(self.control.get_mut(), "restart").unwrap();
        self.line();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.control.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }
}

/// A proxy that cuts each connection after a random number of bytes.
pub struct Cutting {
    pub address: String,
    control: BufReader<TcpStream>,
}

impl Cutting {
    pub fn new(least: u64, most: u64) -> Option<Cutting> {
        let Ok(control) = std::env::var("GRADWIRE_CUTTING") else {
            eprintln!("skipped: it needs a proxy that cuts connections; run make test-sdks");
            return None;
        };
        let mut control = TcpStream::connect(control).unwrap();
        writeln!(control, "{least} {most}").unwrap();
        let mut control = BufReader::new(control);
        let mut address = String::new();
        control.read_line(&mut address).unwrap();
        Some(Cutting { address: address.trim().to_owned(), control })
    }

    /// Ends the proxy, and tells how many connections it has cut.
    pub fn end(mut self) -> u64 {
        self.control.get_ref().shutdown(Shutdown::Write).unwrap();
        let mut cuts = String::new();
        self.control.read_line(&mut cuts).unwrap();
        cuts.trim().parse().unwrap()
    }
}

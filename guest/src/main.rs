//! `guest-init`: process 1 of a virtual machine, or with `--serve` its TCP services on an ordinary host.

use std::io::Write as _;
use std::process::ExitCode;

use guest::services::{PORTS, Ports};
use guest::{Guest, Power, boot, serial, services};

const USAGE: &str = "\
usage: guest-init --serve [--echo PORT] [--counter PORT] [--control PORT]
Without arguments it wants to be process 1 of a virtual machine. A port of 0 means any; which, the first line of output says.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // The kernel hands process 1 the words of its command line that it does not know itself.
    if std::process::id() == 1 && arguments.first().is_none_or(|first| first != "--serve") {
        return boot::run();
    }
    let Some(ports) = read(&arguments) else {
        // Nobody is left to tell when even this cannot be written.
        let _ = std::io::stderr().write_all(USAGE.as_bytes());
        return ExitCode::from(2);
    };
    let guest = Guest::new(serial::Serial::new(std::io::stdout()), Power::Process);
    match services::start(&guest, ports) {
        Ok(ports) => {
            guest.serial.say("serve", &ports);
            loop {
                std::thread::park();
            }
        }
        Err(cause) => {
            guest.serial.complain(&cause.to_string());
            guest.serial.flush();
            ExitCode::FAILURE
        }
    }
}

fn read(arguments: &[String]) -> Option<Ports> {
    let mut ports = PORTS;
    let (serve, rest) = arguments.split_first()?;
    for pair in rest.chunks(2) {
        let [name, port] = pair else { return None };
        let port = port.parse().ok()?;
        match name.as_str() {
            "--echo" => ports.echo = port,
            "--counter" => ports.counter = port,
            "--control" => ports.control = port,
            _ => return None,
        }
    }
    (serve == "--serve").then_some(ports)
}

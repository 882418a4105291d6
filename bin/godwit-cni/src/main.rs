//! Godwit's CNI plugins in one file, as a runtime finds them: by the name that the program is called by. Under its own name it puts
//! itself onto a node.
//!
//! It owns the choice of the plugin, standard input and output, and the exit code; what a plugin does is its crate's. It
//! must never panic: a runtime reads the answer from standard output and has no other.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Names under which addresses are given: our own, and that of the plugin whose place it can take.
const IPAM: [&str; 2] = ["godwit-ipam", "whereabouts"];
/// Where a pod finds what it is given of its service account, unless the variable says another place.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const ACCOUNT_VARIABLE: &str = "GODWIT_SERVICE_ACCOUNT";

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let called = arguments.next().unwrap_or_default();
    let name = Path::new(&called).file_name().unwrap_or_default().to_string_lossy().into_owned();
    if IPAM.contains(&name.as_str()) {
        return plugin();
    }
    let arguments: Vec<OsString> = arguments.collect();
    let words: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
    match words[..] {
        ["install", plugins, settings, ref names @ ..] if known(names) => {
            let ended = installation(plugins, settings, names).and_then(|installation| installation.run());
            ended.map_or_else(|cause| fail(&format!("installing: {cause}")), |()| ExitCode::SUCCESS)
        }
        ["installed", plugins, settings, ref names @ ..] if known(names) => {
            let done =
                installation(plugins, settings, names).is_ok_and(|installation| installation.is_done());
            if done { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        _ => fail(&format!(
            "{name:?} is none of our plugins. Install this file, or a link to it, as one of {IPAM:?} where CNI plugins are; or, in a pod on \
             every node: {name} install PLUGINS SETTINGS NAME…, which does it"
        )),
    }
}

fn fail(why: &str) -> ExitCode {
    eprintln!("{why}");
    ExitCode::FAILURE
}

fn known(names: &[&str]) -> bool {
    !names.is_empty() && names.iter().all(|name| IPAM.contains(name))
}

/// What a pod puts onto its node.
fn installation(plugins: &str, settings: &str, names: &[&str]) -> std::io::Result<ipam::Installation> {
    let variable = |name: &str| std::env::var(name).map_err(std::io::Error::other);
    let host = variable("KUBERNETES_SERVICE_HOST")?;
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    Ok(ipam::Installation {
        program: std::env::current_exe()?,
        plugins: PathBuf::from(plugins),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        settings: PathBuf::from(settings),
        account: std::env::var_os(ACCOUNT_VARIABLE).unwrap_or_else(|| ACCOUNT.into()).into(),
        server: format!("https://{host}:{}", variable("KUBERNETES_SERVICE_PORT")?),
    })
}

fn plugin() -> ExitCode {
    let mut input = Vec::new();
    if let Err(cause) = std::io::stdin().lock().read_to_end(&mut input) {
        eprintln!("standard input cannot be read: {cause}");
    }
    let answer = ipam::run(|key| std::env::var(key).ok(), &input);
    // A runtime that does not listen any more has nobody to tell.
    let _ = std::io::stdout().lock().write_all(answer.text.as_bytes());
    if answer.success { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

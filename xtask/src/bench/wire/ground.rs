//! Runs a server and a client at the two ends of a wire.

use super::cases::Wire;
use crate::failure::Failure;
use crate::process;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

const VETH: &str = include_str!("veth.sh");

/// Both ends of a run, as shell commands; the server is at 10.0.0.1.
pub(super) struct Ends<'a> {
    pub(super) server: &'a str,
    /// On which the server listens when it is ready.
    pub(super) port: u16,
    pub(super) client: &'a str,
    /// Seconds after which the run ends.
    pub(super) limit: u32,
}

/// What a run came to.
pub(super) struct Ran {
    /// Whether the client ended well, in time.
    pub(super) done: bool,
    /// The JSON objects that the client printed.
    pub(super) objects: Vec<Value>,
    /// What was said on standard error.
    pub(super) said: String,
}

impl Ran {
    /// The number `metric` of the first object that has it.
    pub(super) fn number(&self, metric: &str) -> Option<f64> {
        self.objects.iter().find_map(|object| crate::metric::within(object, metric))
    }
}

/// Runs both ends over the wire; `lossy` is `towpath-lossy`.
pub(super) fn run(wire: &Wire, lossy: &Path, ends: &Ends<'_>) -> Result<Ran, Failure> {
    let mut command = match wire {
        Wire::Bridge { mtu, faults } => bridge(lossy, *mtu, faults, ends),
        Wire::Veth { mtu, mbit, queue_kb } => veth(*mtu, *mbit, *queue_kb, ends),
    };
    let line = process::line(&command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|source| Failure::Start { command: line.clone(), source })?;
    // 125: the wire could not be made, which is no figure.
    if output.status.code() == Some(125) {
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        return Err(Failure::Status { command: line, status: output.status });
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(Ran {
        done: output.status.success(),
        objects: serde_json::Deserializer::from_str(&text)
            .into_iter::<Value>()
            .map_while(Result::ok)
            .collect(),
        said: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

fn bridge(lossy: &Path, mtu: u32, faults: &str, ends: &Ends<'_>) -> Command {
    let mut command = Command::new(lossy);
    command.args(["--quiet", "--mtu", &mtu.to_string()]).args(faults.split_whitespace());
    command.args(["--for", &format!("{}s", ends.limit), "--wait-port", &ends.port.to_string()]);
    command.args(["--in-a", &format!("{{ {}; }} >&2", ends.server), "--in-b", ends.client]);
    command
}

fn veth(mtu: u32, mbit: u32, queue_kb: u32, ends: &Ends<'_>) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", VETH, "veth.sh", &mtu.to_string()]);
    // `kb` of tc is 1,024 bytes.
    command.args([format!("{mbit}mbit"), format!("{queue_kb}kb"), ends.port.to_string()]);
    command.args([&ends.limit.to_string(), ends.server, ends.client]);
    command
}

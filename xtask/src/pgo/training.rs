//! What the programs do while they are looked at.

use crate::failure::Failure;
use crate::process;
use std::fmt;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// What is built to count. The others are of the same crates.
pub(super) const PROGRAMS: &[&str] = &["tow_write_lat", "tow_write_bw"];

/// What most messages of a server are: short ones that are waited for, many at a time, and long
/// ones, with now and then a packet lost.
pub(super) const RUNS: [Run; 4] = [
    Run { program: "tow_write_lat", flags: &["-s", "64"], client: &[] },
    Run { program: "tow_write_bw", flags: &["-s", "64"], client: &[] },
    Run { program: "tow_write_bw", flags: &["-s", "65536"], client: &[] },
    Run { program: "tow_write_bw", flags: &["-s", "65536"], client: &["--loss", "0.001"] },
];

/// A pair of processes over loopback.
pub(super) struct Run {
    program: &'static str,
    /// Of both ends, and of the client only.
    flags: &'static [&'static str],
    client: &'static [&'static str],
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.program, [self.flags, self.client].concat().join(" "))
    }
}

impl Run {
    /// Lets both ends run for so long.
    pub(super) fn take(&self, programs: &Path, seconds: u32) -> Result<(), Failure> {
        let port = process::free_port()?;
        let end = || {
            let mut command = Command::new(programs.join(self.program));
            command.args(self.flags).args(["-p", &port.to_string(), "-D", &seconds.to_string()]);
            command.stdout(Stdio::null());
            command
        };
        let mut server = end();
        let line = process::line(&server);
        let started = server.spawn();
        let mut server =
            Ended(started.map_err(|source| Failure::Start { command: line.clone(), source })?);
        process::run(end().args(self.client).arg(Ipv4Addr::LOCALHOST.to_string()))?;
        let status = server.0.wait();
        let status = status.map_err(|source| Failure::Start { command: line.clone(), source })?;
        if status.success() { Ok(()) } else { Err(Failure::Status { command: line, status }) }
    }
}

/// A process that does not outlive its use.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It has mostly ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_is_of_a_program_that_is_built_to_count() {
        assert!(RUNS.iter().all(|run| PROGRAMS.contains(&run.program)));
    }

    #[test]
    fn an_end_that_fails_is_told_with_its_command_line() {
        let folder = Path::new("/nowhere");
        let failure = RUNS[0].take(folder, 1).expect_err("there is no such program");
        assert!(failure.to_string().contains("tow_write_lat -s 64"), "{failure}");
    }
}

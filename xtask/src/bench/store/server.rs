//! A chunk server with its default settings.

use crate::failure::Failure;
use crate::process;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// What a server prints first.
const READY: &str = "listening on ";

/// A server that runs; dropping it ends it.
pub(in crate::bench) struct Server {
    child: Child,
    line: String,
    /// Where it listens.
    pub(in crate::bench) address: String,
}

impl Server {
    /// Starts the server in `programs` on the store in `dir`, and waits until it listens.
    pub(in crate::bench) fn start(programs: &Path, dir: &Path) -> Result<Self, Failure> {
        let mut command = Command::new(programs.join("towpath-chunkserver"));
        command.arg("--data-dir").arg(dir).args(["--listen", "127.0.0.1:0", "--log", "warn"]);
        let line = process::line(&command);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let failed = |source| Failure::Start { command: line.clone(), source };
        let mut server =
            Self { child: child.map_err(failed)?, line: line.clone(), address: String::new() };
        let mut said = String::new();
        if let Some(stdout) = server.child.stdout.as_mut() {
            BufReader::new(stdout).read_line(&mut said).map_err(failed)?;
        }
        let address = said.trim().strip_prefix(READY);
        server.address =
            address.ok_or(Failure::NotReady { command: line, said: said.clone() })?.to_owned();
        Ok(server)
    }

    /// Its process.
    pub(in crate::bench) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it in order.
    pub(in crate::bench) fn stop(mut self) -> Result<(), Failure> {
        self.signal(Signal::TERM);
        let failed = |source| Failure::Start { command: self.line.clone(), source };
        let status = self.child.wait().map_err(failed)?;
        match status.success() {
            true => Ok(()),
            false => Err(Failure::Status { command: self.line.clone(), status }),
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            // It may have ended just now.
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal(Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

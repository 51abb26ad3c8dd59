//! fio on a file and on nbdkit.

use super::case::Load;
use super::seen::Seen;
use crate::failure::Failure;
use crate::process;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// fio has to be there.
pub(super) fn check() -> Result<(), Failure> {
    if says("fio", "--version").is_some() { Ok(()) } else { Err(Failure::NoFio) }
}

/// Whether nbdkit is there, and fio has an engine for it.
pub(in crate::bench) fn has_nbd() -> bool {
    let engines = says("fio", "--enghelp").unwrap_or_default();
    engines.lines().any(|line| line.trim() == "nbd") && says("nbdkit", "--version").is_some()
}

fn says(program: &str, flag: &str) -> Option<String> {
    let output = Command::new(program).arg(flag).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A file that fio works on.
pub(super) struct File {
    path: PathBuf,
    mib: u32,
}

impl File {
    /// Makes it: each byte is written, so that no request allocates.
    pub(super) fn make(path: PathBuf, mib: u32) -> Result<Self, Failure> {
        let file = Self { path, mib };
        let mut command = Command::new("fio");
        command.args(["--name=layout", "--rw=write", "--bs=1m", "--direct=1", "--end_fsync=1"]);
        process::quiet_output(command.args(file.flags()).arg("--output-format=json"))?;
        Ok(file)
    }

    /// Does the requests for so many seconds.
    pub(super) fn load(&self, load: Load, seconds: u32) -> Result<Seen, Failure> {
        let mut command = self::load(load, seconds);
        command.args(["--ioengine=io_uring", "--direct=1"]).args(self.flags());
        if load.fio_dsync {
            command.arg("--sync=dsync");
        }
        seen(&mut command, load)
    }

    fn flags(&self) -> [String; 2] {
        [format!("--filename={}", self.path.display()), format!("--size={}m", self.mib)]
    }
}

/// nbdkit with a disk in memory; dropping it ends it.
pub(super) struct Nbd {
    child: Child,
    socket: PathBuf,
}

impl Nbd {
    /// Starts it with a socket in `dir`.
    pub(super) fn start(dir: &Path, mib: u32) -> Result<Self, Failure> {
        let socket = dir.join("nbd");
        let mut command = Command::new("nbdkit");
        command.args(["--foreground", "--exit-with-parent", "--unix"]).arg(&socket);
        command.args(["memory", &format!("{mib}M")]);
        let line = process::line(&command);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let failed = |source| Failure::Start { command: line.clone(), source };
        let mut nbd = Self { child: child.map_err(failed)?, socket };
        while !nbd.socket.exists() {
            if let Some(status) = nbd.child.try_wait().map_err(failed)? {
                return Err(Failure::Status { command: line, status });
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        Ok(nbd)
    }

    /// Does the requests for so many seconds.
    pub(super) fn load(&self, load: Load, seconds: u32) -> Result<Seen, Failure> {
        let mut command = self::load(load, seconds);
        command.args(["--ioengine=nbd", "--size=100%"]);
        command.arg(format!("--uri=nbd+unix:///?socket={}", self.socket.display()));
        seen(&mut command, load)
    }
}

impl Drop for Nbd {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.socket);
    }
}

fn load(load: Load, seconds: u32) -> Command {
    let mut command = Command::new("fio");
    command.args(["--name=load", "--time_based", "--output-format=json"]);
    // Latency from the submission on, as `towpath bench store` counts it.
    command.args(["--lat_percentiles=1", "--clat_percentiles=0"]);
    command.arg(format!("--rw={}", load.fio_rw)).arg(format!("--bs={}", load.bs));
    command.arg(format!("--iodepth={}", load.depth)).arg(format!("--runtime={seconds}"));
    command
}

fn seen(command: &mut Command, load: Load) -> Result<Seen, Failure> {
    let (line, output) = (process::line(command), process::quiet_output(command)?);
    Seen::of(&line, &output, &["jobs", "0", direction(load)])
}

/// The direction of a load in JSON.
pub(super) fn direction(load: Load) -> &'static str {
    if load.reads() { "read" } else { "write" }
}

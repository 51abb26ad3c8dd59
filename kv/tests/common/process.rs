//! The program in a process of its own.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Command, Stdio};

/// `towpath-kv`, which is killed with this.
pub struct Process {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// What it said when it was ready.
    pub ready: serde_json::Value,
}

impl Process {
    /// Starts it with `--json` and these flags, and waits until it is ready.
    pub fn start(flags: &[&str]) -> Self {
        Self::of(Command::new(env!("CARGO_BIN_EXE_towpath-kv")).arg("--json").args(flags))
    }

    /// What `command` starts, which is to be that with `--json`.
    pub fn of(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it was built");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("text");
        let ready = serde_json::from_str(&line).expect("an object");
        Self { child, stdout, ready }
    }

    /// An address of the ready line.
    pub fn address(&self, field: &str) -> String {
        self.ready[field].as_str().expect("an address").to_owned()
    }

    /// Tells it to stop; its exit code, and what it said at the end.
    pub fn stop(mut self) -> (Option<i32>, serde_json::Value) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        let mut text = String::new();
        self.stdout.read_to_string(&mut text).expect("text");
        let code = self.child.wait().expect("it ends").code();
        (code, serde_json::from_str(&text).expect("an object"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

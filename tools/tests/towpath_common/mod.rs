//! The program, and chunk servers for it.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use serde_json::Value;
use tempfile::TempDir;
use towpath_base::Prng;
use towpath_chunkserver::daemon::{self, DaemonConfig, DaemonError, Served, StopFlag};
use towpath_chunkserver::service::AllowedPeers;

/// The program, to be given arguments.
pub fn towpath<'a>(args: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towpath"));
    command.args(args).env_remove("TOWPATH_SERVER").stdin(Stdio::null());
    command
}

/// Runs it to its end; it must succeed.
pub fn succeeds(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    assert_eq!(output.status.code(), Some(0), "{command:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Runs it to its end; it must succeed with one line of JSON.
pub fn json(command: &mut Command) -> Value {
    let said = succeeds(command);
    assert_eq!(said.trim_end().lines().count(), 1, "one object on one line: {said}");
    serde_json::from_str(&said).expect("a JSON object")
}

/// Runs it to its end; it must fail with this code and say all of these words. Returns its stdout.
pub fn fails(command: &mut Command, code: i32, words: &[&str]) -> String {
    let output = command.output().expect("it starts");
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{command:?}: {said}");
    for word in words {
        assert!(said.contains(word), "{command:?}: {word:?} is not in {said:?}");
    }
    String::from_utf8(output.stdout).expect("UTF-8")
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Bytes that tell where they belong.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Prng::new(seed).fill(&mut bytes);
    bytes
}

/// A directory, and the program run in it against one server.
pub struct Bench {
    dir: TempDir,
    pub server: String,
}

impl Bench {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("room"), server: String::new() }
    }

    pub fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn file(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).expect("written");
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).expect("there")
    }

    pub fn run(&self, args: &[&str]) -> Command {
        let mut command = towpath(args.iter().copied());
        command.current_dir(self.dir.path()).env("TOWPATH_SERVER", &self.server);
        command
    }
}

/// A chunk server in a thread.
pub struct Daemon {
    pub addr: SocketAddr,
    stop: StopFlag,
    thread: Option<JoinHandle<Result<Served, DaemonError>>>,
}

impl Daemon {
    pub fn start(dir: &Path) -> Self {
        Self::with(DaemonConfig::default().with(|config| {
            config.store.data_dir = dir.into();
            config.network.links_max = 4;
        }))
    }

    pub fn with(config: DaemonConfig) -> Self {
        Self::on(config.with(|config| config.network.listen = ([127, 0, 0, 1], 0).into()))
    }

    /// At the address that the settings name.
    pub fn on(config: DaemonConfig) -> Self {
        let config = config.with(|config| {
            config.store.log_bytes = 4 << 20;
            config.store.capacity_bytes = config.store.capacity_bytes.min(1 << 30);
            config.network.links_max = config.network.links_max.min(16);
            config.service.peers = AllowedPeers::any();
        });
        let stop = StopFlag::new();
        let (sender, ready) = channel();
        let thread = std::thread::spawn({
            let stop = stop.clone();
            move || {
                daemon::run(&config, &stop, daemon::udp_devices, |ready| {
                    sender.send(ready.listening).expect("somebody waits for it");
                    Ok(())
                })
            }
        });
        match ready.recv() {
            Ok(addr) => Self { addr, stop, thread: Some(thread) },
            Err(_) => panic!("{:?}", thread.join().expect("no panic").map(drop)),
        }
    }

    pub fn stop(mut self) {
        self.stop.stop();
        let thread = self.thread.take().expect("it is stopped once");
        thread.join().expect("no panic").expect("a clean stop");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

/// A chunk server in a process, which dies with this one.
pub struct Process {
    pub child: Child,
    pub addr: String,
}

impl Process {
    pub fn start(dir: &Path) -> Self {
        Self::start_on(dir, 0)
    }

    /// On a port of loopback.
    pub fn start_on(dir: &Path, port: u16) -> Self {
        let args = ["demo-server", "--loss=0", "--seed=1", "--mtu=4096", "--dir"];
        let mut child = towpath(args)
            .arg(dir)
            .arg(format!("--port={port}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        let stdout = child.stdout.as_mut().expect("it is a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("it says when it is ready");
        let ready: Value = serde_json::from_str(&line).expect("a JSON object");
        let addr = ready["listening"].as_str().expect("an address").to_owned();
        Self { child, addr }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! A second process started from this program, which never outlives it.
//!
//! What holds the two together is the child's stdin, a pipe that only this process writes to: when
//! it closes, whether on purpose or because this process was killed, the child sends itself
//! SIGTERM ([`end_with_parent`]). So no child is left behind, not even by `kill -9`, and the child
//! can tidy up after a parent that could not: one that means it says so before it closes the pipe.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

/// Lines of the child's stderr that are kept for an error message.
const STDERR_LINES: usize = 40;

/// Lines of stdout that may wait to be read: a child says when it is ready and how it ended.
const STDOUT_LINES: usize = 16;

/// What a parent says before it closes the pipe on purpose.
const STOP: &[u8] = b"stop\n";

/// How often a child that was asked to end is looked after.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// What went wrong with the second process; the texts end with what it wrote to stderr.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChildError {
    /// It could not be started.
    #[error("cannot start a second process; raise the limit of processes (`ulimit -u`)")]
    Spawn(#[source] io::Error),
    /// It ended before it said what was due.
    #[error("the {name} process ended early ({status}){}", said(.stderr))]
    Ended {
        /// What it is.
        name: &'static str,
        /// How it ended.
        status: ExitStatus,
        /// What it last wrote to stderr.
        stderr: String,
    },
    /// It did not say in time what was due.
    #[error("the {name} process said nothing for {} s{}", .after.as_secs(), said(.stderr))]
    Silent {
        /// What it is.
        name: &'static str,
        /// How long was waited.
        after: Duration,
        /// What it last wrote to stderr.
        stderr: String,
    },
    /// It said something else.
    #[error("the {name} process said something unexpected{}", said(.stderr))]
    Said {
        /// What it is.
        name: &'static str,
        /// What it last wrote to stderr.
        stderr: String,
        /// Why it was not understood.
        #[source]
        source: serde_json::Error,
    },
    /// The system would not say how it is.
    #[error("cannot wait for the second process")]
    Wait(#[source] io::Error),
}

fn said(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!("; it wrote:\n{stderr}") }
}

/// A running second process. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Spawned {
    name: &'static str,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    stderr: Option<JoinHandle<VecDeque<String>>>,
}

impl Spawned {
    /// Starts this very program with other arguments.
    ///
    /// # Errors
    /// [`ChildError::Spawn`].
    pub(crate) fn start<A: AsRef<OsStr>>(
        name: &'static str,
        args: impl IntoIterator<Item = A>,
    ) -> Result<Self, ChildError> {
        let program = std::env::current_exe().map_err(ChildError::Spawn)?;
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(ChildError::Spawn)?;
        let stdin = child.stdin.take();
        let (sender, lines) = sync_channel(STDOUT_LINES);
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        break;
                    }
                }
            });
        }
        let stderr = child.stderr.take().map(|stderr| {
            std::thread::spawn(move || {
                let mut kept = VecDeque::new();
                for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                    if kept.len() == STDERR_LINES {
                        kept.pop_front();
                    }
                    kept.push_back(line);
                }
                kept
            })
        });
        Ok(Self { name, child, stdin, lines, stderr })
    }

    /// Its number.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its next line on stdout, a JSON object.
    ///
    /// # Errors
    /// [`ChildError`]; the process is not running any more then.
    pub(crate) fn next<T: DeserializeOwned>(&mut self, timeout: Duration) -> Result<T, ChildError> {
        match self.poll(timeout)? {
            Some(words) => Ok(words),
            None => {
                let stderr = self.end();
                Err(ChildError::Silent { name: self.name, after: timeout, stderr })
            }
        }
    }

    /// Its next line on stdout, a JSON object; none within `timeout`.
    ///
    /// # Errors
    /// [`ChildError`]; the process is not running any more then.
    pub(crate) fn poll<T: DeserializeOwned>(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<T>, ChildError> {
        match self.lines.recv_timeout(timeout) {
            Ok(line) => serde_json::from_str(&line).map(Some).map_err(|source| {
                let stderr = self.end();
                ChildError::Said { name: self.name, stderr, source }
            }),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                // Its stdout is closed, so it has ended or is about to.
                let status = self.await_end(timeout)?;
                let stderr = self.end();
                Err(match status {
                    Some(status) => ChildError::Ended { name: self.name, status, stderr },
                    None => ChildError::Silent { name: self.name, after: timeout, stderr },
                })
            }
        }
    }

    /// Asks it to end (SIGTERM), takes its last words, and waits until it has ended well.
    ///
    /// # Errors
    /// [`ChildError`]; the process is not running any more then.
    pub(crate) fn stop<T: DeserializeOwned>(mut self, timeout: Duration) -> Result<T, ChildError> {
        if let Some(mut stdin) = self.stdin.take() {
            // A child that does not read any more has ended, which `next` finds out.
            let _ = stdin.write_all(STOP);
        }
        let words = self.next(timeout)?;
        match self.await_end(timeout)? {
            Some(status) if status.success() => Ok(words),
            Some(status) => {
                let stderr = self.end();
                Err(ChildError::Ended { name: self.name, status, stderr })
            }
            None => {
                let stderr = self.end();
                Err(ChildError::Silent { name: self.name, after: timeout, stderr })
            }
        }
    }

    /// Whether it has ended, and how.
    ///
    /// # Errors
    /// [`ChildError::Ended`] when it has, with what it wrote; [`ChildError::Wait`].
    pub(crate) fn check(&mut self) -> Result<(), ChildError> {
        match self.child.try_wait().map_err(ChildError::Wait)? {
            None => Ok(()),
            Some(status) => {
                let stderr = self.end();
                Err(ChildError::Ended { name: self.name, status, stderr })
            }
        }
    }

    fn await_end(&mut self, timeout: Duration) -> Result<Option<ExitStatus>, ChildError> {
        let began = Instant::now();
        loop {
            let status = self.child.try_wait().map_err(ChildError::Wait)?;
            if status.is_some() || began.elapsed() >= timeout {
                return Ok(status);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Ends it if it runs, and returns what it last wrote to stderr.
    fn end(&mut self) -> String {
        drop(self.stdin.take());
        // An error says that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let kept = self.stderr.take().and_then(|reader| reader.join().ok()).unwrap_or_default();
        kept.into_iter().map(|line| format!("  {line}\n")).collect()
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        self.end();
    }
}

/// In the child: whether the parent went away without a word.
#[derive(Clone, Debug, Default)]
pub(crate) struct Orphaned(Arc<AtomicBool>);

impl Orphaned {
    /// Whether it did; known once SIGTERM has come.
    pub(crate) fn is_so(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// In the child: sends this process SIGTERM when its stdin closes.
pub(crate) fn end_with_parent() -> Orphaned {
    let orphaned = Orphaned::default();
    let Orphaned(flag) = orphaned.clone();
    std::thread::spawn(move || {
        let mut said = Vec::new();
        // An error is as good as an end: nobody is there.
        let _ = io::stdin().take(STOP.len() as u64).read_to_end(&mut said);
        flag.store(said != STOP, Ordering::Release);
        // It fails only for signals that do not exist.
        let _ = signal_hook::low_level::raise(signal_hook::consts::SIGTERM);
    });
    orphaned
}

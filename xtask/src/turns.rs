//! Two commands at once, of which one goes on at a time: for what a machine does differently from
//! one second to the next, and what takes longer than that to start and to end.

use crate::failure::Failure;
use crate::process;
use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{io, mem};

/// What each may do undisturbed at first, so that its processes have found each other.
const START: Duration = Duration::from_millis(500);

/// For how long each goes on at a time.
pub(crate) struct Turns {
    slice: Duration,
    interrupted: Arc<AtomicBool>,
}

impl Turns {
    /// From now on an interrupt ends both commands, and then us.
    pub(crate) fn of(slice: Duration) -> Self {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // Where it cannot be taken it ends us as ever, and they stay behind.
            let _ = signal_hook::flag::register(signal, Arc::clone(&interrupted));
        }
        Self { slice, interrupted }
    }

    /// Runs both, each for a slice while the other stands still, until both have ended; returns
    /// what they wrote to their standard outputs.
    pub(crate) fn outputs(&self, one: Command, other: Command) -> Result<[String; 2], Failure> {
        let mut sides = [one, other].map(Side::of);
        for side in &mut sides {
            side.start()?;
            thread::sleep(START);
            side.signal(Signal::STOP);
        }
        while sides.iter().any(Side::is_running) {
            for side in sides.iter().filter(|side| side.is_running()) {
                side.signal(Signal::CONT);
                thread::sleep(self.slice);
                side.signal(Signal::STOP);
            }
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(Failure::Interrupted);
            }
        }
        let [one, other] = sides;
        Ok([one.end()?, other.end()?])
    }
}

/// A command with all processes that it starts.
struct Side {
    command: Command,
    line: String,
    group: Option<Pid>,
    output: Option<JoinHandle<io::Result<Output>>>,
}

impl Side {
    fn of(mut command: Command) -> Self {
        let line = process::line(&command);
        command.process_group(0).stdout(Stdio::piped());
        Self { command, line, group: None, output: None }
    }

    fn start(&mut self) -> Result<(), Failure> {
        let failed = |source| Failure::Start { command: self.line.clone(), source };
        let child = self.command.spawn().map_err(failed)?;
        self.group = Pid::from_raw(child.id() as i32);
        self.output = Some(thread::spawn(|| child.wait_with_output()));
        Ok(())
    }

    fn is_running(&self) -> bool {
        self.output.as_ref().is_some_and(|output| !output.is_finished())
    }

    /// To all its processes; they may just have ended.
    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group.filter(|_| self.is_running()) {
            let _ = kill_process_group(group, signal);
        }
    }

    fn end(mut self) -> Result<String, Failure> {
        let line = mem::take(&mut self.line);
        let Some(output) = self.output.take() else { return Ok(String::new()) };
        let output = output.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
        let output = output.map_err(|source| Failure::Start { command: line.clone(), source })?;
        if !output.status.success() {
            return Err(Failure::Status { command: line, status: output.status });
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for Side {
    /// Where the other has failed, or we are to stop, nothing of it stays behind, least of all
    /// stopped: it is not in our process group, so that no signal of a terminal reaches it.
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::shell;

    #[test]
    fn both_end_and_what_they_wrote_is_theirs_however_often_they_were_stopped() {
        let turns = Turns::of(Duration::from_millis(5));
        let (one, other) = (shell("sleep 0.6; echo one"), shell("echo other; sleep 0.7"));
        let outputs = turns.outputs(one, other).unwrap();
        assert_eq!(outputs, ["one\n", "other\n"]);
    }

    #[test]
    fn an_interrupt_ends_both_and_says_so() {
        let turns = Turns::of(Duration::from_millis(5));
        turns.interrupted.store(true, Ordering::Relaxed);
        let failure = turns.outputs(shell("sleep 600"), shell("sleep 600")).unwrap_err();
        assert!(matches!(failure, Failure::Interrupted));
    }

    #[test]
    fn one_that_fails_is_named_and_takes_the_other_with_it() {
        let turns = Turns::of(Duration::from_millis(5));
        let failure = turns.outputs(shell("exit 3"), shell("true")).unwrap_err();
        assert!(failure.to_string().contains("exit 3"), "{failure}");
        let mut stays = Side::of(shell("sleep 60"));
        stays.start().unwrap();
        let output = stays.output.take().unwrap();
        // As if it ran on: dropping it has to end it.
        let group = stays.group.unwrap();
        stays.output = Some(thread::spawn(move || output.join().unwrap()));
        drop(stays);
        let gone = || rustix::process::test_kill_process_group(group).is_err();
        while !gone() {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

//! Commands: how they are started, and how all that they left is ended.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, getpid, getppid, kill_process, set_parent_process_death_signal,
};
use towpath_status::say;

/// The hidden flag by which this program starts a command for itself.
pub(super) const EXEC_FLAG: &str = "--exec-for";

/// How long processes have to end after SIGTERM, and how long the kernel has after SIGKILL.
const GRACE: Duration = Duration::from_secs(5);

/// How often it is looked at what has ended.
pub(super) const LOOK: Duration = Duration::from_millis(10);

const EXIT_CANNOT_RUN: u8 = 126;
const EXIT_NOT_FOUND: u8 = 127;

/// A command that dies with the thread that starts it.
pub(super) fn command(words: &[OsString]) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg(EXEC_FLAG).arg(getpid().as_raw_nonzero().to_string()).args(words);
    command
}

/// A shell command, with nothing on its stdin.
pub(super) fn shell(text: &str) -> Command {
    let mut command = command(&["/bin/sh".into(), "-c".into(), text.into()]);
    command.stdin(Stdio::null());
    command
}

/// What this program is in place of a command, until it becomes the command: `args` are the
/// process that started it and the command's words. The kernel ends the command should that
/// process end without ending it.
pub(super) fn exec(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let parent = args.next().and_then(|text| text.to_str()?.parse().ok());
    let (Some(parent), Some(program)) = (parent, args.next()) else {
        say(format_args!("towpath-lossy: {EXEC_FLAG} is for this program itself; see --help"));
        return ExitCode::from(2);
    };
    let told = set_parent_process_death_signal(Some(Signal::KILL));
    let now = getppid().map(|pid| pid.as_raw_nonzero().get());
    if told.is_err() || now != Some(parent) {
        // It ended before we could ask to be told.
        return ExitCode::from(EXIT_CANNOT_RUN);
    }
    let error = Command::new(&program).args(args).exec();
    say(format_args!("towpath-lossy: {} cannot be run: {error}", program.display()));
    let is_missing = error.kind() == io::ErrorKind::NotFound;
    ExitCode::from(if is_missing { EXIT_NOT_FOUND } else { EXIT_CANNOT_RUN })
}

/// As shells have it: the code, or 128 and the signal.
pub(super) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(255);
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// What has to end: the children, and whatever else is in the namespaces.
#[derive(Debug, Default)]
pub(super) struct Remains {
    pub(super) children: Vec<Child>,
    pub(super) namespaces: Vec<PathBuf>,
}

impl Remains {
    /// Ends all: asks first, then does not ask.
    pub(super) fn end(&mut self) {
        for signal in [Signal::TERM, Signal::KILL] {
            self.alive().into_iter().for_each(|pid| {
                // It may have ended by itself.
                let _ = kill_process(pid, signal);
            });
            let until = Instant::now() + GRACE;
            while !self.alive().is_empty() && Instant::now() < until {
                thread::sleep(LOOK);
            }
        }
    }

    fn alive(&mut self) -> Vec<Pid> {
        self.children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        let mut pids: Vec<Pid> = self.children.iter().map(Pid::from_child).collect();
        if !self.namespaces.is_empty() {
            pids.extend(members(&self.namespaces));
        }
        pids
    }
}

/// The processes in these network namespaces.
fn members(namespaces: &[PathBuf]) -> Vec<Pid> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_in = |pid: &i32| {
        let namespace = fs::read_link(format!("/proc/{pid}/ns/net"));
        namespace.is_ok_and(|namespace| namespaces.contains(&namespace))
    };
    pids.filter(is_in).filter_map(Pid::from_raw).filter(|pid| *pid != getpid()).collect()
}

//! One run: the wire is made, commands run beside it, all is ended, and what happened is told.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::io::{self, IsTerminal as _, Write as _};
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use towpath_status::say;

use super::args::{LossyArgs, MTU_DEFAULT};
use super::bridge::{Bridge, Tally};
use super::children::{self, LOOK, Remains};
use super::error::LossyError;
use super::joined::Joined;
use super::privilege;
use super::report::{Direction, Exits, Report, progress};
use super::side::{Side, SideConfig};
use crate::cli::interrupt::{EXIT_INTERRUPTED, Interrupt};

/// Ethernet addresses of the two sides, locally administered.
const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 0xa], [2, 0, 0, 0, 0, 0xb]];

/// How long `--wait-port` waits.
const WAIT_PORT: Duration = Duration::from_secs(30);

/// How often the line about progress is written again.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// The exit code where the time is over, and where a server failed beside a command that did not.
const EXIT_TIME: u8 = 124;
const EXIT_SERVER: u8 = 1;

/// Runs what `args` says; returns the exit code.
pub(super) fn run(args: &LossyArgs) -> Result<u8, LossyError> {
    match &args.interfaces {
        Some(names) => run_joined(args, names),
        None => run_namespaces(args),
    }
}

fn run_namespaces(args: &LossyArgs) -> Result<u8, LossyError> {
    // Before there is a second thread.
    let is_user = privilege::acquire()?;
    let interrupt = Interrupt::on_signals().map_err(LossyError::Signals)?;
    let plans = args.plans.clone().with_default_mtu(MTU_DEFAULT);
    let mtu = args.interface_mtu.unwrap_or(plans.mtu().unwrap_or(MTU_DEFAULT) as u32);
    let sides = [Side::open(side_config(0, mtu))?, Side::open(side_config(1, mtu))?];
    let [a, b] = &sides;
    let bridge = Bridge::start(&a.tap, &b.tap, &plans, args.seed)?;
    let mut run = Run::new(args, &interrupt, bridge);
    let outcome = run.commands(a, b, is_user);
    let namespaces = sides.iter().map(|side| side.namespace.clone()).collect();
    let ending = run.finish(outcome, namespaces, || Ok([a.unread()?, b.unread()?]));
    drop(sides);
    ending
}

fn run_joined(args: &LossyArgs, names: &[String]) -> Result<u8, LossyError> {
    let interrupt = Interrupt::on_signals().map_err(LossyError::Signals)?;
    let [a, b] = [Joined::open(&names[0])?, Joined::open(&names[1])?];
    let bridge = Bridge::start(&a.tap, &b.tap, &args.plans, args.seed)?;
    let mut run = Run::new(args, &interrupt, bridge);
    let outcome = run.command_beside();
    run.finish(outcome, Vec::new(), || Ok([a.unread(), b.unread()]))
}

fn side_config(at: usize, mtu: u32) -> SideConfig {
    let v4 = |at: usize| IpAddr::V4(Ipv4Addr::new(10, 0, 0, at as u8 + 1));
    let v6 = |at: usize| IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, at as u16 + 1));
    let peer = 1 - at;
    SideConfig {
        name: ["a", "b"][at],
        mac: MACS[at],
        addresses: [(v4(at), 24), (v6(at), 64)],
        peer_mac: MACS[peer],
        peer_addresses: [v4(peer), v6(peer)],
        mtu,
    }
}

/// Why the commands are no longer waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// The command that the run is for ended.
    Ended(ExitStatus),
    Interrupted,
    TimeOver,
    /// A direction of the wire ended by itself, which it says when it is stopped.
    WireFailed,
}

struct Run<'a> {
    args: &'a LossyArgs,
    interrupt: &'a Interrupt,
    bridge: Bridge,
    began: Instant,
    /// The server in a.
    a: Option<Child>,
    /// The command that the run is for.
    main: Option<Child>,
    a_status: Option<ExitStatus>,
    line: Line,
}

impl<'a> Run<'a> {
    fn new(args: &'a LossyArgs, interrupt: &'a Interrupt, bridge: Bridge) -> Self {
        let line = Line::new(args);
        let began = Instant::now();
        Self { args, interrupt, bridge, began, a: None, main: None, a_status: None, line }
    }

    /// Starts the commands in the namespaces and waits until the run is over.
    fn commands(&mut self, a: &Side, b: &Side, is_user: bool) -> Result<Ending, LossyError> {
        if let Some(text) = &self.args.in_a {
            self.a = Some(a.spawn(children::shell(text))?);
        }
        if let Some(port) = self.args.wait_port
            && let Some(ending) = self.wait_port(a, port)?
        {
            return Ok(ending);
        }
        if let Some(text) = &self.args.in_b {
            self.main = Some(b.spawn(children::shell(text))?);
        } else if !self.args.command.is_empty() {
            self.main = Some(b.spawn(children::command(&self.args.command))?);
        } else if self.a.is_none() && !self.args.quiet {
            tell_how_to_enter([a, b], is_user);
        }
        self.wait()
    }

    /// Starts the command beside interfaces that there are, and waits until the run is over.
    fn command_beside(&mut self) -> Result<Ending, LossyError> {
        if !self.args.command.is_empty() {
            let started = children::command(&self.args.command).spawn();
            let failed = |source| LossyError::Spawn { side: "this namespace", source };
            self.main = Some(started.map_err(failed)?);
        } else if !self.args.quiet {
            say(format_args!("The wire is there until Ctrl-C."));
        }
        self.wait()
    }

    /// Waits for a listener in a.
    fn wait_port(&mut self, a: &Side, port: u16) -> Result<Option<Ending>, LossyError> {
        let until = Instant::now() + WAIT_PORT;
        while !a.listens(port)? {
            if let Some(ending) = self.ending() {
                return Ok(Some(ending));
            }
            if let Some(status) = self.a_status {
                return Err(LossyError::ServerEnded { port, status });
            }
            if Instant::now() >= until {
                return Err(LossyError::NobodyListens { port, seconds: WAIT_PORT.as_secs() });
            }
            thread::sleep(LOOK);
        }
        Ok(None)
    }

    fn wait(&mut self) -> Result<Ending, LossyError> {
        loop {
            if let Some(child) = &mut self.main {
                let side = if self.args.interfaces.is_some() { "this namespace" } else { "b" };
                let failed = |source| LossyError::Spawn { side, source };
                if let Some(status) = child.try_wait().map_err(failed)? {
                    return Ok(Ending::Ended(status));
                }
            }
            if let Some(ending) = self.ending() {
                return Ok(ending);
            }
            // A run without another command is for the one in a.
            if let (Some(status), None) = (self.a_status, &self.main) {
                return Ok(Ending::Ended(status));
            }
            self.line.show(&self.bridge);
            thread::sleep(LOOK);
        }
    }

    /// Whether the run is over for another reason than the command's end. Looks after the server.
    fn ending(&mut self) -> Option<Ending> {
        if let Some(a) = &mut self.a
            && self.a_status.is_none()
        {
            self.a_status = a.try_wait().ok().flatten();
            if let Some(status) = self.a_status.filter(|status| !status.success()) {
                say(format_args!("towpath-lossy: the command in a ended: {status}"));
            }
        }
        if self.interrupt.check().is_err() {
            return Some(Ending::Interrupted);
        }
        if self.args.limit.is_some_and(|limit| self.began.elapsed() >= limit) {
            return Some(Ending::TimeOver);
        }
        self.bridge.has_failed().then_some(Ending::WireFailed)
    }

    /// Ends all processes, cuts the wire, and tells what happened.
    fn finish(
        mut self,
        outcome: Result<Ending, LossyError>,
        namespaces: Vec<std::path::PathBuf>,
        unread: impl FnOnce() -> Result<[u64; 2], LossyError>,
    ) -> Result<u8, LossyError> {
        let has_main = self.main.is_some() || self.a.is_some();
        let is_for_b = self.main.is_some();
        let children = self.a.take().into_iter().chain(self.main.take()).collect();
        Remains { children, namespaces }.end();
        self.line.clear();
        let seconds = self.bridge.age().as_secs_f64();
        let tallies = self.bridge.stop()?;
        let ending = outcome?;
        let unread = unread()?;
        let mut exits = Exits { a: self.a_status.map(children::exit_code), b: None };
        if let (Ending::Ended(status), true) = (ending, is_for_b) {
            exits.b = Some(children::exit_code(status));
        }
        let report = Report {
            seed: self.args.seed,
            seconds,
            ab: Direction::of(&tallies[0], unread[0]),
            ba: Direction::of(&tallies[1], unread[1]),
            exit: exits,
        };
        if !self.args.quiet {
            say(format_args!("{}", report.table().trim_end()));
        }
        if let Some(file) = &self.args.json {
            report.write_json(file.as_deref())?;
        }
        Ok(match ending {
            Ending::Ended(status) => match (children::exit_code(status), exits.a) {
                (0, Some(code)) if code != 0 => EXIT_SERVER,
                (code, _) => code,
            },
            Ending::TimeOver if has_main => EXIT_TIME,
            Ending::TimeOver => 0,
            Ending::Interrupted => EXIT_INTERRUPTED,
            Ending::WireFailed => LossyError::Thread.exit_code(),
        })
    }
}

/// Nobody asked for a command: whoever wants to can come in.
fn tell_how_to_enter(sides: [&Side; 2], is_user: bool) {
    let user = if is_user { "--preserve-credentials --user " } else { "" };
    say(format_args!("The wire is there until Ctrl-C. To run a command on a side:"));
    for side in sides {
        let thread = side.thread.as_raw_nonzero();
        say(format_args!(
            "  {}:  nsenter {user}--mount --net --target {thread} COMMAND",
            side.name
        ));
    }
}

/// The line about progress.
struct Line {
    is_wanted: bool,
    is_shown: bool,
    at: Instant,
    before: [Tally; 2],
}

impl Line {
    /// On a terminal, unless a command may have the terminal for itself.
    fn new(args: &LossyArgs) -> Self {
        let is_taken = !args.command.is_empty() && io::stdin().is_terminal();
        let is_wanted = !args.quiet && !is_taken && io::stderr().is_terminal();
        Self { is_wanted, is_shown: false, at: Instant::now(), before: Default::default() }
    }

    fn show(&mut self, bridge: &Bridge) {
        let span = self.at.elapsed();
        if !self.is_wanted || span < PROGRESS_EVERY {
            return;
        }
        let tallies = bridge.tallies();
        let text = progress(&tallies, &self.before, span.into());
        // A terminal that is gone shows nothing.
        let _ = write!(io::stderr(), "\r\x1b[K{text}");
        (self.is_shown, self.at, self.before) = (true, Instant::now(), tallies);
    }

    fn clear(&mut self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

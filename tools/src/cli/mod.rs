//! The `towpath` command.
//!
//! | file or folder | contents |
//! |---|---|
//! | `args` | the subcommands and their flags |
//! | `demo` | a file there and back over a lossy network, beside kernel TCP |
//! | `sim` | studies in virtual time |
//! | `bench` | measurements on this machine |
//! | `study` | what both are asked with, and shown as: tables, JSON and drawings |
//! | `spread` | files over several servers, by their layouts |
//! | `session` | a client of one chunk server |
//! | `chunk` | put, get, ls, stat, rm, scrub and info against a running chunk server |
//! | `cap` | keys and capabilities: who may do what |
//! | `secure` | keys of hosts, and whom a host trusts |
//! | `qos` | who has reserved what of a server, and who gets it |
//! | `status` | what a running process on this machine tells of its links |
//! | `error` | what can go wrong, what to do next, and exit codes |
//! | `bytes`, `progress`, `interrupt`, `source` | sizes, bars, Ctrl-C, where bytes come from |

mod args;
mod bench;
pub(crate) mod bytes;
mod cap;
mod chunk;
mod demo;
mod error;
pub(crate) mod interrupt;
pub(crate) mod progress;
mod qos;
mod secure;
mod session;
mod sim;
mod source;
mod spread;
mod status;
mod study;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::ops::ControlFlow;
use std::process::ExitCode;

use clap::Parser as _;
use serde::Serialize;
use towpath_fastpath::ChunkId;
use towpath_status::say;

#[cfg(feature = "baseline")]
use crate::bench::fastpath;
use crate::bench::{classes, haechi, kv};
use args::{Args, ChunkArgs, Command, GetArgs, ServerArgs, Target};
pub(crate) use error::CliError;
use interrupt::Interrupt;

/// Runs the command of `args`, whose first is the program's name, and says how it went.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let command = match Args::try_parse_from(args) {
        Ok(args) => args.command,
        Err(error) => {
            // It is also how help is printed, with colours where a terminal has them.
            let _ = error.print();
            let code = if error.use_stderr() { CliError::USAGE } else { 0 };
            return ExitCode::from(code);
        }
    };
    match run(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A reader that went away, like `head`, is not worth a word.
            if !error.is_broken_pipe() {
                say(format_args!("towpath: {}", error.chain()));
            }
            ExitCode::from(error.exit_code())
        }
    }
}

/// Runs a hidden command: each is a process of its own, with signal handlers of its own.
fn run_as_other_process(command: Command) -> ControlFlow<Result<(), CliError>, Command> {
    ControlFlow::Break(match command {
        #[cfg(feature = "baseline")]
        Command::BenchFastpathClient(args) => fastpath::run_client(&args).map_err(CliError::from),
        #[cfg(feature = "baseline")]
        Command::BenchFastpathServer(args) => fastpath::serve(&args).map_err(CliError::from),
        Command::BenchClass(args) => classes::run_class(&args).map_err(CliError::BenchClass),
        Command::BenchKvClient(args) => kv::run_client(&args).map_err(CliError::BenchKv),
        Command::BenchKvServer(args) => kv::serve(&args).map_err(CliError::BenchKvServer),
        Command::BenchServer(args) => haechi::serve(&args).map_err(CliError::BenchServer),
        Command::BenchTenant(args) => haechi::run_tenant(&args).map_err(CliError::BenchTenant),
        Command::DemoServer(args) => demo::serve(&args).map_err(CliError::from),
        Command::DemoYardstick { ipv6, store } => {
            demo::serve_yardstick(ipv6, store.as_deref()).map_err(CliError::from)
        }
        command => return ControlFlow::Continue(command),
    })
}

fn run(command: Command) -> Result<(), CliError> {
    let command = match run_as_other_process(command) {
        ControlFlow::Break(ended) => return ended,
        ControlFlow::Continue(command) => command,
    };
    let command = match command {
        // What goes to several servers is ended by signals at once.
        Command::Put(args) if !args.spread.servers.is_empty() => return spread::put(&args),
        Command::Put(args) if args.spread.layout.is_some() => return spread::put_at(&args),
        Command::Get(GetArgs {
            what: Target::Layout(path),
            file,
            force,
            hedge,
            pipeline,
            server: ServerArgs { server, link },
        }) => {
            let is_hedged = hedge.hedge.is_some();
            spread::refuse_flags(server.is_some() || is_hedged || !pipeline.is_default())?;
            return spread::get(&path, &file, force, &link);
        }
        Command::Stat(ChunkArgs { what: Target::Layout(path), server }) => {
            spread::refuse_flags(server.server.is_some())?;
            return spread::stat(&path, &server.link);
        }
        Command::Rm(ChunkArgs { what: Target::Layout(path), server }) => {
            spread::refuse_flags(server.server.is_some())?;
            return spread::rm(&path, &server.link);
        }
        Command::Scrub(args) if args.is_for_layout() => return spread::scrub(&args),
        Command::Repair(args) => return spread::repair(&args),
        command => command,
    };
    let interrupt = Interrupt::on_signals().map_err(CliError::Signals)?;
    match command {
        Command::Demo(args) => demo::run(&args, &interrupt),
        Command::Sim(args) => study::run(&args, &interrupt),
        Command::Bench(args) => bench::run(&args, &interrupt),
        Command::Put(args) => chunk::put(&args, &interrupt),
        Command::Get(args) => with_chunk(&args.what, |chunk| chunk::get(&args, chunk, &interrupt)),
        Command::Ls(args) => chunk::ls(&args, &interrupt),
        Command::Stat(args) => {
            with_chunk(&args.what, |chunk| chunk::stat(&args, chunk, &interrupt))
        }
        Command::Rm(args) => with_chunk(&args.what, |chunk| chunk::rm(&args, chunk, &interrupt)),
        Command::Scrub(args) => chunk::scrub(&args.server, &interrupt),
        Command::Info(args) => chunk::info(&args, &interrupt),
        Command::Health(args) => chunk::health(&args, &interrupt),
        Command::Cap(args) => cap::run(&args, &interrupt),
        Command::Keygen(args) => secure::keygen(&args),
        Command::Trust(args) => secure::trust(&args),
        Command::Qos(args) => qos::run(&args, &interrupt),
        Command::Paths(args) => status::paths(&args),
        Command::Links(args) => status::links(&args),
        #[cfg(feature = "baseline")]
        Command::BenchFastpathClient(_) | Command::BenchFastpathServer(_) => Ok(()),
        Command::BenchClass(_)
        | Command::BenchKvClient(_)
        | Command::BenchKvServer(_)
        | Command::BenchServer(_)
        | Command::BenchTenant(_)
        | Command::DemoServer(_)
        | Command::DemoYardstick { .. }
        | Command::Repair(_) => Ok(()),
    }
}

/// Does something with a chunk; files on several servers have had their turn.
fn with_chunk(
    what: &Target,
    run: impl FnOnce(ChunkId) -> Result<(), CliError>,
) -> Result<(), CliError> {
    match what {
        Target::Chunk(chunk) => run(*chunk),
        Target::Layout(_) => Ok(()),
    }
}

/// Prints one JSON object and a line end on stdout.
fn print_json(object: &impl Serialize) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, object).map_err(|error| CliError::Stdout(error.into()))?;
    writeln!(out).and_then(|()| out.flush()).map_err(CliError::Stdout)
}

/// Prints text on stdout.
fn print_text(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(CliError::Stdout)
}

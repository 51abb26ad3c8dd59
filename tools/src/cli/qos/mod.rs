//! `towpath qos`: who has reserved what of a server, and who gets it.
//!
//! | file | contents |
//! |---|---|
//! | `report` | what is shown, as a table and as JSON |
//! | `admit` | what would be if a tenant had reserved so much |

mod admit;
mod report;

use std::io::IsTerminal as _;

use clap::{Args as ClapArgs, Subcommand};
use towpath_chunkserver::qos::parse_rate;
use towpath_fastpath::qos::wire::QosReply;
use towpath_transport::Nanos;

use super::args::ServerArgs;
use super::chunk::{ClientSession, open};
use super::error::CliError;
use super::interrupt::Interrupt;
use super::{print_json, print_text};
use report::QosReport;

/// Clears the screen of a terminal and goes to its top.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Flags of `towpath qos`.
#[derive(Clone, Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct QosArgs {
    #[command(subcommand)]
    what: Option<What>,
    /// Show it again each second with the time, until Ctrl-C; with --json one object on a line
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Say whether a tenant could have so much, and what would become of the others
    ///
    /// The monitor of the server runs in virtual time on what the server does now: the tenant
    /// always has enough to do, and others go on as they did. Nothing is changed.
    Admit(AdmitArgs),
}

/// Flags of `towpath qos admit`; the tenant in question is the one that other commands act for.
#[derive(Clone, Debug, ClapArgs)]
#[command(mut_arg("tenant", |arg| {
    arg.required(true).help("The tenant in question, a new one or one that there is")
}))]
struct AdmitArgs {
    /// Operations of 4 KiB a second to reserve, as in 80000, 80K or 1.5M
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    reserve: u32,
    /// Operations of 4 KiB a second at most [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    limit: Option<u32>,
    /// What it gets of what is left, beside others
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..))]
    weight: u16,
    /// Periods to simulate
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u16).range(1..=1_000))]
    periods: u16,
    #[command(flatten)]
    server: ServerArgs,
}

/// Runs the command.
pub(crate) fn run(args: &QosArgs, interrupt: &Interrupt) -> Result<(), CliError> {
    match &args.what {
        Some(What::Admit(args)) => admit::run(args, interrupt),
        None => show(args, interrupt),
    }
}

/// What a server tells, where it keeps reservations.
fn ask(session: &mut ClientSession) -> Result<QosReply, CliError> {
    let reply = session.qos()?;
    if reply.period_ns == 0 { Err(CliError::NoReservations) } else { Ok(reply) }
}

fn show(args: &QosArgs, interrupt: &Interrupt) -> Result<(), CliError> {
    let mut session = open(&args.server, None, interrupt)?;
    let is_screen = std::io::stdout().is_terminal();
    loop {
        let reply = ask(&mut session)?;
        let again = session.now() + Nanos(reply.period_ns);
        let report = QosReport::from(reply);
        match args.server.link.json {
            true => print_json(&report)?,
            false if args.watch => {
                let (clear, at) = (if is_screen { CLEAR } else { "" }, report.clock());
                print_text(&format!("{clear}{at} UTC\n{}", report.text()))?;
            }
            false => print_text(&report.text())?,
        }
        if !args.watch {
            return Ok(session.close()?);
        }
        while session.now() < again {
            session.stay()?;
        }
    }
}

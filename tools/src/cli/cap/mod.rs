//! `towpath cap`: makes, shows and revokes capabilities.
//!
//! | file | contents |
//! |---|---|
//! | `mint` | a capability from flags and a file of keys |
//! | `report` | what a capability allows, for people and as JSON |

mod mint;
mod report;

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, Subcommand};
use towpath_fastpath::cap::{Grant, KeyRing};
use towpath_fastpath::proof::system_ms;

use super::args::ServerArgs;
use super::chunk::open;
use super::error::{CliError, FileVerb};
use super::interrupt::Interrupt;
use super::{print_json, print_text};
use mint::MintArgs;
use report::CapabilityReport;

/// Bytes of the file of a capability: one line of 212, and what an editor may have added.
const GRANT_BYTES_MAX: u64 = 4 << 10;

/// Flags of `towpath cap`.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct CapArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Print a new key, as one line for a file of keys
    ///
    /// Servers (`key_file`) and whoever makes capabilities have the same file, which nobody else
    /// may read. A second line replaces the first without a gap: add it at the end of the file of
    /// each server first, then where capabilities are made; remove the old line when what it made
    /// has expired.
    Key {
        /// Number of the key, which no other key of anybody has [default: a random one]
        #[arg(long, value_name = "N")]
        id: Option<u32>,
    },
    /// Make a capability, and print it with its secret
    Mint(MintArgs),
    /// Say what a capability allows
    Show {
        /// File of a capability, as `towpath cap mint` prints it
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Have a server refuse a capability from now on, durably
    ///
    /// Needs a capability with the right `admin` (--capability). Revoke it at each server that has
    /// the key.
    Revoke(Box<RevokeArgs>),
}

/// Flags of `towpath cap revoke`.
#[derive(Clone, Debug, ClapArgs)]
struct RevokeArgs {
    /// File of the capability to revoke, as `towpath cap mint` prints it
    #[arg(long, value_name = "FILE", required_unless_present = "serial")]
    of: Option<PathBuf>,
    /// Serial number of the capabilities to revoke, which the server then remembers for ever, and
    /// not only until they expire
    #[arg(long, value_name = "N", conflicts_with = "of")]
    serial: Option<u64>,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) fn run(args: &CapArgs, interrupt: &Interrupt) -> Result<(), CliError> {
    match &args.what {
        What::Key { id } => key(*id),
        What::Mint(args) => mint::run(args),
        What::Show { file, json } => {
            let report = CapabilityReport::of(&read_grant(file)?.capability, system_ms());
            if *json { print_json(&report) } else { print_text(&report.to_string()) }
        }
        What::Revoke(args) => revoke(args, interrupt),
    }
}

fn key(id: Option<u32>) -> Result<(), CliError> {
    // So that a key of somebody else, or one that was made at the same time, is told from it.
    let id = id.map_or_else(|| random_bytes().map(u32::from_le_bytes), Ok)?;
    print_text(&format!("{}\n", KeyRing::line(id, &random_bytes()?)))
}

fn revoke(args: &RevokeArgs, interrupt: &Interrupt) -> Result<(), CliError> {
    let (serial, until_ms) = match (&args.of, args.serial) {
        (Some(file), _) => {
            let capability = read_grant(file)?.capability;
            (capability.serial, capability.expires_ms)
        }
        (None, serial) => (serial.unwrap_or(0), u64::MAX),
    };
    let mut session = open(&args.server, None, interrupt)?;
    session.revoke(serial, until_ms)?;
    if args.server.link.json {
        return print_json(&serde_json::json!({ "revoked": serial, "until_ms": until_ms }));
    }
    print_text(&format!("capability {serial} is revoked\n"))
}

/// The capability in a file, with its secret.
pub(super) fn read_grant(path: &Path) -> Result<Grant, CliError> {
    let mut text = String::new();
    let file = File::open(path).map_err(|e| CliError::file(FileVerb::Read, path, e))?;
    let read = file.take(GRANT_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|e| CliError::file(FileVerb::Read, path, e))?;
    Grant::parse(&text).map_err(|error| CliError::Grant { path: path.into(), error })
}

fn read_keys(path: &Path) -> Result<KeyRing, CliError> {
    let text = fs::read_to_string(path).map_err(|e| CliError::file(FileVerb::Read, path, e))?;
    KeyRing::parse(&text).map_err(|error| CliError::Keys { path: path.into(), error })
}

/// Bytes of the system's randomness.
fn random_bytes<const N: usize>() -> Result<[u8; N], CliError> {
    let path = Path::new("/dev/urandom");
    let mut bytes = [0; N];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut bytes));
    read.map(|()| bytes).map_err(|e| CliError::file(FileVerb::Read, path, e))
}

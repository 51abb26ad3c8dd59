//! `towpath repair`: parts made whole, and the layout that says where they are then.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args as ClapArgs;
use towpath_fastpath::cap::Grant;
use towpath_spread::{Layout, Node, RepairOptions, Repaired, Scrubbed, Servers};
use towpath_status::say;

use super::file::LayoutFile;
use super::{Opened, addresses, sweep, words};
use crate::cli::args::LinkArgs;
use crate::cli::bytes::show_size;
use crate::cli::error::{CliError, SpreadFailed};
use crate::cli::progress::Progress;
use crate::cli::{print_json, print_text};

/// Chunks that could not be deleted which a layout names at most: its text has room for as many.
const LEFT_MAX: usize = 128;

/// Flags of `towpath repair`.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct RepairArgs {
    /// Layout of the file, as `towpath put --servers` makes it; it is replaced by the new one
    #[arg(value_name = "LAYOUT")]
    layout: PathBuf,
    /// Servers for parts whose own do not answer, with commas between
    #[arg(long, value_name = "SERVERS", value_delimiter = ',')]
    replacements: Vec<String>,
    /// Let a replacement have several parts where there are too few of them: they are lost together
    #[arg(long, requires = "replacements")]
    share_replacements: bool,
    /// Have servers read every byte first, and make parts whole that have damaged slices as well
    #[arg(long)]
    scrub: bool,
    /// Parts to make anew whatever is there of them, by number, with commas between
    #[arg(long, value_name = "PARTS", value_delimiter = ',')]
    anew: Vec<usize>,
    /// Read and write parts that are made anew here, and do not have servers make them among
    /// themselves
    #[arg(long)]
    by_client: bool,
    #[command(flatten)]
    link: LinkArgs,
}

/// Makes parts whole.
pub(crate) fn repair(args: &RepairArgs) -> Result<(), CliError> {
    let Opened { mut layout, servers, signer } = Opened::new(&args.layout, &args.link)?;
    sweep(&args.layout, &mut layout, &servers, signer.as_ref());
    let parts = layout.nodes.len();
    if args.anew.iter().any(|part| *part >= parts) {
        return Err(CliError::Put("--anew names a part that the layout does not have"));
    }
    let anew = args.anew.iter().copied().collect();
    let options = RepairOptions::new()
        .anew(anew)
        .by_client(args.by_client)
        .replacements(&addresses(&args.replacements)?)
        .share_replacements(args.share_replacements);
    let kept = LayoutFile::instead_of(&args.layout)?;
    let mut scrubbed = if args.scrub { Some(scrub(&servers, &layout)?) } else { None };
    let with = |scrubbed: &Option<Scrubbed>| {
        let options = options.clone();
        scrubbed.iter().fold(options, |options, found| options.scrubbed(found))
    };
    let mut progress = Progress::bytes("repair", layout.bytes);
    let mut make = |scrubbed: &Option<Scrubbed>| {
        let repaired = servers.repair(&layout, &with(scrubbed), |done| progress.at(done));
        repaired.map_err(SpreadFailed::from)
    };
    let mut repaired = make(&scrubbed)?;
    // All parts are there: whoever asks for a repair has seen something else that is wrong.
    if !repaired.is_changed() && scrubbed.is_none() {
        scrubbed = Some(scrub(&servers, &layout)?);
        repaired = make(&scrubbed)?;
    }
    drop(progress);
    if repaired.is_changed() {
        let before = repaired.replaced.iter().chain(&layout.left).copied();
        repaired.layout.left = before.take(LEFT_MAX).collect();
        keep_repaired(kept, &servers, &repaired, signer.as_ref())?;
        // Only now: until then the layout before was the one to read the file by.
        sweep(&args.layout, &mut repaired.layout, &servers, signer.as_ref());
    }
    show(args, &repaired)
}

/// Looks for damage inside parts, which a repair mends; what nothing mends is an error.
fn scrub(servers: &Servers, layout: &Layout) -> Result<Scrubbed, CliError> {
    let mut progress = Progress::bytes("scrub", layout.bytes);
    let found = servers.scrub(layout, |done| progress.at(done)).map_err(SpreadFailed::from)?;
    match found.lost_at {
        Some(at) => Err(CliError::Lost { stripes: found.lost, at }),
        None if found.torn > 0 => {
            Err(CliError::Torn { stripes: found.torn, parts: found.bad.len() })
        }
        None => Ok(found),
    }
}

fn show(args: &RepairArgs, repaired: &Repaired) -> Result<(), CliError> {
    let parts: Vec<usize> = repaired.parts.iter().collect();
    let mended: Vec<usize> = repaired.mended.iter().collect();
    let left: Vec<String> = repaired.layout.left.iter().map(Node::to_string).collect();
    if args.link.json {
        return print_json(&serde_json::json!({
            "made": parts,
            "mended": mended,
            "bytes_compared": repaired.bytes_compared,
            "bytes_read": repaired.bytes_read,
            "bytes_written": repaired.bytes_written,
            "bytes_passed_on": repaired.bytes_passed_on,
            "not_by_servers": repaired.not_by_servers,
            "generation": repaired.layout.generation,
            "left": left,
        }));
    }
    let mut text = String::new();
    // Writing to a string does not fail.
    if !parts.is_empty() {
        let _ = write!(text, "Rebuilt {}. ", words::parts(&parts));
    }
    if !mended.is_empty() {
        let _ = write!(text, "Updated {}. ", words::parts(&mended));
    }
    if repaired.is_changed() {
        let _ = writeln!(
            text,
            "{} of checksums and sketches transferred, {} read, {} written, {} passed on by \
             servers.",
            show_size(repaired.bytes_compared),
            show_size(repaired.bytes_read),
            show_size(repaired.bytes_written),
            show_size(repaired.bytes_passed_on)
        );
    } else {
        text.push_str("Nothing to repair: no part is missing, and all slices are undamaged.\n");
    }
    if let Some(why) = &repaired.not_by_servers {
        let _ = writeln!(text, "The servers could not rebuild it among themselves: {why}");
    }
    for node in &left {
        let _ = writeln!(
            text,
            "Replaced, and not removed yet: chunk {node}. The next `towpath scrub` or `towpath \
             repair` of the layout removes it."
        );
    }
    print_text(&text)
}

/// Keeps the layout of a repair. Where it cannot, the chunks that the repair made go, as long as
/// no layout names them.
fn keep_repaired(
    kept: LayoutFile,
    servers: &Servers,
    repaired: &Repaired,
    signer: Option<&Grant>,
) -> Result<(), CliError> {
    kept.keep(&repaired.layout.to_text(signer)).map_err(|unkept| {
        // A crash may bring back the layout before: what both name is kept.
        let left = match unkept.in_place {
            true => repaired.replaced.clone(),
            false => servers.discard(&repaired.made),
        };
        for node in left {
            say(format_args!("towpath: no longer needed, and left: chunk {node}"));
        }
        *unkept.error
    })
}

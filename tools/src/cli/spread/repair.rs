//! `towpath repair`: parts made whole, and the layout that says where they are then.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args as ClapArgs;
use towpath_fastpath::cap::Grant;
use towpath_spread::{Node, RepairOptions, Repaired, Servers};

use super::file::LayoutFile;
use super::{Opened, addresses};
use crate::cli::args::LinkArgs;
use crate::cli::bytes::show_size;
use crate::cli::error::{CliError, SpreadFailed};
use crate::cli::progress::Progress;
use crate::cli::{print_json, print_text};

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
    let Opened { layout, servers, signer } = Opened::new(&args.layout, &args.link)?;
    let mut options = RepairOptions::new();
    if args.scrub {
        let found = servers.scrub(&layout, |_| {}).map_err(SpreadFailed::from)?;
        if found.torn > 0 {
            return Err(CliError::Torn { stripes: found.torn, parts: found.bad.len() });
        }
        options = options.scrubbed(&found);
    }
    let parts = layout.nodes.len();
    if args.anew.iter().any(|part| *part >= parts) {
        return Err(CliError::Put("--anew names a part that the layout does not have"));
    }
    let anew = args.anew.iter().copied().collect();
    let options = options
        .anew(anew)
        .by_client(args.by_client)
        .replacements(&addresses(&args.replacements)?)
        .share_replacements(args.share_replacements);
    let kept = LayoutFile::instead_of(&args.layout)?;
    let mut progress = Progress::bytes("repair", layout.bytes);
    let repaired = servers.repair(&layout, &options, |done| progress.at(done));
    let repaired = repaired.map_err(SpreadFailed::from)?;
    drop(progress);
    let mut left = Vec::new();
    if repaired.is_changed() {
        keep_repaired(kept, &servers, &repaired, signer.as_ref())?;
        // Only now: until then the layout before was the one to read the file by.
        left = servers.discard(&repaired.replaced);
    }
    let parts: Vec<usize> = repaired.parts.iter().collect();
    let mended: Vec<usize> = repaired.mended.iter().collect();
    if args.link.json {
        let left: Vec<String> = left.iter().map(Node::to_string).collect();
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
    if !repaired.is_changed() {
        return print_text("all parts are whole\n");
    }
    let mut text = format!(
        "parts {parts:?} made anew, parts {mended:?} brought up to date: {} of checksums and \
         sketches, {} read, {} written, {} passed on by servers\n",
        show_size(repaired.bytes_compared),
        show_size(repaired.bytes_read),
        show_size(repaired.bytes_written),
        show_size(repaired.bytes_passed_on)
    );
    if let Some(why) = &repaired.not_by_servers {
        let _ = writeln!(text, "servers could not make them among themselves: {why}");
    }
    for node in &left {
        let _ = writeln!(text, "replaced, and could not be removed: chunk {node}");
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
            eprintln!("towpath: no longer needed, and left: chunk {node}");
        }
        *unkept.error
    })
}

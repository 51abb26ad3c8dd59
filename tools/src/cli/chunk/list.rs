//! `towpath ls`, `stat` and `rm`.

use std::io::{self, Write as _};

use clap::Args as ClapArgs;
use serde::Serialize;
use towpath_fastpath::ChunkId;
use towpath_fastpath::control::ChunkInfo;
use towpath_spread::RECORD_MAGIC;
use towpath_status::say;

use super::{ChunkReport, ClientSession, open};
use crate::cli::args::{ChunkArgs, ServerArgs};
use crate::cli::bytes::show_size;
use crate::cli::error::CliError;
use crate::cli::interrupt::Interrupt;
use crate::cli::session::{Pipeline, SessionError};
use crate::cli::{print_json, print_text};

/// Flags of `towpath ls`.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct LsArgs {
    /// Show also the records that servers keep of changes of files on several servers
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// The JSON object of a chunk in a list.
#[derive(Serialize)]
struct Listed {
    #[serde(flatten)]
    chunk: ChunkReport,
    /// It is no data: what its server remembers of changes of the chunk beside it.
    record: bool,
}

/// Lists the chunks of a server.
pub(crate) fn ls(args: &LsArgs, interrupt: &Interrupt) -> Result<(), CliError> {
    let as_json = args.server.link.json;
    let mut session = open(&args.server, None, interrupt)?;
    let (mut after, mut before, mut hidden) = (None, None::<ChunkInfo>, 0_u64);
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut separator = "{\"chunks\":[";
    if !as_json {
        writeln!(out, "{:32}  {:>14}  {:>10}", "chunk", "bytes", "version")
            .map_err(CliError::Stdout)?;
    }
    let mut show = |info: ChunkInfo, record: bool| {
        if record && !args.all && !as_json {
            hidden += 1;
            return Ok(());
        }
        let chunk = ChunkReport::from(info);
        let wrote = if as_json {
            let start = std::mem::replace(&mut separator, ",");
            let listed = Listed { chunk, record };
            write!(out, "{start}").and_then(|()| Ok(serde_json::to_writer(&mut out, &listed)?))
        } else {
            let ChunkReport { chunk, bytes, version, .. } = &chunk;
            let state = state_of(info, record);
            writeln!(out, "{chunk:32}  {bytes:>14}  {version:>10}{state}")
        };
        wrote.map_err(CliError::Stdout)
    };
    // Page by page, so that a server with millions of chunks needs no memory here.
    loop {
        let page = session.list(after)?;
        after = page.chunks.last().map(|info| ChunkId::from(info.chunk));
        for info in page.chunks {
            let Some(last) = before.replace(info) else { continue };
            // A record is beside its part in the order of names.
            if is_beside(last, info) {
                before = None;
                let of_first = is_record(&mut session, last);
                show(last, of_first)?;
                show(info, !of_first && is_record(&mut session, info))?;
            } else {
                show(last, false)?;
            }
        }
        if !page.more || after.is_none() {
            break;
        }
    }
    if let Some(last) = before {
        show(last, false)?;
    }
    if as_json {
        let start = if separator == "," { "" } else { separator };
        writeln!(out, "{start}]}}").map_err(CliError::Stdout)?;
    }
    out.flush().map_err(CliError::Stdout)?;
    if hidden > 0 {
        say(format_args!(
            "towpath: not shown: {hidden} records that the server keeps of changes of files on \
             several servers; --all shows them"
        ));
    }
    Ok(session.close()?)
}

fn state_of(info: ChunkInfo, record: bool) -> &'static str {
    match (info.unfinished, info.resident) {
        _ if record => "  record of changes",
        (true, true) => "  unfinished, resident",
        (true, false) => "  unfinished",
        (false, true) => "  resident",
        (false, false) => "",
    }
}

/// Whether two chunks have the names of a part and of the record of its changes, in one order or
/// the other (docs/updates.md section 3).
fn is_beside(one: ChunkInfo, other: ChunkInfo) -> bool {
    ChunkId::from(one.chunk).0 ^ ChunkId::from(other.chunk).0 == 1
}

/// Whether a chunk is such a record, as far as it may be read.
fn is_record(session: &mut ClientSession, info: ChunkInfo) -> bool {
    let mut head = Vec::new();
    let pipeline = Pipeline { depth: 1, op_bytes: 4096 };
    let whole = !info.unfinished && info.byte_len >= 4096;
    whole
        && session
            .read_range(ChunkId::from(info.chunk).into(), 0..4096, pipeline, |_, data| {
                head = data.to_vec();
                Ok::<(), SessionError>(())
            })
            .is_ok()
        && head.starts_with(&RECORD_MAGIC)
}

/// Shows one chunk.
pub(crate) fn stat(
    args: &ChunkArgs,
    chunk: ChunkId,
    interrupt: &Interrupt,
) -> Result<(), CliError> {
    let mut session = open(&args.server, None, interrupt)?;
    let report = ChunkReport::from(session.stat(chunk)?);
    session.close()?;
    if args.server.link.json {
        return print_json(&report);
    }
    let ChunkReport { chunk, bytes, limit_bytes, version, unfinished, resident, .. } = report;
    let state =
        if unfinished { "unfinished: its put is under way or was interrupted" } else { "whole" };
    let kept = if resident { "on the disk and in memory" } else { "on the disk" };
    let chain = match report.chain_version {
        0 => String::from("none: it is no replica"),
        chain => chain.to_string(),
    };
    print_text(&format!(
        "chunk    {chunk}\nbytes    {bytes} ({})\n\
         limit    {limit_bytes} ({})\nversion  {version}\nstate    {state}\nkept     {kept}\n\
         chain    {chain}\n",
        show_size(bytes),
        show_size(limit_bytes)
    ))
}

/// The JSON object of `towpath rm`.
#[derive(Debug, Serialize)]
struct Removed {
    removed: String,
}

/// Removes one chunk.
pub(crate) fn rm(args: &ChunkArgs, chunk: ChunkId, interrupt: &Interrupt) -> Result<(), CliError> {
    let mut session = open(&args.server, None, interrupt)?;
    session.delete(chunk)?;
    session.close()?;
    if args.server.link.json {
        return print_json(&Removed { removed: chunk.to_string() });
    }
    Ok(())
}

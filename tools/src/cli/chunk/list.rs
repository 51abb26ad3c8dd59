//! `towpath ls`, `stat` and `rm`.

use std::io::{self, Write as _};

use serde::Serialize;
use towpath_fastpath::ChunkId;

use super::{ChunkReport, open};
use crate::cli::args::{ChunkArgs, ServerArgs};
use crate::cli::bytes::show_size;
use crate::cli::error::CliError;
use crate::cli::interrupt::Interrupt;
use crate::cli::{print_json, print_text};

/// Lists the chunks of a server.
pub(crate) fn ls(args: &ServerArgs, interrupt: &Interrupt) -> Result<(), CliError> {
    let mut session = open(args, None, interrupt)?;
    let mut after = None;
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut separator = "{\"chunks\":[";
    if !args.link.json {
        writeln!(out, "{:32}  {:>14}  {:>10}", "chunk", "bytes", "version")
            .map_err(CliError::Stdout)?;
    }
    // Page by page, so that a server with millions of chunks needs no memory here.
    loop {
        let page = session.list(after)?;
        after = page.chunks.last().map(|info| ChunkId::from(info.chunk));
        for report in page.chunks.into_iter().map(ChunkReport::from) {
            let wrote = if args.link.json {
                let start = std::mem::replace(&mut separator, ",");
                write!(out, "{start}").and_then(|()| Ok(serde_json::to_writer(&mut out, &report)?))
            } else {
                let ChunkReport { chunk, bytes, version, unfinished, resident, .. } = report;
                let state = match (unfinished, resident) {
                    (true, true) => "  unfinished, resident",
                    (true, false) => "  unfinished",
                    (false, true) => "  resident",
                    (false, false) => "",
                };
                writeln!(out, "{chunk:32}  {bytes:>14}  {version:>10}{state}")
            };
            wrote.map_err(CliError::Stdout)?;
        }
        if !page.more || after.is_none() {
            break;
        }
    }
    if args.link.json {
        let start = if separator == "," { "" } else { separator };
        writeln!(out, "{start}]}}").map_err(CliError::Stdout)?;
    }
    out.flush().map_err(CliError::Stdout)?;
    Ok(session.close()?)
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

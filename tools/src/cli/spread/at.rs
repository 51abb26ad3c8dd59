//! `towpath put --at`: bytes of a stored file changed where they are.

use std::io::Read as _;
use std::time::Instant;

use super::{Opened, input, refuse_flags};
use crate::cli::args::PutArgs;
use crate::cli::bytes::show_size;
use crate::cli::error::{CliError, FileVerb, SpreadFailed};
use crate::cli::progress::Progress;
use crate::cli::{print_json, print_text};

/// Bytes that a change reads of its file at a time.
const CHANGED_BYTES: usize = 4 << 20;

/// Writes a file over bytes of one that is stored.
pub(crate) fn put_at(args: &PutArgs) -> Result<(), CliError> {
    let ([file], Some(path), Some(at)) = (&args.words[..], &args.spread.layout, args.spread.at)
    else {
        return Err(CliError::Put(
            "--layout is for one file: with --servers to store it, or with --at to write it over \
             bytes of a file that is stored",
        ));
    };
    refuse_flags(args.server.is_some() || !args.pipeline.is_default())?;
    if args.chunk.is_some() || args.resident {
        return Err(CliError::Put("--chunk and --resident are for one server"));
    }
    let Opened { layout, servers, .. } = Opened::new(path, &args.link)?;
    let (whole, mut source) = input(file, true)?;
    let (began, mut progress) = (Instant::now(), Progress::bytes("put", whole));
    let (mut done, mut pieces, mut conflicts) = (0, 0, 0);
    loop {
        let mut bytes = Vec::new();
        let read = source.by_ref().take(CHANGED_BYTES as u64).read_to_end(&mut bytes);
        read.map_err(|e| CliError::file(FileVerb::Read, file, e))?;
        if bytes.is_empty() {
            break;
        }
        let offset = at.saturating_add(done);
        let changed = servers.write_at(&layout, offset, &bytes).map_err(SpreadFailed::from)?;
        done += changed.bytes;
        pieces += changed.pieces;
        conflicts += changed.conflicts;
        progress.at(done);
    }
    drop(progress);
    let seconds = began.elapsed().as_secs_f64();
    if args.link.json {
        return print_json(&serde_json::json!({
            "layout": path.display().to_string(), "offset": at, "bytes": done, "pieces": pieces,
            "conflicts": conflicts, "seconds": seconds,
        }));
    }
    print_text(&format!("{} changed at {at} in {seconds:.2} s\n", show_size(done)))
}

//! `towpath put`: a file becomes a chunk.

use std::time::Duration;

use towpath_fastpath::ChunkId;

use super::{ClientSession, TransferReport, fresh_name, open};
use crate::cli::args::PutArgs;
use crate::cli::error::{CliError, FileVerb};
use crate::cli::interrupt::Interrupt;
use crate::cli::progress::Progress;
use crate::cli::session::Pipeline;
use crate::cli::source::Source;
use crate::cli::{print_json, print_text};

/// Stores a file and prints the name of its chunk.
pub(crate) fn put(args: &PutArgs, interrupt: &Interrupt) -> Result<(), CliError> {
    let of_file = |source| CliError::file(FileVerb::Read, &args.file, source);
    let source = Source::open(&args.file).map_err(of_file)?;
    let chunk = args.chunk.unwrap_or_else(fresh_name);
    let mut session = open(&args.server, Some(args.pipeline), interrupt)?;
    let pipeline = Pipeline::fitting(&mut session, args.pipeline.depth, args.pipeline.op_size)?;
    let began = session.now();
    session.create(chunk)?;
    let whole = source.byte_len();
    let mut progress = Progress::bytes("put", whole);
    let stored = session.write_range(
        chunk,
        0..whole,
        pipeline,
        |offset, out| source.fill(offset, out).map_err(of_file),
        |durable| progress.at(durable),
    );
    drop(progress);
    if let Err(error) = stored {
        take_back(&mut session, chunk);
        return Err(error);
    }
    let seconds = session.now().since(began).as_secs_f64();
    session.close()?;
    if !args.server.link.json {
        return print_text(&format!("{chunk}\n"));
    }
    print_json(&TransferReport::of(&session, chunk, (whole, seconds), None))
}

/// How long the half of a file may take to go after an error or an interruption.
const TAKE_BACK_WAIT: Duration = Duration::from_secs(10);

/// Half a file is of no use to anyone; where the server is gone, the name of it is.
fn take_back(session: &mut ClientSession, chunk: ChunkId) {
    // A first Ctrl-C is why this is done; a second one ends the program at once.
    session.pace().last_wait(TAKE_BACK_WAIT);
    if session.delete(chunk).is_err() {
        eprintln!("towpath: chunk {chunk} is incomplete and could not be removed: `towpath rm` it");
    }
}

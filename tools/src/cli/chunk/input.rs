//! What is stored: a file, or what comes on stdin.

use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread::Builder;

use super::put::STDIN;
use crate::cli::error::{CliError, FileVerb};
use crate::cli::session::SessionError;
use crate::cli::source::Source;

/// Bytes of stdin that are read before they are sent: many requests, so that waiting for the last
/// of them costs little.
const BLOCK_BYTES: usize = 8 << 20;

/// Blocks that are read ahead.
const BLOCKS_AHEAD: usize = 1;

/// What is stored.
#[derive(Debug)]
pub(super) enum Input {
    /// A regular file.
    File {
        /// Its bytes.
        source: Source,
        /// Its path.
        path: PathBuf,
    },
    /// What comes on stdin until its end.
    Stdin(Blocks),
}

impl Input {
    /// Opens a file; [`STDIN`] is stdin, which is read from here on.
    pub(super) fn open(path: &Path) -> Result<Self, CliError> {
        if path == Path::new(STDIN) {
            return Ok(Self::Stdin(Blocks::default()));
        }
        let source = Source::open(path);
        let source = source.map_err(|source| CliError::input(path, source))?;
        Ok(Self::File { source, path: path.into() })
    }

    /// The bytes of a file of at most `most` bytes; none of others, and of stdin.
    pub(super) fn small_bytes(&self, most: u64) -> Result<Option<Vec<u8>>, CliError> {
        let Self::File { source, path } = self else { return Ok(None) };
        if source.byte_len() > most {
            return Ok(None);
        }
        let mut bytes = vec![0; source.byte_len() as usize];
        let filled = source.fill(0, &mut bytes);
        filled.map_err(|source| CliError::file(FileVerb::Read, path, source))?;
        Ok(Some(bytes))
    }

    /// How many bytes there are, where that is known before the end.
    pub(super) fn byte_len(&self) -> Option<u64> {
        match self {
            Self::File { source, .. } => Some(source.byte_len()),
            Self::Stdin(_) => None,
        }
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, .. } => write!(f, "{}", path.display()),
            Self::Stdin(_) => f.write_str("stdin"),
        }
    }
}

/// Blocks of stdin. A thread reads them, because stdin may keep its reader waiting for longer than
/// a link may stay silent.
#[derive(Debug, Default)]
pub(super) struct Blocks(Option<Receiver<io::Result<Vec<u8>>>>);

impl Blocks {
    /// The next block, none at the end; `meanwhile` is done again and again until it is there.
    pub(super) fn next(
        &mut self,
        mut meanwhile: impl FnMut() -> Result<(), SessionError>,
    ) -> Result<Option<Vec<u8>>, CliError> {
        let failed = |source| CliError::file(FileVerb::Read, Path::new("stdin"), source);
        let blocks = match &self.0 {
            Some(blocks) => blocks,
            None => self.0.insert(read_ahead().map_err(failed)?),
        };
        loop {
            match blocks.try_recv() {
                Ok(block) => return block.map(Some).map_err(failed),
                Err(TryRecvError::Disconnected) => return Ok(None),
                Err(TryRecvError::Empty) => meanwhile()?,
            }
        }
    }
}

/// Reads stdin on a thread, which ends with the program where nothing comes any more.
fn read_ahead() -> io::Result<Receiver<io::Result<Vec<u8>>>> {
    let (sender, blocks) = sync_channel(BLOCKS_AHEAD);
    Builder::new().name("stdin".to_owned()).spawn(move || {
        loop {
            let mut block = Vec::new();
            let read = io::stdin().lock().take(BLOCK_BYTES as u64).read_to_end(&mut block);
            let is_last = read.as_ref().map_or(true, |&count| count < BLOCK_BYTES);
            let block = read.map(|_| block);
            let is_empty = block.as_ref().is_ok_and(Vec::is_empty);
            if !is_empty && sender.send(block).is_err() || is_last {
                return;
            }
        }
    })?;
    Ok(blocks)
}

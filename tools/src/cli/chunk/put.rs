//! `towpath put`: files become chunks.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use towpath_fastpath::ChunkId;
use towpath_status::say;

use super::input::{Blocks, Input};
use super::{ClientSession, TransferReport, open};
use crate::cli::args::{PutArgs, ServerArgs};
use crate::cli::bytes::{gbps, show_size};
use crate::cli::error::{CliError, FileVerb};
use crate::cli::interrupt::Interrupt;
use crate::cli::progress::Progress;
use crate::cli::session::{Pipeline, SessionError, Whole};
use crate::cli::{print_json, print_text};
use crate::columns::one_line;

/// Stores files and prints the names of their chunks.
pub(crate) fn put(args: &PutArgs, interrupt: &Interrupt) -> Result<(), CliError> {
    let (files, server) = files_and_server(&args.words, args.server.as_deref(), Path::exists);
    check(args, &files)?;
    // What cannot be read is better known before anything is stored. None stays open: there may be
    // more of them than a process may have open.
    let lengths = files.iter().map(|file| Ok(Input::open(file)?.byte_len().unwrap_or(0)));
    let whole = lengths.sum::<Result<u64, CliError>>()?;
    let of_server = ServerArgs { server: server.clone(), link: args.link.clone() };
    let session = open(&of_server, Some(args.pipeline), interrupt);
    let mut session = session.map_err(|error| match (error, server) {
        // It was taken for a server because there is no such file.
        (CliError::Session(SessionError::Resolve { .. }), Some(name)) if args.server.is_none() => {
            CliError::NoFileNoServer { name }
        }
        (error, _) => error,
    })?;
    let pipeline = Pipeline::fitting(&mut session, args.pipeline.depth, args.pipeline.op_size)?;
    let progress = Progress::bytes("put", whole);
    let mut run = Run { session, pipeline, resident: args.resident, progress, before: 0 };
    if let [file] = &files[..] {
        let stored = run.store(&mut Input::open(file)?, args.chunk)?;
        run.session.close()?;
        let measured = (stored.bytes, stored.seconds);
        let printed = match args.link.json {
            false => print_text(&format!("{}\n", stored.chunk)),
            true => print_json(&TransferReport::of(&run.session, stored.id, measured, None)),
        };
        return printed.inspect_err(|_| stored.tell_on_stderr());
    }
    let inputs = files.iter().map(|file| Input::open(file));
    run.store_all(inputs, args.link.json)
}

fn check(args: &PutArgs, files: &[PathBuf]) -> Result<(), CliError> {
    if files.len() > 1 && args.chunk.is_some() {
        return Err(CliError::Put("--chunk names one chunk: leave it out for several files"));
    }
    if files.iter().filter(|file| file.as_path() == Path::new(STDIN)).count() > 1 {
        return Err(CliError::Put("stdin (-) can be stored once"));
    }
    Ok(())
}

/// What stands for stdin.
pub(super) const STDIN: &str = "-";

/// The files that words name, and the server, where one is among them.
fn files_and_server(
    words: &[PathBuf],
    server: Option<&str>,
    exists: impl Fn(&Path) -> bool,
) -> (Vec<PathBuf>, Option<String>) {
    let is_server = |word: &&str| {
        *word != STDIN && !word.contains('/') && words.len() > 1 && !exists(Path::new(word))
    };
    let last = words.last().and_then(|word| word.to_str()).filter(is_server);
    match (server, last) {
        (Some(server), _) => (words.to_vec(), Some(server.to_owned())),
        (None, Some(last)) => (words[..words.len() - 1].to_vec(), Some(last.to_owned())),
        (None, None) => (words.to_vec(), None),
    }
}

/// One file that was stored.
#[derive(Debug, Serialize)]
struct Stored {
    file: String,
    chunk: String,
    bytes: u64,
    seconds: f64,
    gbps: f64,
    #[serde(skip)]
    id: ChunkId,
}

impl Stored {
    /// Where stdout takes no name: nobody finds the chunk without it.
    fn tell_on_stderr(&self) {
        say(format_args!("towpath: {} is stored as chunk {}", one_line(&self.file), self.chunk));
    }
}

/// The JSON object of several files.
#[derive(Debug, Serialize)]
struct PutReport {
    files: Vec<Stored>,
    bytes: u64,
    seconds: f64,
    gbps: f64,
    chunks_retransmitted: u64,
    reroutes: u64,
    port_changes: u64,
}

/// Says of files that they are stored, in the order in which they were begun.
#[derive(Default)]
struct Told {
    as_json: bool,
    begun: usize,
    /// Places of files in the order, of which those before the first are told.
    next: usize,
    early: BTreeMap<usize, Stored>,
    files: Vec<Stored>,
}

impl Told {
    /// The place of the next file.
    fn begin(&mut self) -> usize {
        self.begun += 1;
        self.begun - 1
    }

    fn stored(&mut self, place: usize, file: Stored) -> Result<(), CliError> {
        self.early.insert(place, file);
        while let Some(file) = self.early.remove(&self.next) {
            self.next += 1;
            self.tell(file)?;
        }
        Ok(())
    }

    /// Those that were stored though one before them was not.
    fn rest(&mut self) -> Result<(), CliError> {
        let rest = std::mem::take(&mut self.early);
        // Each of them, also where stdout takes none.
        rest.into_values().map(|file| self.tell(file)).fold(Ok(()), Result::and)
    }

    fn tell(&mut self, file: Stored) -> Result<(), CliError> {
        let told = match self.as_json {
            true => Ok(()),
            false => print_text(&format!("{}  {}\n", file.chunk, one_line(&file.file))),
        };
        if told.is_err() {
            file.tell_on_stderr();
        }
        self.files.push(file);
        told
    }
}

/// A session that stores one file after the other, and small ones together.
struct Run {
    session: ClientSession,
    pipeline: Pipeline,
    /// The chunks are to be kept in the server's memory too.
    resident: bool,
    progress: Progress,
    /// Bytes of the files that are stored.
    before: u64,
}

impl Run {
    /// Stores files, and says of each, in their order, as soon as it is stored.
    fn store_all(
        mut self,
        mut inputs: impl Iterator<Item = Result<Input, CliError>>,
        as_json: bool,
    ) -> Result<(), CliError> {
        let began = self.session.now();
        let mut told = Told { as_json, ..Told::default() };
        let stored = loop {
            // As many as fit a request each, up to the first that does not.
            let mut large = None;
            if let Err(error) = self.store_small(&mut inputs, &mut large, &mut told) {
                break Err(error);
            }
            let Some(mut input) = large else { break Ok(()) };
            let place = told.begin();
            let file = self.store(&mut input, None);
            if let Err(error) = file.and_then(|file| told.stored(place, file)) {
                break Err(error);
            }
        };
        let stored = told.rest().and(stored);
        let files = told.files;
        let seconds = self.session.now().since(began).as_secs_f64();
        let closed = self.session.close();
        if as_json {
            let (bytes, stats) = (self.before, self.session.stats());
            // What is stored is told, also where the next file could not be.
            let report = PutReport {
                files,
                bytes,
                seconds,
                gbps: gbps(bytes, seconds),
                chunks_retransmitted: stats.chunks_retransmitted,
                reroutes: stats.reroutes(),
                port_changes: stats.path_moves,
            };
            let printed = print_json(&report);
            printed.inspect_err(|_| report.files.iter().for_each(Stored::tell_on_stderr))?;
        }
        stored?;
        Ok(closed?)
    }

    /// Stores files that fit a request each, many at a time; leaves the first that does not in
    /// `large`.
    fn store_small(
        &mut self,
        inputs: &mut impl Iterator<Item = Result<Input, CliError>>,
        large: &mut Option<Input>,
        told: &mut Told,
    ) -> Result<(), CliError> {
        let told = RefCell::new(told);
        let Self { session, pipeline, resident, progress, before } = self;
        let clock = Instant::now();
        let next = || {
            let input = if large.is_none() { inputs.next() } else { None };
            let Some(input) = input.transpose()? else { return Ok(None) };
            let Some(bytes) = input.small_bytes(pipeline.op_bytes)? else {
                *large = Some(input);
                return Ok(None);
            };
            let of = (told.borrow_mut().begin(), input.to_string(), clock.elapsed());
            Ok(Some(Whole { chunk: ChunkId::random(), bytes, of }))
        };
        let stored = |Whole { chunk, bytes, of: (place, file, began) }: Whole<_>| {
            let bytes = bytes.len() as u64;
            *before += bytes;
            progress.at(*before);
            let seconds = (clock.elapsed() - began).as_secs_f64();
            let gbps = gbps(bytes, seconds);
            let stored = Stored { file, chunk: chunk.to_string(), bytes, seconds, gbps, id: chunk };
            told.borrow_mut().stored(place, stored)
        };
        let mut broken = Vec::new();
        let ended = session.store_whole(pipeline.depth, *resident, next, stored, &mut broken);
        self.take_back_all(&broken);
        ended
    }

    /// Removes chunks of small files that are not whole.
    fn take_back_all(&mut self, broken: &[ChunkId]) {
        if broken.is_empty() {
            return;
        }
        self.session.pace().last_wait(TAKE_BACK_WAIT);
        let left = broken.iter().filter(|chunk| self.session.delete(**chunk).is_err()).count();
        let removed = broken.len() - left;
        if removed > 0 {
            say(format_args!("towpath: {removed} incomplete chunks were removed again"));
        }
        if left > 0 {
            say(format_args!(
                "towpath: {left} incomplete chunks could not be removed: the server removes them \
                 when nobody writes to them for a while; store the files again that are not listed"
            ));
        }
    }

    /// Stores one file as a new chunk.
    fn store(&mut self, input: &mut Input, name: Option<ChunkId>) -> Result<Stored, CliError> {
        let id = name.unwrap_or_else(ChunkId::random);
        let began = self.session.now();
        if let Err(error) = self.session.create(id, self.resident) {
            let error = CliError::from(error);
            // It may be there now; a name that somebody chose may be that of another chunk.
            if name.is_none() && error.is_open() {
                self.take_back(input, id, 0);
            }
            return Err(error);
        }
        let mut durable = 0;
        let written = match input {
            Input::File { source, path } => {
                let of_file = |source| CliError::file(FileVerb::Read, path, source);
                let (progress, before) = (&mut self.progress, self.before);
                self.session.write_range(
                    id,
                    0..source.byte_len(),
                    self.pipeline,
                    |offset, out| source.fill(offset, out).map_err(of_file),
                    |bytes| {
                        durable = bytes;
                        progress.at(before + bytes);
                    },
                )
            }
            Input::Stdin(blocks) => self.store_blocks(id, blocks, &mut durable),
        };
        let finished = written.and_then(|()| Ok(self.session.finish(id, durable)?));
        if let Err(error) = finished {
            self.take_back(input, id, durable);
            return Err(error);
        }
        self.before += durable;
        let seconds = self.session.now().since(began).as_secs_f64();
        let (file, chunk) = (input.to_string(), id.to_string());
        Ok(Stored { file, chunk, bytes: durable, seconds, gbps: gbps(durable, seconds), id })
    }

    /// Stores blocks as they come, to their end.
    fn store_blocks(
        &mut self,
        id: ChunkId,
        blocks: &mut Blocks,
        durable: &mut u64,
    ) -> Result<(), CliError> {
        while let Some(block) = blocks.next(|| self.session.stay())? {
            let at = *durable;
            self.session.write_range(
                id,
                at..at + block.len() as u64,
                self.pipeline,
                |offset, out| {
                    let from = (offset - at) as usize;
                    out.copy_from_slice(&block[from..from + out.len()]);
                    Ok::<(), CliError>(())
                },
                |bytes| *durable = at + bytes,
            )?;
        }
        Ok(())
    }

    /// Removes a chunk that is not whole: a part of a file is of no use to anyone. Says what was
    /// stored, and where the server is gone, what to do.
    fn take_back(&mut self, input: &Input, chunk: ChunkId, durable: u64) {
        // A first Ctrl-C is why this is done; a second one ends the program at once.
        self.session.pace().last_wait(TAKE_BACK_WAIT);
        let stored = show_size(durable);
        let of =
            input.byte_len().map_or_else(String::new, |whole| format!(" of {}", show_size(whole)));
        match self.session.delete(chunk) {
            Ok(()) => say(format_args!(
                "towpath: {stored}{of} of {input} were stored; the incomplete chunk {chunk} was \
                 removed again"
            )),
            Err(_) => say(format_args!(
                "towpath: {stored}{of} of {input} were stored; the chunk {chunk} is incomplete and \
                 could not be removed: the server removes it when nobody writes to it for a while; \
                 store the file again"
            )),
        }
    }
}

/// How long the removal of an incomplete chunk may take after an error or an interruption.
const TAKE_BACK_WAIT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_several_words_is_the_server_unless_a_file_has_that_name() {
        let split = |words: &[&str], server| {
            let words: Vec<PathBuf> = words.iter().map(PathBuf::from).collect();
            let exists = |path: &Path| path.to_str().is_some_and(|name| name.starts_with('f'));
            let (files, server) = files_and_server(&words, server, exists);
            let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
            (files.join(" "), server)
        };
        let host = || Some("host:1".to_owned());
        assert_eq!(split(&["f1"], None), ("f1".into(), None));
        assert_eq!(split(&["gone"], None), ("gone".into(), None), "one word is a file");
        assert_eq!(split(&["f1", "host:1"], None), ("f1".into(), host()));
        assert_eq!(split(&["f1", "f2"], None), ("f1 f2".into(), None));
        assert_eq!(split(&["f1", "f2", "host:1"], None), ("f1 f2".into(), host()));
        assert_eq!(split(&["f1", "gone/f2"], None), ("f1 gone/f2".into(), None), "a path");
        assert_eq!(split(&["f1", "-"], None), ("f1 -".into(), None));
        assert_eq!(split(&["f1", "gone"], Some("host:1")), ("f1 gone".into(), host()));
    }
}

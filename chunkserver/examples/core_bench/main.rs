//! How many 4 KiB reads and durable writes a store does a second: its core alone, behind its
//! thread, behind a chunk server whose store has a thread and one whose network thread drives it, a
//! server without a store, and fio on a file beside it.
//!
//! `cargo run --profile dist -p towpath-chunkserver --example core_bench -- FOLDER`, where a store
//! of 1 GiB is made, or was by an earlier run; `--rounds 5 --seconds 2 --pages 262144` are the
//! defaults. They take turns, so that the machine's moods meet all of them alike; fio is left
//! out where there is none. fio's durable writes are `fdatasync=1` at depth 1, and have no flush at
//! depth 32. A line gives the median of the rounds, the least and the most. Results are in
//! docs/bench-log.md.

#![forbid(unsafe_code)]

#[path = "../../disk/examples/arguments/mod.rs"]
mod arguments;
#[path = "../link/mod.rs"]
mod link;
mod network;
#[path = "../without_store/mod.rs"]
mod without_store;

use std::io;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use towpath_base::Prng;
use towpath_chunkserver::store::core::{Client, CoreConfig, DriverConfig, StoreCore, StoreThread};
use towpath_chunkserver::store::{
    ChunkId, Completion, NewChunk, Reply, Request, SLICE_BYTES, Terms, writer_crcs,
};
use towpath_disk::{NewFile, Options, open};
use towpath_memory::{Buf, Pool};

use arguments::Arguments;
use network::Serves;
use without_store::Outcome;

/// What the clients of a store do.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    depth: usize,
    is_write: bool,
}

const CASES: [Case; 4] = [
    Case { name: "read, depth 1", depth: 1, is_write: false },
    Case { name: "read, depth 32", depth: 32, is_write: false },
    Case { name: "durable write, depth 1", depth: 1, is_write: true },
    Case { name: "durable write, depth 32", depth: 32, is_write: true },
];

const CHUNK: ChunkId = ChunkId(1);

/// How often the chunk is written unless `--passes` says so: it is half of the disk, and goes round
/// in it.
const FILL_PASSES: u64 = 3;

/// Bytes of the writes that fill the store.
const FILL_BYTES: usize = 1 << 20;

fn opened(folder: &Path, page_count: u64) -> io::Result<StoreCore<Vec<u8>>> {
    let config = CoreConfig {
        log_pages: 8192,
        log_pages_max: 0,
        chunks_max: 16,
        store_id: 1,
        log_nonce: 2,
        version_seed: 0,
        is_sparse: false,
    };
    let create = Some(NewFile { page_count, room_pages: u64::MAX });
    let options = Options { create, ..Options::default() };
    let (disk, report) = open(&folder.join("disk"), &options).map_err(io::Error::other)?;
    if report.was_made {
        println!("{report}");
    }
    StoreCore::open(disk, &config).map_err(io::Error::other)
}

/// Slices of the one chunk: half of the disk, so that fresh pages are never short.
fn slices(page_count: u64) -> u64 {
    page_count / 2
}

/// Somebody who takes requests and gives answers.
trait Store {
    fn ask(&mut self, token: u64, request: Request<Vec<u8>, Buf>) -> Outcome<()>;

    /// Waits until there are some.
    fn answers(&mut self, into: &mut Vec<Completion<Vec<u8>, Buf>>) -> Outcome<()>;
}

struct Alone(StoreCore<Vec<u8>>);

impl Store for Alone {
    fn ask(&mut self, token: u64, request: Request<Vec<u8>, Buf>) -> Outcome<()> {
        self.0.submit(Client { asker: 0, token }, request);
        Ok(())
    }

    fn answers(&mut self, into: &mut Vec<Completion<Vec<u8>, Buf>>) -> Outcome<()> {
        self.0.turn(None)?;
        into.extend(self.0.take_answers().map(|(_, completion)| completion));
        while into.is_empty() {
            self.0.turn(Some(Duration::from_secs(10)))?;
            into.extend(self.0.take_answers().map(|(_, completion)| completion));
        }
        Ok(())
    }
}

struct Threaded(StoreThread<Vec<u8>>);

impl Store for Threaded {
    fn ask(&mut self, token: u64, request: Request<Vec<u8>, Buf>) -> Outcome<()> {
        self.0.try_send(token, request).map_err(|_| "the queue is full".into())
    }

    fn answers(&mut self, into: &mut Vec<Completion<Vec<u8>, Buf>>) -> Outcome<()> {
        self.0.ring();
        into.push(self.0.completions().recv()?);
        into.extend(self.0.completions().try_iter());
        Ok(())
    }
}

fn good(reply: Reply<Vec<u8>, Buf>) -> Outcome<(Option<Buf>, Vec<Vec<u8>>)> {
    match reply {
        Reply::Change(made) => made.map(|_| (None, Vec::new())).map_err(Into::into),
        Reply::Read { result, buf, .. } => {
            result?;
            Ok((Some(buf), Vec::new()))
        }
        Reply::Write { result, data, .. } => {
            result?;
            Ok((None, data))
        }
        _ => Err("another answer".into()),
    }
}

/// Writes the whole chunk, where that was not done before: so often that each page of the disk was
/// written, since the first write to one costs the file system's journal a write more.
fn fill(settings: &Arguments) -> Outcome<()> {
    let mut store = Alone(opened(&settings.path, settings.page_count)?);
    let whole = slices(settings.page_count) * SLICE_BYTES as u64;
    if store.0.stat(CHUNK).is_some_and(|stat| stat.byte_len == whole) {
        return Ok(());
    }
    let mut answers = Vec::new();
    if store.0.stat(CHUNK).is_none() {
        let (limit_bytes, kind) = (None, NewChunk::default());
        store.ask(0, Request::Create { chunk: CHUNK, limit_bytes, kind, stamp: 0 })?;
        store.answers(&mut answers)?;
    }
    let mut prng = Prng::new(1);
    let passes = settings.value("--passes").map_or(Ok(FILL_PASSES), str::parse)?;
    for offset in (0..passes).flat_map(|_| (0..whole).step_by(FILL_BYTES)) {
        let mut bytes = vec![0; (whole - offset).min(FILL_BYTES as u64) as usize];
        prng.fill(&mut bytes);
        store.ask(0, write(offset, bytes))?;
        answers.clear();
        store.answers(&mut answers)?;
        for answer in answers.drain(..) {
            good(answer.reply)?;
        }
    }
    Ok(())
}

fn write(offset: u64, bytes: Vec<u8>) -> Request<Vec<u8>, Buf> {
    let crcs = writer_crcs(CHUNK, offset, &bytes);
    Request::Write {
        chunk: CHUNK,
        offset,
        data: vec![bytes],
        crcs,
        staged: None,
        verified: true,
        terms: Terms::default(),
    }
}

/// Keeps `case.depth` requests under way until the time is over; requests a second.
fn run(case: Case, store: &mut dyn Store, settings: &Arguments, seed: u64) -> Outcome<f64> {
    let (mut prng, count) = (Prng::new(seed), slices(settings.page_count));
    let pool = Pool::with_count(SLICE_BYTES, case.depth)?;
    let (mut bufs, mut pages) = (Vec::new(), Vec::new());
    for _ in 0..case.depth {
        bufs.extend(pool.take());
        pages.push(vec![7; SLICE_BYTES]);
    }
    let (mut answers, mut done, mut under_way) = (Vec::new(), 0u64, 0);
    let began = Instant::now();
    while began.elapsed() < settings.span || under_way > 0 {
        while under_way < case.depth && began.elapsed() < settings.span {
            let offset = prng.below(count) * SLICE_BYTES as u64;
            let request = match case.is_write {
                true => write(offset, pages.pop().ok_or("a page is missing")?),
                false => Request::Read {
                    chunk: CHUNK,
                    offset,
                    byte_len: SLICE_BYTES,
                    buf: bufs.pop().ok_or("a buffer is missing")?,
                    crcs: Vec::new(),
                },
            };
            store.ask(0, request)?;
            under_way += 1;
        }
        if under_way == 0 {
            break;
        }
        store.answers(&mut answers)?;
        for answer in answers.drain(..) {
            let (buf, data) = good(answer.reply)?;
            bufs.extend(buf);
            pages.extend(data);
            (done, under_way) = (done + 1, under_way - 1);
        }
    }
    Ok(done as f64 / began.elapsed().as_secs_f64())
}

fn run_fio(case: Case, settings: &Arguments) -> Outcome<Option<f64>> {
    let (what, side) = if case.is_write { ("randwrite", "write") } else { ("randread", "read") };
    let mut fio = Command::new("fio");
    fio.args(["--name=disk", "--ioengine=io_uring", "--direct=1", "--bs=4k", "--time_based"]);
    fio.args(["--output-format=json", "--norandommap", "--randrepeat=0"]);
    fio.arg(format!("--filename={}", settings.path.join("fio").display()));
    fio.arg(format!("--size={}", settings.page_count / 2 * SLICE_BYTES as u64));
    fio.arg(format!("--rw={what}")).arg(format!("--iodepth={}", case.depth));
    fio.arg(format!("--runtime={}", settings.span.as_secs().max(1)));
    if case.is_write && case.depth == 1 {
        fio.arg("--fdatasync=1");
    }
    let output = match fio.output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        output => output?,
    };
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    Ok(Some(report["jobs"][0][side]["iops"].as_f64().ok_or("fio says no iops")?))
}

fn print(case: Case, way: &str, mut figures: Vec<f64>) {
    figures.sort_by(f64::total_cmp);
    let (Some(least), Some(most)) = (figures.first(), figures.last()) else { return };
    let median = figures[figures.len() / 2];
    println!("{:<24} {way:<8} {median:>7.0}/s, {least:.0} to {most:.0}", case.name);
}

fn main() -> Outcome<()> {
    let mut args = std::env::args_os().skip(1);
    if let (Some(word), Some(folder)) = (args.next(), args.next())
        && let Some(serves) = Serves::ALL.into_iter().find(|serves| word == serves.word())
    {
        return network::serve(serves, Path::new(&folder));
    }
    let settings = Arguments::read(&["--passes"])?;
    fill(&settings)?;
    let mut seeds = Prng::new(settings.seed);
    for case in CASES {
        let mut figures = [const { Vec::new() }; 6];
        for _ in 0..settings.rounds {
            let mut alone = Alone(opened(&settings.path, settings.page_count)?);
            figures[0].push(run(case, &mut alone, &settings, seeds.next_u64())?);
            drop(alone);
            let (folder, page_count) = (settings.path.clone(), settings.page_count);
            let open = move || opened(&folder, page_count).map(|core| (core, ()));
            let config = DriverConfig { queue_max: 64, unfinished_keep: None };
            let (mut threads, ()) = StoreThread::spawn::<(), io::Error>(1, config, open)?;
            let thread = threads.pop().ok_or("one asker has one hold")?;
            let mut threaded = Threaded(thread);
            figures[1].push(run(case, &mut threaded, &settings, seeds.next_u64())?);
            let ended = threaded.0.stop_within(Duration::from_secs(60));
            ended.ok_or("the store does not end")??;
            for (figures, serves) in figures[2..].iter_mut().zip(Serves::ALL) {
                figures.push(network::run(serves, case, &settings, seeds.next_u64())?);
            }
            figures[5].extend(run_fio(case, &settings)?);
        }
        for (way, figures) in
            ["core", "thread", "server", "inline", "network", "fio"].into_iter().zip(figures)
        {
            print(case, way, figures);
        }
    }
    Ok(())
}

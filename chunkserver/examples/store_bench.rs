//! Measures the store alone: MB/s and commits/s, called directly and through its worker.

use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Parser;
use towpath_chunkserver::store::{
    ChunkId, FileMedia, Reply, Request, SLICE_BYTES, Store, StoreConfig, StoreWorker, Write,
    writer_crcs,
};

/// Writes and reads chunks of a store in DIR and prints one line per phase. The first pass goes
/// to pages that the file system has yet to find; the later passes use freed ones.
#[derive(Parser)]
struct Options {
    /// Directory of the store; must be empty or a store of an earlier run.
    #[arg(long)]
    dir: PathBuf,
    /// Bytes of one write or read, a multiple of 4096.
    #[arg(long, default_value_t = 65536)]
    io_bytes: usize,
    /// Writes per commit.
    #[arg(long, default_value_t = 16)]
    batch: usize,
    /// Bytes of the working set.
    #[arg(long, default_value_t = 256 << 20)]
    set_bytes: usize,
    /// Seconds of each phase.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Bytes of segments to make and fill before the first phase.
    #[arg(long, default_value_t = 0)]
    preallocate_bytes: u64,
    /// Let the store check the data of each write, too.
    #[arg(long)]
    verify: bool,
}

struct Bench {
    store: Store<FileMedia>,
    options: Options,
    chunk: ChunkId,
    data: Vec<Vec<u8>>,
    next: usize,
}

impl Bench {
    fn ios(&self) -> usize {
        self.options.set_bytes / self.options.io_bytes
    }

    fn offset(&mut self) -> u64 {
        let at = self.next % self.ios();
        self.next += 1;
        (at * self.options.io_bytes) as u64
    }

    fn write_batch(&mut self, crcs: &[Vec<u32>]) {
        for turn in 0..self.options.batch {
            let offset = self.offset();
            let at = offset as usize / self.options.io_bytes;
            let data = [self.data[turn % self.data.len()].as_slice()];
            // The checksums of all offsets were made before the clock was started.
            let crcs = &crcs[at * self.data.len() + turn % self.data.len()];
            let verified = !self.options.verify;
            let write = Write { chunk: self.chunk, offset, data: &data, crcs, verified };
            self.store.stage_write(&write).expect("the set fits the store");
        }
        self.store.commit().expect("the medium flushes");
    }

    fn report(&self, phase: &str, ios: usize, commits: usize, took: Duration) {
        let seconds = took.as_secs_f64();
        let mb = (ios * self.options.io_bytes) as f64 / 1e6 / seconds;
        println!(
            "{phase:<14} {mb:>9.0} MB/s {:>9.0} IO/s {:>9.0} commits/s",
            ios as f64 / seconds,
            commits as f64 / seconds
        );
    }

    fn write_phase(&mut self, phase: &str, crcs: &[Vec<u32>], batches_max: usize) {
        let start = Instant::now();
        let mut commits = 0;
        while commits < batches_max && start.elapsed().as_secs_f64() < self.options.seconds {
            self.write_batch(crcs);
            commits += 1;
        }
        self.report(phase, commits * self.options.batch, commits, start.elapsed());
    }

    fn read_phase(&mut self) {
        let mut buf = vec![0; self.options.io_bytes];
        let mut crcs = Vec::new();
        let start = Instant::now();
        let mut ios = 0;
        while start.elapsed().as_secs_f64() < self.options.seconds {
            let offset = self.offset();
            self.store.read(self.chunk, offset, &mut buf, &mut crcs).expect("was written");
            black_box(&buf);
            ios += 1;
        }
        self.report("read", ios, 0, start.elapsed());
    }
}

fn main() {
    let options = Options::parse();
    assert!(options.io_bytes.is_multiple_of(SLICE_BYTES), "--io-bytes is a multiple of 4096");
    let config = StoreConfig::default().preallocate_bytes(options.preallocate_bytes);
    let media = FileMedia::new(&options.dir).expect("the directory can be made");
    let mut store = Store::open(media, config).expect("the store opens");
    let chunk = ChunkId(1);
    if store.stat(chunk).is_some() {
        store.stage_delete(chunk).expect("it is there");
        store.commit().expect("the medium flushes");
    }
    store.stage_create(chunk, None).expect("it is not there");
    store.commit().expect("the medium flushes");
    let data: Vec<_> = (0..4).map(|b: u8| vec![b.wrapping_mul(57); options.io_bytes]).collect();
    let ios = options.set_bytes / options.io_bytes;
    let offsets = (0..ios).map(|at| (at * options.io_bytes) as u64);
    let crcs: Vec<_> = offsets
        .flat_map(|at| data.iter().map(move |d| (at, d)))
        .map(|(at, d)| writer_crcs(chunk, at, d))
        .collect();
    let batches = ios / options.batch;
    let mut bench = Bench { store, options, chunk, data, next: 0 };
    bench.write_phase("write, new", &crcs, batches);
    bench.next = 0;
    bench.write_phase("write, again", &crcs, usize::MAX);
    bench.read_phase();
    println!("{:#?}", bench.store.stats());
    let Bench { store, options, chunk, .. } = bench;
    worker_phase(store, &options, chunk, &crcs);
}

/// The same writes through the worker's queue, `batch` of them under way at any time.
fn worker_phase(store: Store<FileMedia>, options: &Options, chunk: ChunkId, crcs: &[Vec<u32>]) {
    let worker = StoreWorker::<Vec<u8>>::spawn(store, options.batch).expect("a thread starts");
    let ios = options.set_bytes / options.io_bytes;
    let mut sent = 0;
    let mut send = |data: Vec<Vec<u8>>, mut list: Vec<u32>| {
        let at = sent % ios;
        sent += 1;
        // The data is all zeros, as is the first of the patterns that have checksums.
        list.clone_from(&crcs[at * 4]);
        let offset = (at * options.io_bytes) as u64;
        let verified = !options.verify;
        let request = Request::Write { chunk, offset, data, crcs: list, verified };
        worker.send(at as u64, request).expect("the thread runs");
    };
    let start = Instant::now();
    for _ in 0..options.batch {
        send(vec![vec![0; options.io_bytes]], Vec::new());
    }
    let mut done = 0;
    while start.elapsed().as_secs_f64() < options.seconds {
        let completion = worker.completions().recv().expect("the thread runs");
        let Reply::Write { result, data, crcs } = completion.reply else { continue };
        result.expect("the set fits the store");
        done += 1;
        send(data, crcs);
    }
    let seconds = start.elapsed().as_secs_f64();
    let mb = (done * options.io_bytes) as f64 / 1e6 / seconds;
    println!("{:<14} {mb:>9.0} MB/s {:>9.0} IO/s", "write, worker", done as f64 / seconds);
    worker.stop().expect("the medium flushes");
}

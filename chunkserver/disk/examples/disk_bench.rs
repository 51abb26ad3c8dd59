//! How many 4 KiB reads and writes a disk does a second: by io_uring, by threads, and by fio.
//!
//! `cargo run --profile dist -p towpath-disk --example disk_bench -- FILE`, where FILE is made
//! (1 GiB) or was made by an earlier run; `--rounds 5 --seconds 2 --pages 262144` are the defaults.
//! The three are run in turns, so that the machine's moods meet all of them alike. fio is left out
//! where there is none. A line gives the median of the rounds, the least and the most, and the
//! processor time of an operation (of all threads of the process; fio says it of its one). `--only
//! "read, depth 32"` leaves the other cases out. Results are in docs/bench-log.md.

#![forbid(unsafe_code)]

mod arguments;

use std::error::Error;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use towpath_base::Prng;
use towpath_disk::{
    Disk, Done, NewFile, OP_PAGES_MAX, Op, Options, PAGE_BYTES, PageNumber, ReadPages, WritePages,
    open,
};
use towpath_memory::{Buf, Pool};

use arguments::Arguments;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// One way to use a disk.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    depth: usize,
    is_write: bool,
    is_flushed: bool,
}

const CASES: [Case; 4] = [
    Case { name: "read, depth 1", depth: 1, is_write: false, is_flushed: false },
    Case { name: "read, depth 32", depth: 32, is_write: false, is_flushed: false },
    Case { name: "write, depth 32", depth: 32, is_write: true, is_flushed: false },
    Case { name: "write and flush, depth 1", depth: 1, is_write: true, is_flushed: true },
];

/// Who does the work.
#[derive(Clone, Copy)]
enum Way {
    Uring,
    Threads,
    Fio,
}

const WAYS: [Way; 3] = [Way::Uring, Way::Threads, Way::Fio];

/// What came of one run: operations a second, and processor time of each, microseconds.
#[derive(Clone, Copy)]
struct Figure {
    per_second: f64,
    cpu_us: Option<f64>,
}

fn opened(settings: &Arguments, depth: usize, is_uring: bool) -> Outcome<Box<dyn Disk>> {
    let create = Some(NewFile { page_count: settings.page_count, room_pages: u64::MAX });
    let thread_count = depth.min(32);
    let options = Options { depth, create, is_uring, thread_count, ..Options::default() };
    let (disk, report) = open(&settings.path, &options)?;
    if is_uring && report.why_threads.is_some() {
        return Err(format!("no io_uring: {report}").into());
    }
    Ok(disk)
}

/// Writes each page once: what was never written takes no read of the disk.
fn fill(settings: &Arguments) -> Outcome<()> {
    let mut disk = opened(settings, 4, true)?;
    println!("{}: {} pages", settings.path.display(), disk.page_count());
    let pool = Pool::with_count(256 * PAGE_BYTES, 4)?;
    let (mut at, mut done, mut prng) = (0, Vec::new(), Prng::new(1));
    while at < disk.page_count() || disk.in_flight() > 0 {
        if let Some(mut buf) = (at < disk.page_count()).then(|| pool.take()).flatten() {
            let count = (disk.page_count() - at).min(256).min(OP_PAGES_MAX);
            buf.set_len(count as usize * PAGE_BYTES)?;
            prng.fill(&mut buf);
            let from = WritePages::new(buf).map_err(|_| "no pages")?;
            disk.submit(0, Op::write(PageNumber(at), from))?;
            at += count;
            continue;
        }
        disk.wait(Duration::from_secs(60), &mut done)?;
        for done in done.drain(..) {
            done.outcome?;
        }
    }
    disk.submit(0, Op::Flush)?;
    disk.wait(Duration::from_secs(60), &mut done)?;
    Ok(())
}

fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

/// The buffer of an operation that is done.
fn buf_of(op: Op) -> Option<Buf> {
    match op {
        Op::Read { mut into, .. } => into.pop().map(ReadPages::into_buf),
        Op::Write { mut from, .. } => from.pop().and_then(|pages| pages.into_buf().ok()),
        Op::Flush | Op::Discard { .. } => None,
    }
}

/// Keeps `case.depth` operations under way until the time is over. A flush follows each write where
/// the case has flushes, and counts with it as one.
fn run(case: Case, disk: &mut dyn Disk, span: Duration, seed: u64) -> Outcome<Figure> {
    let pool = Pool::with_count(PAGE_BYTES, case.depth)?;
    let (mut prng, mut done, mut count) = (Prng::new(seed), Vec::new(), 0u64);
    let page_count = disk.page_count();
    let mut next = |disk: &mut dyn Disk, buf: Buf| -> Outcome<()> {
        let at = PageNumber(prng.below(page_count));
        let op = match case.is_write {
            true => Op::write(at, WritePages::new(buf).map_err(|_| "no page")?),
            false => Op::read(at, ReadPages::new(buf).map_err(|_| "no page")?),
        };
        Ok(disk.submit(0, op)?)
    };
    let (began, cpu_began) = (Instant::now(), cpu_time());
    while let Some(mut buf) = pool.take() {
        buf.set_len(PAGE_BYTES)?;
        buf.fill(7);
        next(disk, buf)?;
    }
    let mut flushed = Vec::new();
    while began.elapsed() < span {
        disk.wait(Duration::from_secs(60), &mut done)?;
        for Done { op, outcome, .. } in done.drain(..) {
            outcome?;
            match buf_of(op) {
                Some(buf) if case.is_flushed => {
                    flushed.push(buf);
                    disk.submit(0, Op::Flush)?;
                }
                buf => {
                    count += 1;
                    let buf = buf.or_else(|| flushed.pop()).ok_or("a buffer is missing")?;
                    next(disk, buf)?;
                }
            }
        }
    }
    let (elapsed, cpu) = (began.elapsed().as_secs_f64(), cpu_time() - cpu_began);
    while disk.in_flight() > 0 {
        disk.wait(Duration::from_secs(60), &mut done)?;
    }
    let cpu_us = Some(cpu.as_secs_f64() * 1e6 / count.max(1) as f64);
    Ok(Figure { per_second: count as f64 / elapsed, cpu_us })
}

/// The same by fio; none where there is no fio.
fn run_fio(case: Case, settings: &Arguments) -> Outcome<Option<Figure>> {
    let (what, side) = if case.is_write { ("randwrite", "write") } else { ("randread", "read") };
    let mut fio = Command::new("fio");
    fio.args(["--name=disk", "--ioengine=io_uring", "--direct=1", "--bs=4k", "--time_based"]);
    fio.args(["--output-format=json", "--norandommap", "--randrepeat=0"]);
    fio.arg(format!("--filename={}", settings.path.display()));
    fio.arg(format!("--size={}", settings.page_count * PAGE_BYTES as u64));
    fio.arg(format!("--rw={what}")).arg(format!("--iodepth={}", case.depth));
    fio.arg(format!("--runtime={}", settings.span.as_secs().max(1)));
    if case.is_flushed {
        fio.arg("--fdatasync=1");
    }
    let output = match fio.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        output => output?,
    };
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let job = &report["jobs"][0];
    let per_second = job[side]["iops"].as_f64().ok_or("fio says no iops")?;
    let percent = job["usr_cpu"].as_f64().zip(job["sys_cpu"].as_f64());
    let cpu_us = percent.map(|(user, system)| (user + system) * 1e4 / per_second.max(1.0));
    Ok(Some(Figure { per_second, cpu_us }))
}

fn print(case: Case, way: &str, mut figures: Vec<Figure>) {
    figures.sort_by(|a, b| a.per_second.total_cmp(&b.per_second));
    let (Some(first), Some(last)) = (figures.first(), figures.last()) else { return };
    let (least, most) = (first.per_second, last.per_second);
    let Figure { per_second, cpu_us } = figures[figures.len() / 2];
    let cpu = cpu_us.map_or(String::new(), |us| format!(", {us:.1} us of a processor each"));
    println!("{:<24} {way:<8} {per_second:>7.0}/s, {least:.0} to {most:.0}{cpu}", case.name);
}

fn main() -> Outcome<()> {
    let settings = Arguments::read(&["--only"])?;
    fill(&settings)?;
    let mut seeds = Prng::new(settings.seed);
    let only = settings.value("--only");
    let is_wanted = |case: &Case| only.is_none_or(|only| case.name == only);
    for case in CASES.into_iter().filter(is_wanted) {
        let mut figures = WAYS.map(|_| Vec::new());
        for _ in 0..settings.rounds {
            for (way, figures) in WAYS.into_iter().zip(&mut figures) {
                let is_uring = match way {
                    Way::Uring => true,
                    Way::Threads => false,
                    Way::Fio => {
                        figures.extend(run_fio(case, &settings)?);
                        continue;
                    }
                };
                let mut disk = opened(&settings, case.depth, is_uring)?;
                figures.push(run(case, &mut *disk, settings.span, seeds.next_u64())?);
            }
        }
        for (way, figures) in ["io_uring", "threads", "fio"].into_iter().zip(figures) {
            print(case, way, figures);
        }
    }
    Ok(())
}

//! Writes to a chunk server against what network and store could do each alone, in one run.
//!
//! `cargo run --profile dist -p towpath-chunkserver --example write_bench -- [--dir DIR]
//! [--rounds N]`
//!
//! Each round measures, one after the other and over two processes where there is a network:
//! writes to a server that checks the data and drops it (network), the same writes handed to a
//! store directly (store), and writes to a chunk server whose store has a thread (both) and to one
//! whose network thread drives the store (inline). Two stages that take turns on the
//! same bytes reach `1 / (1/network + 1/store)`; `ratio` says how much of that was reached.

mod link;
#[path = "without_store/mod.rs"]
mod without_store;

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use towpath_chunkserver::daemon::{self, DaemonConfig, DriveDisk, StopFlag};
use towpath_chunkserver::store::core::StoreThread;
use towpath_chunkserver::store::{ChunkId, NewChunk, Reply, Request, Terms, writer_crcs};
use towpath_fastpath::{ChunkClient, StorageRequest};
use towpath_transport::{Endpoint, RoceUdp};

use link::connect;
use without_store::{Outcome, serve_nothing};

const CHUNK: ChunkId = ChunkId(1);

/// How long the store may take to close: it has a flush to do.
const CLOSE_WAIT: Duration = Duration::from_secs(60);

#[derive(Clone, Parser)]
struct Args {
    /// Directory for the stores; memory-backed to leave the disk out.
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// Bytes of a write.
    #[arg(long, default_value_t = 65_536)]
    bytes: usize,
    /// Writes under way.
    #[arg(long, default_value_t = 16)]
    depth: usize,
    /// Bytes of the chunk that is written over and over.
    #[arg(long, default_value_t = 256 << 20)]
    span: u64,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Rounds, of which the medians are told.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// What this process is, beside the one that measures.
    #[arg(long, hide = true)]
    role: Option<Role>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Role {
    Null,
    Server,
    Inline,
}

fn main() -> Outcome<()> {
    let args = Args::parse();
    match args.role {
        Some(Role::Null) => serve_nothing(
            &DaemonConfig::default()
                .with(|config| config.network.listen = (Ipv4Addr::LOCALHOST, 0).into()),
        ),
        Some(Role::Server) => serve(&args, DriveDisk::Thread),
        Some(Role::Inline) => serve(&args, DriveDisk::Inline),
        None => measure(&args),
    }
}

fn measure(args: &Args) -> Outcome<()> {
    let (mut network, mut store) = (Vec::new(), Vec::new());
    let (mut both, mut inline) = (Vec::new(), Vec::new());
    for round in 0..args.rounds {
        network.push(over_network(args, Role::Null)?);
        store.push(store_alone(args)?);
        both.push(over_network(args, Role::Server)?);
        inline.push(over_network(args, Role::Inline)?);
        eprintln!(
            "round {round}: network {:.2} Gb/s, store {:.2}, both {:.2}, inline {:.2}",
            network[round], store[round], both[round], inline[round]
        );
    }
    let (network, store) = (median(network), median(store));
    let (both, inline) = (median(both), median(inline));
    let expected = 1.0 / (1.0 / network + 1.0 / store);
    let report = serde_json::json!({
        "bytes": args.bytes,
        "depth": args.depth,
        "network_gbps": network,
        "store_gbps": store,
        "both_gbps": both,
        "inline_gbps": inline,
        "in_turns_gbps": expected,
        "ratio": both / expected,
        "inline_ratio": inline / expected,
    });
    println!("{report}");
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn gbps(writes: u64, bytes: usize, since: Instant) -> f64 {
    writes as f64 * bytes as f64 * 8.0 / since.elapsed().as_secs_f64() / 1e9
}

/// A server process, and where it listens.
fn start(args: &Args, role: &str, dir: &Path) -> Outcome<(Child, SocketAddr)> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--role", role, "--span", &args.span.to_string(), "--dir"])
        .arg(dir)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    let out = child.stdout.as_mut().ok_or("no stdout")?;
    BufReader::new(out).read_line(&mut line)?;
    let addr = line.trim().rsplit(' ').next().unwrap_or_default().parse()?;
    Ok((child, addr))
}

fn over_network(args: &Args, role: Role) -> Outcome<f64> {
    let dir = scratch(args)?;
    let name = match role {
        Role::Null => "null",
        Role::Server => "server",
        Role::Inline => "inline",
    };
    let (mut child, addr) = start(args, name, dir.path())?;
    let result = Writer::connect(addr).and_then(|mut writer| {
        if !matches!(role, Role::Null) {
            writer.create()?;
        }
        let gbps = writer.write(args)?;
        let links = writer.endpoint.stats_of_all_links();
        let (again, sent, rtos) = (links.chunks_retransmitted, links.chunks_sent, links.rtos);
        eprintln!("{name}: {again} of {sent} chunks sent again, {rtos} timeouts");
        Ok(gbps)
    });
    child.kill()?;
    child.wait()?;
    result
}

fn scratch(args: &Args) -> Outcome<tempfile::TempDir> {
    Ok(tempfile::Builder::new().prefix("towpath-bench").tempdir_in(&args.dir)?)
}

/// The client: writes so deep, and starts one whenever one ends.
struct Writer {
    endpoint: Endpoint<RoceUdp>,
    chunks: ChunkClient,
}

impl Writer {
    fn connect(addr: SocketAddr) -> Outcome<Self> {
        let (endpoint, chunks) = connect(addr)?;
        Ok(Self { endpoint, chunks })
    }

    fn create(&mut self) -> Outcome<()> {
        self.chunks.start_request(
            &mut self.endpoint,
            &StorageRequest::Create {
                chunk: CHUNK,
                limit_bytes: None,
                kind: NewChunk::default(),
                stamp: 0,
            },
        )?;
        while self.turn()? == 0 {}
        Ok(())
    }

    /// One turn; how many operations ended well.
    fn turn(&mut self) -> Outcome<u64> {
        let Self { endpoint, chunks } = self;
        endpoint.turn(|endpoint, event| {
            chunks.on_event(endpoint, event);
        });
        chunks.expire(endpoint);
        let mut count = 0;
        while let Some(done) = chunks.poll(endpoint) {
            done.result?;
            count += 1;
        }
        Ok(count)
    }

    fn write(&mut self, args: &Args) -> Outcome<f64> {
        let places = args.span / args.bytes as u64;
        let (mut started, mut done, mut mark) = (0u64, 0u64, 0u64);
        let (mut since, mut warm) = (Instant::now(), false);
        let span = Duration::from_secs_f64(args.seconds);
        while !warm || since.elapsed() < span {
            while started - done < args.depth as u64 {
                let mut data = self.endpoint.alloc(args.bytes)?;
                data.set_len(args.bytes)?;
                let offset = started % places * args.bytes as u64;
                self.chunks.start_write(&mut self.endpoint, CHUNK, offset, data)?;
                started += 1;
            }
            done += self.turn()?;
            if !warm && done >= places {
                (since, warm, mark) = (Instant::now(), true, done);
            }
        }
        Ok(gbps(done - mark, args.bytes, since))
    }
}

/// Settings of a server, or of its store alone: with room for each place twice, since a write takes
/// fresh pages before it gives the old ones back.
fn settings(args: &Args, dir: &Path) -> DaemonConfig {
    DaemonConfig::default().with(|config| {
        config.network.listen = (Ipv4Addr::LOCALHOST, 0).into();
        config.store.data_dir = dir.into();
        config.store.capacity_bytes = 2 * args.span + (64 << 20);
        config.store.preallocate = true;
    })
}

/// The store, fed as the server feeds it.
fn store_alone(args: &Args) -> Outcome<f64> {
    let dir = scratch(args)?;
    let (mut stores, _) = daemon::open_store(&settings(args, dir.path()).store, 1)?;
    let store: StoreThread<Vec<u8>> = stores.pop().ok_or("nobody has the store")?;
    let create =
        Request::Create { chunk: CHUNK, limit_bytes: None, kind: NewChunk::default(), stamp: 0 };
    store.try_send(0, create).map_err(|_| "the store's thread is gone")?;
    store.ring();
    store.completions().recv()?;
    let places = args.span / args.bytes as u64;
    let data = vec![7u8; args.bytes];
    // The checksums are the writer's work: made before, one list for each place.
    let crcs: Vec<Vec<u32>> =
        (0..places).map(|at| writer_crcs(CHUNK, at * args.bytes as u64, &data)).collect();
    let mut spare: Vec<Vec<u8>> = vec![data; args.depth];
    let (mut started, mut done, mut mark) = (0u64, 0u64, 0u64);
    let (mut since, mut warm) = (Instant::now(), false);
    let span = Duration::from_secs_f64(args.seconds);
    while !warm || since.elapsed() < span {
        while let Some(data) = spare.pop() {
            let place = started % places;
            let crcs = crcs[place as usize].clone();
            let offset = place * args.bytes as u64;
            let data = vec![data];
            let terms = Terms::default();
            let write = Request::Write {
                chunk: CHUNK,
                offset,
                data,
                crcs,
                staged: None,
                verified: true,
                terms,
            };
            store.try_send(started, write).map_err(|_| "the store's thread is gone")?;
            started += 1;
        }
        store.ring();
        let Reply::Write { result, data, .. } = store.completions().recv()?.reply else {
            return Err("the store answered something else".into());
        };
        result?;
        spare.extend(data);
        done += 1;
        if !warm && done >= places {
            (since, warm, mark) = (Instant::now(), true, done);
        }
    }
    let gbps = gbps(done - mark, args.bytes, since);
    store.stop_within(CLOSE_WAIT).ok_or("the store does not end")??;
    Ok(gbps)
}

/// A chunk server as the program runs it.
fn serve(args: &Args, drive_disk: DriveDisk) -> Outcome<()> {
    let settings = settings(args, &args.dir.join("store"));
    let config = settings.with(|config| {
        config.network.workers = Some(1);
        config.network.drive_disk = drive_disk;
    });
    let ready = |ready: &daemon::Ready| daemon::print_ready(ready, false);
    daemon::run(&config, &StopFlag::new(), daemon::udp_devices, ready)?;
    Ok(())
}

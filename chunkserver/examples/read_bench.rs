//! Measures reads of 4 KiB of a resident chunk, by READs and by requests, and what its writes cost.

mod link;

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use towpath_base::Prng;
use towpath_chunkserver::daemon::{self, DaemonConfig, StopFlag};
use towpath_fastpath::{
    ChunkClient, ChunkId, Client, ClientConfig, Method, NewChunk, OpId, Output, ResidentStats,
    SLICE_BYTES,
};
use towpath_transport::{Endpoint, Nanos, RoceUdp};

const CHUNK: ChunkId = ChunkId(1);
const PLAIN: ChunkId = ChunkId(2);
const DEPTHS: [usize; 2] = [1, 16];

/// Starts a chunk server in a process of its own, on loopback, and reads slices of one resident
/// chunk at random, by READs and by requests in turns; then it writes to that chunk and to one that
/// is not resident. Prints operations per second, the median over the rounds, the least and the
/// most, and the processor time of the server for each.
#[derive(Parser)]
struct Options {
    /// Directory of the store; must be empty.
    #[arg(long)]
    dir: PathBuf,
    /// Bytes of the chunk.
    #[arg(long, default_value_t = 64 << 20)]
    chunk_bytes: usize,
    /// Rounds: each measures every kind and depth once.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Is the server.
    #[arg(long, hide = true)]
    serve: bool,
}

fn serve(options: &Options) {
    let config = DaemonConfig::default().with(|config| {
        config.network.listen = (Ipv4Addr::LOCALHOST, 0).into();
        config.store.data_dir = options.dir.clone();
        config.store.resident_bytes = options.chunk_bytes as u64;
        config.telemetry.log = "warn".into();
    });
    let served = daemon::run(&config, &StopFlag::new(), daemon::udp_devices, |ready| {
        println!("{}", ready.listening);
        Ok(())
    });
    served.expect("the server runs until it is killed");
}

struct Server {
    process: Child,
    addr: SocketAddr,
}

impl Server {
    fn start(options: &Options) -> Self {
        let program = std::env::current_exe().expect("this program has a path");
        let mut command = Command::new(program);
        command.arg("--serve").arg("--dir").arg(&options.dir);
        command.arg("--chunk-bytes").arg(options.chunk_bytes.to_string());
        let mut process = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        let out = process.stdout.as_mut().expect("it is piped");
        BufReader::new(out).read_line(&mut line).expect("it says where it listens");
        Self { addr: line.trim().parse().expect("an address"), process }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    /// Processor time that it has used.
    fn cpu(&self) -> Duration {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.process.id()));
        let of = |thread: std::fs::DirEntry| -> Option<u64> {
            let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse().ok()
        };
        let threads = threads.expect("the server runs").flatten();
        Duration::from_nanos(threads.filter_map(of).sum())
    }
}

/// What is measured.
#[derive(Clone, Copy, PartialEq)]
enum What {
    /// Reads of a slice by requests.
    Requests,
    /// Reads of a slice by READs.
    Reads,
    /// Writes of a slice to a chunk that is not resident.
    PlainWrites,
    /// Writes of a slice to a resident chunk.
    ResidentWrites,
}

impl What {
    const ALL: [(Self, &str); 4] = [
        (Self::Requests, "read by request"),
        (Self::Reads, "read by READ"),
        (Self::PlainWrites, "write, not resident"),
        (Self::ResidentWrites, "write, resident"),
    ];
}

/// Does it for some time with so many under way; gives operations per second, and microseconds of
/// the server's processors for each.
fn measure(
    (endpoint, chunks, server): (&mut Endpoint<RoceUdp>, &mut ChunkClient, &Server),
    options: &Options,
    depth: usize,
    what: What,
    prng: &mut Prng,
) -> (f64, f64) {
    let slices = (options.chunk_bytes / SLICE_BYTES) as u64;
    let bytes = [prng.next_u32() as u8; SLICE_BYTES];
    let cpu = server.cpu();
    let begun = Instant::now();
    let end = begun + Duration::from_secs_f64(options.seconds);
    let mut under_way: Vec<OpId> = Vec::with_capacity(depth);
    let mut done = 0_u64;
    loop {
        let is_over = Instant::now() >= end;
        while under_way.len() < depth && !is_over {
            let offset = prng.below(slices) * SLICE_BYTES as u64;
            let op = match what {
                What::Reads => chunks.start_resident_read(endpoint, CHUNK, offset, SLICE_BYTES),
                What::Requests => chunks.start_read(endpoint, CHUNK, offset, SLICE_BYTES),
                What::PlainWrites => chunks.start_write_copy(endpoint, PLAIN, offset, &bytes),
                What::ResidentWrites => chunks.start_write_copy(endpoint, CHUNK, offset, &bytes),
            };
            under_way.push(op.expect("there is room"));
        }
        if under_way.is_empty() {
            let spent = (server.cpu() - cpu).as_secs_f64() * 1e6 / done as f64;
            return (done as f64 / begun.elapsed().as_secs_f64(), spent);
        }
        endpoint.flush();
        let busy = endpoint.turn(|endpoint, event| drop(chunks.on_event(endpoint, event)));
        chunks.expire(endpoint);
        while let Some(ended) = chunks.poll(endpoint) {
            match ended.result.expect("a server that serves") {
                Output::Read(data) => {
                    assert_eq!(data.is_resident(), what == What::Reads);
                    data.release(endpoint);
                }
                other => assert!(matches!(other, Output::Changed(Method::Write, _)), "{other:?}"),
            }
            under_way.retain(|op| *op != ended.op);
            done += 1;
        }
        if !busy {
            endpoint.wait(Nanos::from_micros(200));
        }
    }
}

fn main() {
    let options = Options::parse();
    if options.serve {
        return serve(&options);
    }
    let server = Server::start(&options);
    let client = Client::connect(server.addr, ClientConfig::new()).expect("it listens");
    let mut prng = Prng::new(1);
    let mut bytes = vec![0; options.chunk_bytes];
    prng.fill(&mut bytes);
    for (chunk, resident) in [(CHUNK, true), (PLAIN, false)] {
        let kind = NewChunk { resident, ..NewChunk::default() };
        client.create(chunk, None, kind).wait().expect("there is room");
        let part = client.op_bytes_max().expect("it answers");
        for (index, bytes) in bytes.chunks(part).enumerate() {
            client.write(chunk, (index * part) as u64, bytes).wait().expect("there is room");
        }
    }
    client.close();
    let (mut endpoint, mut chunks) = link::connect(server.addr).expect("it listens");
    let cases = What::ALL.iter().flat_map(|what| DEPTHS.map(|depth| (depth, *what)));
    let mut found: Vec<_> = cases.map(|case| (case, Vec::new())).collect();
    for _ in 0..options.rounds {
        for ((depth, (what, _)), rates) in &mut found {
            let ends = (&mut endpoint, &mut chunks, &server);
            rates.push(measure(ends, &options, *depth, *what, &mut prng));
        }
    }
    println!("{:20}  depth    median/s     least      most  server us", "");
    for ((depth, (_, name)), rates) in &mut found {
        rates.sort_by(|a, b| a.0.total_cmp(&b.0));
        let ((median, _), least, most) =
            (rates[rates.len() / 2], rates[0].0, rates[rates.len() - 1].0);
        let mut spent: Vec<f64> = rates.iter().map(|(_, spent)| *spent).collect();
        spent.sort_by(f64::total_cmp);
        let spent = spent[spent.len() / 2];
        println!("{name:20}  {depth:>5}  {median:>10.0}{least:>10.0}{most:>10.0}  {spent:>9.1}");
    }
    let ResidentStats { by_read, fallen_back, torn, .. } = chunks.resident_stats();
    println!("{by_read} by READ, {fallen_back} fallen back, {torn} torn");
}

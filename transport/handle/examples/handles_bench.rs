//! A round trip of a short message between two processes whose threads block or await, beside TCP.
//!
//! `cargo run --release -p towpath-handle --example handles_bench -- [--threads 1,2,8] [--rounds 5]
//! [--trips 2000] [--bytes 64] [--ways handles,futures,parked,tokio] [--json]`
//!
//! Within a round TCP and each way take turns. `handles` blocks in calls, `futures` in
//! `EndpointHandle::block_on`, `parked` in an executor that parks its thread, `tokio` in a runtime
//! of one thread. Each thread has a channel of one
//! link, or a TCP connection, and a peer thread in the other process. A trip's switches and
//! processor time are those of both processes.

use serde_json::{Value, json};
use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::pin::pin;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use towpath_handle::{ChannelHandle, EndpointHandle, Incoming};
use towpath_transport::{EndpointConfig, SendOptions, UdpConfig};

const SOON: Duration = Duration::from_secs(30);

/// Trips of a thread that do not count.
const WARM_UP: usize = 200;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// How messages travel, and how threads wait for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Tcp,
    Handles,
    Futures,
    Parked,
    Tokio,
}

const WAYS: [(&str, Way); 5] = [
    ("tcp", Way::Tcp),
    ("handles", Way::Handles),
    ("futures", Way::Futures),
    ("parked", Way::Parked),
    ("tokio", Way::Tokio),
];

struct Options {
    threads: Vec<usize>,
    rounds: usize,
    trips: usize,
    bytes: usize,
    ways: Vec<(&'static str, Way)>,
    json: bool,
}

impl Options {
    fn read() -> Outcome<Self> {
        let (mut threads, mut rounds, mut trips) = (vec![1, 2, 8], 5, 2_000);
        let (mut bytes, mut ways, mut json) = (64, WAYS.to_vec(), false);
        let mut args = std::env::args().skip(1);
        while let Some(flag) = args.next() {
            let mut value = || args.next().ok_or(format!("{flag} needs a value"));
            match flag.as_str() {
                "--threads" => {
                    threads = value()?.split(',').map(str::parse).collect::<Result<_, _>>()?;
                }
                "--rounds" => rounds = value()?.parse()?,
                "--trips" => trips = value()?.parse()?,
                "--bytes" => bytes = value()?.parse()?,
                "--ways" => {
                    let wanted = value()?;
                    let is_wanted = |name: &str| wanted.split(',').any(|wanted| wanted == name);
                    ways.retain(|&(name, way)| way == Way::Tcp || is_wanted(name));
                }
                "--json" => json = true,
                _ => return Err(format!("no such option: {flag}").into()),
            }
        }
        Ok(Self { threads, rounds: rounds.max(1), trips: trips.max(1), bytes, ways, json })
    }
}

/// Runs a future on this thread, which sleeps meanwhile.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Sleeper(Thread);
    impl Wake for Sleeper {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Sleeper(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

fn run_on<F: Future>(way: Way, endpoint: &EndpointHandle, future: F) -> Outcome<F::Output> {
    match way {
        Way::Tokio => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
            Ok(runtime.block_on(future))
        }
        Way::Parked => Ok(block_on(future)),
        _ => Ok(endpoint.block_on(future)),
    }
}

async fn echo_async(channel: &ChannelHandle) -> Outcome<()> {
    while let Ok(Incoming::Message(request)) = channel.recv_async().await {
        let answer = request.into_payload().map_err(|_| "a request of many pieces")?;
        drop(channel.send_async(answer, SendOptions::new()).await?);
    }
    Ok(())
}

fn echo(channel: &ChannelHandle) -> Outcome<()> {
    while let Ok(Incoming::Message(request)) = channel.recv(SOON) {
        let answer = request.into_payload().map_err(|_| "a request of many pieces")?;
        drop(channel.send(answer, SendOptions::new()));
    }
    Ok(())
}

fn echo_tcp(mut stream: TcpStream, bytes: usize) -> Outcome<()> {
    stream.set_nodelay(true)?;
    let mut request = vec![0; bytes];
    while stream.read_exact(&mut request).is_ok() {
        stream.write_all(&request)?;
    }
    Ok(())
}

fn udp() -> UdpConfig {
    UdpConfig::new(Ipv4Addr::LOCALHOST.into())
}

/// The other process: tells where each way is served, and serves until it is ended.
fn serve(bytes: usize) -> Outcome<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut addrs = vec![listener.local_addr()?];
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || echo_tcp(stream, bytes));
        }
    });
    for (_, way) in &WAYS[1..] {
        let (endpoint, way) = (EndpointHandle::spawn_udp(udp(), EndpointConfig::new())?, *way);
        addrs.push(endpoint.listen((Ipv4Addr::LOCALHOST, 0).into())?);
        thread::spawn(move || {
            while let Ok(link) = endpoint.accept(Duration::MAX) {
                let endpoint = endpoint.clone();
                thread::spawn(move || {
                    while let Ok(channel) = link.accept_channel(Duration::MAX) {
                        let endpoint = endpoint.clone();
                        thread::spawn(move || match way {
                            Way::Handles => echo(&channel),
                            _ => run_on(way, &endpoint, echo_async(&channel))?,
                        });
                    }
                });
            }
        });
    }
    println!("{}", json!(addrs));
    // The parent closes our input when it has done, or died.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// The server process, which ends with this.
struct Server(Child);

impl Server {
    fn spawn(bytes: usize) -> Outcome<(Self, Vec<SocketAddr>)> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--serve", &bytes.to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        Ok((Self(child), serde_json::from_str(&line)?))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        drop(self.0.wait());
    }
}

/// What the kernel has counted of the threads of some processes.
#[derive(Clone, Copy, Default)]
struct Counts {
    /// A thread has gone to sleep, which something had to wake.
    voluntary: u64,
    involuntary: u64,
    processor_ns: u64,
}

impl Counts {
    fn now(processes: &[u32]) -> Self {
        let mut counts = Self::default();
        for process in processes {
            for task in
                fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten()
            {
                let read = |name| fs::read_to_string(task.path().join(name)).unwrap_or_default();
                let status = read("status");
                let value = |name: &str| {
                    let line = status.lines().find_map(|line| line.strip_prefix(name));
                    line.and_then(|value| value.trim().parse::<u64>().ok()).unwrap_or(0)
                };
                counts.voluntary += value("voluntary_ctxt_switches:");
                counts.involuntary += value("nonvoluntary_ctxt_switches:");
                let schedstat = read("schedstat");
                let ran = schedstat.split(' ').next().and_then(|ns| ns.parse().ok());
                counts.processor_ns += ran.unwrap_or(0);
            }
        }
        counts
    }
}

/// One trip after the other; how long each took, in nanoseconds.
fn trips(count: usize, mut trip: impl FnMut() -> Outcome<()>) -> Outcome<Vec<u64>> {
    let mut taken = Vec::with_capacity(count);
    for _ in 0..count {
        let begin = Instant::now();
        trip()?;
        taken.push(begin.elapsed().as_nanos() as u64);
    }
    Ok(taken)
}

/// What one thread asks its peer with.
enum Client {
    Tcp(TcpStream),
    Channel(ChannelHandle, EndpointHandle),
}

impl Client {
    fn run(self, way: Way, bytes: usize, gates: &[Barrier; 4], count: usize) -> Outcome<Vec<u64>> {
        let (request, mut answer) = (vec![7; bytes], vec![0; bytes]);
        let pass = || gates[..2].iter().map(Barrier::wait).for_each(drop);
        // Nobody ends before all were counted.
        let stay = || gates[2..].iter().map(Barrier::wait).for_each(drop);
        match self {
            Self::Tcp(mut stream) => {
                let mut trip = || {
                    stream.write_all(&request)?;
                    Ok(stream.read_exact(&mut answer)?)
                };
                trips(WARM_UP, &mut trip)?;
                pass();
                let taken = trips(count, trip);
                stay();
                taken
            }
            Self::Channel(channel, _) if way == Way::Handles => {
                let trip = || {
                    drop(channel.send(channel.copy_timeout(&request, SOON)?, SendOptions::new()));
                    let Incoming::Message(_) = channel.recv(SOON)? else {
                        return Err("pieces".into());
                    };
                    Ok(())
                };
                trips(WARM_UP, trip)?;
                pass();
                let taken = trips(count, trip);
                stay();
                taken
            }
            Self::Channel(channel, endpoint) => run_on(way, &endpoint, async {
                let mut taken = Vec::with_capacity(count);
                for number in 0..WARM_UP + count {
                    if number == WARM_UP {
                        pass();
                    }
                    let begin = Instant::now();
                    let request = channel.copy_async(&request).await?;
                    drop(channel.send_async(request, SendOptions::new()).await?);
                    let Incoming::Message(_) = channel.recv_async().await? else {
                        return Err("pieces".into());
                    };
                    taken.push(begin.elapsed().as_nanos() as u64);
                }
                stay();
                Ok(taken.split_off(WARM_UP))
            })?,
        }
    }
}

/// One measurement of one way.
struct Figures {
    /// Of a trip, in microseconds.
    median_us: f64,
    /// One in a hundred takes longer.
    p99_us: f64,
    most_us: f64,
    trips_per_second: f64,
    /// Each for one trip.
    voluntary: f64,
    involuntary: f64,
    processor_us: f64,
}

fn measure(
    options: &Options,
    threads: usize,
    way: Way,
    addr: SocketAddr,
    server: u32,
) -> Outcome<Figures> {
    let endpoint = match way {
        Way::Tcp => None,
        _ => Some(EndpointHandle::spawn_udp(udp(), EndpointConfig::new())?),
    };
    let link = endpoint.as_ref().map(|endpoint| endpoint.connect(addr)).transpose()?;
    let client = || match (&link, &endpoint) {
        (Some(link), Some(endpoint)) => {
            Ok(Client::Channel(link.open_channel(true)?, endpoint.clone()))
        }
        _ => {
            let stream = TcpStream::connect(addr)?;
            stream.set_nodelay(true)?;
            Outcome::Ok(Client::Tcp(stream))
        }
    };
    let clients = (0..threads).map(|_| client()).collect::<Outcome<Vec<_>>>()?;
    let gates = [(); 4].map(|()| Barrier::new(threads + 1));
    let processes = [std::process::id(), server];
    let (bytes, count) = (options.bytes, options.trips.div_ceil(threads));
    thread::scope(|scope| {
        let gates = &gates;
        let run = |client: Client| scope.spawn(move || client.run(way, bytes, gates, count));
        let threads: Vec<_> = clients.into_iter().map(run).collect();
        gates[0].wait();
        let before = Counts::now(&processes);
        gates[1].wait();
        let begin = Instant::now();
        gates[2].wait();
        let (span, after) = (begin.elapsed(), Counts::now(&processes));
        gates[3].wait();
        let mut taken = Vec::new();
        for thread in threads {
            taken.extend(thread.join().map_err(|_| "a thread panicked")??);
        }
        taken.sort_unstable();
        let of_trip =
            |after: u64, before: u64| after.saturating_sub(before) as f64 / taken.len() as f64;
        Ok(Figures {
            median_us: taken[taken.len() / 2] as f64 / 1e3,
            p99_us: taken[taken.len() * 99 / 100] as f64 / 1e3,
            most_us: taken[taken.len() - 1] as f64 / 1e3,
            trips_per_second: taken.len() as f64 / span.as_secs_f64(),
            voluntary: of_trip(after.voluntary, before.voluntary),
            involuntary: of_trip(after.involuntary, before.involuntary),
            processor_us: of_trip(after.processor_ns, before.processor_ns) / 1e3,
        })
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The medians of the rounds of one way, beside those of TCP.
fn summary(name: &str, threads: usize, rounds: &[Figures], tcp: &[Figures]) -> Value {
    let of = |figure: fn(&Figures) -> f64| median(rounds.iter().map(figure).collect());
    let to_tcp = |figure: fn(&Figures) -> f64| {
        median(rounds.iter().zip(tcp).map(|(own, tcp)| figure(own) / figure(tcp)).collect())
    };
    let rounded = |value: f64| (value * 1000.0).round() / 1000.0;
    json!({
        "way": name,
        "threads": threads,
        "trip_us": rounded(of(|figures| figures.median_us)),
        "trip_to_tcp": rounded(to_tcp(|figures| figures.median_us)),
        "p99_us": rounded(of(|figures| figures.p99_us)),
        "most_us": rounded(of(|figures| figures.most_us)),
        "rate": rounded(of(|figures| figures.trips_per_second)),
        "rate_to_tcp": rounded(to_tcp(|figures| figures.trips_per_second)),
        "voluntary_switches": rounded(of(|figures| figures.voluntary)),
        "involuntary_switches": rounded(of(|figures| figures.involuntary)),
        "processor_us": rounded(of(|figures| figures.processor_us)),
    })
}

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() == Some("--serve") {
        return serve(args.next().ok_or("how many bytes?")?.parse()?);
    }
    let options = Options::read()?;
    let (server, addrs) = Server::spawn(options.bytes)?;
    let mut results = Vec::new();
    for &threads in &options.threads {
        let mut rounds: Vec<Vec<Figures>> = options.ways.iter().map(|_| Vec::new()).collect();
        for _ in 0..options.rounds {
            for (rounds, &(name, way)) in rounds.iter_mut().zip(&options.ways) {
                let place = WAYS.iter().position(|&(other, _)| other == name).unwrap_or(0);
                rounds.push(measure(&options, threads, way, addrs[place], server.0.id())?);
            }
        }
        for (own, (name, _)) in rounds.iter().zip(&options.ways) {
            results.push(summary(name, threads, own, &rounds[0]));
        }
    }
    if options.json {
        println!(
            "{}",
            json!({ "bytes": options.bytes, "rounds": options.rounds, "results": results })
        );
        return Ok(());
    }
    println!(
        "way      threads   trip us  to TCP  p99 us  most us   trips/s  to TCP  sleeps  preempted  \
         cpu us"
    );
    for result in &results {
        let number = |name: &str| result[name].as_f64().unwrap_or(f64::NAN);
        println!(
            "{:<8} {:>7} {:>9.1} {:>7.2} {:>7.0} {:>8.0} {:>9.0} {:>7.2} {:>7.2} {:>10.2} {:>7.1}",
            result["way"].as_str().unwrap_or_default(),
            number("threads"),
            number("trip_us"),
            number("trip_to_tcp"),
            number("p99_us"),
            number("most_us"),
            number("rate"),
            number("rate_to_tcp"),
            number("voluntary_switches"),
            number("involuntary_switches"),
            number("processor_us"),
        );
    }
    Ok(())
}

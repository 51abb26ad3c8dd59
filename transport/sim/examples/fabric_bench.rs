//! How many packets a second cross the fabric on one core, from 16 hosts to 4,096.
//!
//! Each host of a leaf-spine keeps a window of packets to a host elsewhere under way: each that
//! comes in lets the next one go. `--trains` sends trains of 16 packets instead, `--json` prints
//! one object a line. Times are CPU time of the one thread, where the system tells it, so that a
//! busy machine shows less; counts and traces are the same on every machine.

use core::net::SocketAddr;
use std::time::{Duration, Instant};
use towpath_base::Time;
use towpath_sim::{HostConfig, HostId, LeafSpine, TxTrain, VirtualLink, World, WorldCounters};
use towpath_verbs::{PacketLink, TxPacket};

const USAGE: &str = "\
usage: fabric_bench [--json] [--trains] [--hosts N] [--packets N] [--bytes N]
  --hosts N    only so many hosts (16, 64, 256, 1024 and 4096)
  --packets N  packets to deliver with each number of hosts (1000000)
  --bytes N    bytes of a packet, BTH to ICRC (4112)
  --trains     send them in trains of 16
  --json       one object a line";

/// Packets, or trains, that each host keeps under way.
const WINDOW: usize = 4;
/// An MTU with its headers.
const PACKET_BYTES: usize = 4_096 + 16;
const TRAIN_PACKETS: u32 = 16;
const HOSTS_PER_LEAF: usize = 16;
/// Host, leaf, spine, leaf, host.
const HOPS: u64 = 4;

struct Args {
    hosts: Vec<usize>,
    packets: u64,
    bytes: usize,
    trains: bool,
    json: bool,
}

impl Args {
    fn parse() -> Option<Self> {
        let hosts = vec![16, 64, 256, 1_024, 4_096];
        let (packets, bytes) = (1_000_000, PACKET_BYTES);
        let mut args = Self { hosts, packets, bytes, trains: false, json: false };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut number = || words.next()?.parse::<u64>().ok();
            match word.as_str() {
                "--json" => args.json = true,
                "--trains" => args.trains = true,
                "--hosts" => args.hosts = vec![number()?.max(2) as usize],
                "--packets" => args.packets = number()?,
                "--bytes" => args.bytes = (number()? as usize).min(PACKET_BYTES),
                _ => return None,
            }
        }
        Some(args)
    }
}

/// One host of the benchmark.
struct Talker {
    link: VirtualLink,
    dest: SocketAddr,
    source_port: u16,
}

impl Talker {
    fn send(&mut self, args: &Args, bytes: &[u8], count: usize) {
        for _ in 0..count {
            self.source_port = (self.source_port + 1) % 16;
            let (dest, source_port) = (self.dest, self.source_port);
            if args.trains {
                let byte_len = u64::from(TRAIN_PACKETS) * args.bytes as u64;
                let (packets, tclass, token) = (TRAIN_PACKETS, 0, 0);
                let bytes = &bytes[..bytes.len().min(64)];
                let train = TxTrain { dest, source_port, tclass, packets, byte_len, token, bytes };
                self.link.transmit_trains(&[train]);
            } else {
                let mut packet = TxPacket::new(dest, source_port, 0);
                packet.push(bytes);
                self.link.transmit(&[packet]);
            }
        }
    }

    fn receive(&mut self, args: &Args) -> usize {
        if args.trains {
            self.link.receive_trains(usize::MAX, &mut |_| {})
        } else {
            self.link.receive(usize::MAX, &mut |_| {})
        }
    }
}

struct Bench<'a> {
    args: &'a Args,
    world: World,
    talkers: Vec<Talker>,
    woken: Vec<HostId>,
    bytes: Vec<u8>,
}

impl<'a> Bench<'a> {
    fn new(args: &'a Args, hosts: usize) -> Self {
        let world = World::new(1);
        let host = HostConfig { nic_queue_bytes: 1 << 20, ..HostConfig::default() };
        let hosts_per_leaf = HOSTS_PER_LEAF.min(hosts / 2);
        let (leaves, spines) = (hosts / hosts_per_leaf, hosts_per_leaf);
        let shape = LeafSpine { leaves, hosts_per_leaf, spines, host, ..LeafSpine::default() };
        let fabric = shape.build(&world).hosts;
        // Each sends half way round, so that every packet crosses a spine.
        let talker = |n: usize| Talker {
            link: world.end(fabric[n]),
            dest: world.end(fabric[(n + fabric.len() / 2) % fabric.len()]).local_addr(),
            source_port: n as u16,
        };
        let talkers = (0..fabric.len()).map(talker).collect();
        let mut bench =
            Self { args, world, talkers, woken: Vec::new(), bytes: vec![0x5a; args.bytes] };
        bench.talkers.iter_mut().for_each(|talker| talker.send(args, &bench.bytes, WINDOW));
        bench
    }

    /// Runs until so many packets were delivered in all.
    fn run(&mut self, delivered: u64) -> WorldCounters {
        let mut counters = self.world.counters();
        while counters.delivered < delivered
            && self.world.advance_to_next(Time::NEVER, &mut self.woken)
        {
            for host in self.woken.drain(..) {
                let talker = &mut self.talkers[host.0 as usize];
                let come = talker.receive(self.args);
                talker.send(self.args, &self.bytes, come);
            }
            counters = self.world.counters();
        }
        counters
    }
}

fn main() {
    let Some(args) = Args::parse() else {
        eprintln!("{USAGE}");
        std::process::exit(2);
    };
    if !args.json {
        println!(
            "{:>6} {:>10} {:>10} {:>9} {:>11} {:>11}  trace",
            "hosts", "hops", "events", "ns/event", "events/s", "hops/s"
        );
    }
    args.hosts.iter().for_each(|hosts| measure(&args, *hosts));
}

/// What this thread has run on a CPU, as Linux tells it.
fn cpu_time() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(Duration::from_nanos(stat.split_whitespace().next()?.parse().ok()?))
}

fn measure(args: &Args, hosts: usize) {
    let mut bench = Bench::new(args, hosts);
    // The slab and the heap grow to their size first.
    let before = bench.run(args.packets / 10);
    let (start, cpu_start) = (Instant::now(), cpu_time());
    let after = bench.run(before.delivered + args.packets);
    let cpu = cpu_time().zip(cpu_start).map(|(end, start)| end - start);
    let span = cpu.unwrap_or_else(|| start.elapsed());
    let unit = if args.trains { u64::from(TRAIN_PACKETS) } else { 1 };
    let hops = HOPS * (after.delivered - before.delivered) / unit;
    let events = after.events - before.events;
    let ns_per_event = span.as_nanos() as f64 / events as f64;
    let [events_per_s, hops_per_s] = [events, hops].map(|n| n as f64 / span.as_secs_f64());
    let trace = bench.world.trace_hash();
    if args.json {
        println!(
            "{{\"hosts\":{hosts},\"hops\":{hops},\"events\":{events},\
             \"ns_per_event\":{ns_per_event:.1},\"events_per_s\":{events_per_s:.0},\
             \"hops_per_s\":{hops_per_s:.0},\"trace_hash\":\"{trace:016x}\"}}"
        );
    } else {
        println!(
            "{hosts:>6} {hops:>10} {events:>10} {ns_per_event:>9.1} {events_per_s:>11.0} \
             {hops_per_s:>11.0}  {trace:016x}"
        );
    }
}

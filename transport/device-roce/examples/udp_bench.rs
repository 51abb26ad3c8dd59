//! How fast the bare UDP link is, beside kernel TCP: `udp_bench [--seconds S] [--size B] ...`.
//!
//! Two threads over loopback. `--stock` keeps to the buffers of an unprivileged process on a
//! fresh machine, `--plain` sends packets one by one.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use towpath_device_roce::udp::{UdpConfig, UdpLink};
use towpath_verbs::{PacketLink, TxPacket};

/// A row of the table: name, unit, how to measure it.
type Row<'a> = (&'a str, &'a str, &'a dyn Fn() -> Outcome<f64>);

const USAGE: &str = "udp_bench [--seconds S] [--repeat N] [--size BYTES] [--mtu BYTES] [--stock] \
                     [--plain] [--json]
  --seconds S   seconds of each measurement (default 1)
  --repeat N    times each is taken; the best counts (default 3)
  --size BYTES  bytes of a bulk run (default 61680)
  --mtu BYTES   bytes of a bulk packet (default 4112)
  --stock       receive buffers of a fresh machine without privileges
  --plain       no segmentation offload
  --json        only bulk, one piece each, as a JSON object: {\"bulk_gbps\": G}";

#[derive(Clone, Copy)]
struct Options {
    seconds: f64,
    repeat: u32,
    size: usize,
    mtu: usize,
    stock: bool,
    plain: bool,
    json: bool,
}

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let options = options()?;
    let bulk_packets = options.size.div_ceil(options.mtu).max(1);
    if options.json {
        let packets = stream(options, bulk_packets, &[options.mtu])?;
        println!("{{\"bulk_gbps\": {}}}", packets * 8.0 * options.mtu as f64 / 1e9);
        return Ok(());
    }
    let gathered = [16, options.mtu.saturating_sub(20), 4];
    let rows: [Row<'_>; 9] = [
        ("bulk, one piece each", "Gb/s", &|| {
            Ok(stream(options, bulk_packets, &[options.mtu])? * 8.0 * options.mtu as f64 / 1e9)
        }),
        ("bulk, three pieces each", "Gb/s", &|| {
            Ok(stream(options, bulk_packets, &gathered)? * 8.0 * options.mtu as f64 / 1e9)
        }),
        ("144 B, runs of 128", "M/s", &|| Ok(stream(options, 128, &[16, 124, 4])? / 1e6)),
        ("144 B, runs of 16", "M/s", &|| Ok(stream(options, 16, &[16, 124, 4])? / 1e6)),
        ("64 B, runs of 128", "M/s", &|| Ok(stream(options, 128, &[64])? / 1e6)),
        ("64 B, runs of 16", "M/s", &|| Ok(stream(options, 16, &[64])? / 1e6)),
        ("64 B, one by one", "M/s", &|| Ok(stream(options, 1, &[64])? / 1e6)),
        ("64 B one way", "us", &|| ping_pong(options)),
        ("kernel TCP, 64 B one way", "us", &|| tcp_ping_pong(options)),
    ];
    for (name, unit, measure) in rows {
        let lower_is_better = unit == "us";
        let mut best: Option<f64> = None;
        for _ in 0..options.repeat {
            let value = measure()?;
            let better = best.is_none_or(|best| (value < best) == lower_is_better);
            best = if better { Some(value) } else { best };
        }
        println!("{name:28} {:10.2} {unit}", best.unwrap_or_default());
    }
    let tcp = (0..options.repeat).map(|_| tcp_stream(options)).collect::<Outcome<Vec<_>>>()?;
    println!("{:28} {:10.2} Gb/s", "kernel TCP bulk", tcp.into_iter().fold(0.0, f64::max));
    Ok(())
}

fn options() -> Outcome<Options> {
    let mut options = Options {
        seconds: 1.0,
        repeat: 3,
        size: 61_680,
        mtu: 4_112,
        stock: false,
        plain: false,
        json: false,
    };
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let mut value = || args.next().ok_or(USAGE);
        match flag.as_str() {
            "--seconds" => options.seconds = value()?.parse()?,
            "--repeat" => options.repeat = value()?.parse()?,
            "--size" => options.size = value()?.parse()?,
            "--mtu" => options.mtu = value()?.parse()?,
            "--stock" => options.stock = true,
            "--plain" => options.plain = true,
            "--json" => options.json = true,
            _ => return Err(USAGE.into()),
        }
    }
    Ok(options)
}

fn link(options: Options) -> Outcome<UdpLink> {
    let mut config = UdpConfig::new(Ipv4Addr::LOCALHOST.into()).segmentation(!options.plain);
    if options.stock {
        config = config.force_buffers(false).rx_buffer_bytes(425_984);
    }
    Ok(UdpLink::bind(config)?)
}

/// Packets per second in runs of `run`, each packet gathered from `pieces`, in a window that the
/// receiver's buffer holds.
fn stream(options: Options, run: usize, pieces: &[usize]) -> Outcome<f64> {
    let (mut tx, mut rx) = (link(options)?, link(options)?);
    let caps = rx.caps();
    let packet_bytes: usize = pieces.iter().sum();
    let messages = if tx.segmentation() { 1 } else { run };
    let run_bytes = run * packet_bytes + messages * caps.rx_charge_bytes as usize;
    let held = caps.rx_buffer_bytes.unwrap_or(1 << 20).min(1 << 20) as usize;
    let window = (held / run_bytes * run).max(run) as u64;
    let (received, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let dest = rx.local_addr();
    let payload: Vec<Vec<u8>> = pieces.iter().map(|&bytes| vec![7; bytes]).collect();
    let mut packet = TxPacket::new(dest, 0, 0);
    payload.iter().for_each(|piece| packet.push(piece));
    let packets = vec![packet; run];
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let count = rx.receive(256, &mut |packet| {
                    assert_eq!(packet.bytes.len(), packet_bytes);
                });
                received.fetch_add(count as u64, Ordering::Release);
            }
        });
        let start = Instant::now();
        let mut sent = 0;
        while start.elapsed().as_secs_f64() < options.seconds {
            if sent + run as u64 <= received.load(Ordering::Acquire) + window {
                sent += tx.transmit(&packets) as u64;
            }
        }
        stop.store(true, Ordering::Relaxed);
        Ok(received.load(Ordering::Acquire) as f64 / start.elapsed().as_secs_f64())
    })
}

/// Microseconds one way of 64 bytes, both sides polling.
fn ping_pong(options: Options) -> Outcome<f64> {
    let (mut near, mut far) = (link(options)?, link(options)?);
    let (near_addr, far_addr) = (near.local_addr(), far.local_addr());
    let stop = AtomicBool::new(false);
    let bytes = [7; 64];
    let turn = |link: &mut UdpLink, dest: SocketAddr| {
        let mut packet = TxPacket::new(dest, 0, 0);
        packet.push(&bytes);
        link.transmit(&[packet])
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                if far.receive(64, &mut |_| {}) > 0 {
                    turn(&mut far, near_addr);
                }
            }
        });
        let start = Instant::now();
        let mut trips = 0_u64;
        while start.elapsed().as_secs_f64() < options.seconds {
            turn(&mut near, far_addr);
            while near.receive(64, &mut |_| {}) == 0 {}
            trips += 1;
        }
        stop.store(true, Ordering::Relaxed);
        Ok(start.elapsed().as_secs_f64() * 1e6 / trips as f64 / 2.0)
    })
}

fn tcp_pair() -> Outcome<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    Ok((near, far))
}

/// Gigabits per second of kernel TCP in writes of the bulk size.
fn tcp_stream(options: Options) -> Outcome<f64> {
    let (mut near, mut far) = tcp_pair()?;
    thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut buffer = vec![0; 256 * 1024];
            let mut total = 0;
            while let Ok(count @ 1..) = far.read(&mut buffer) {
                total += count as u64;
            }
            total
        });
        let payload = vec![7; options.size];
        let start = Instant::now();
        while start.elapsed().as_secs_f64() < options.seconds {
            near.write_all(&payload)?;
        }
        drop(near);
        let total = reader.join().map_err(|_| "the reader panicked")?;
        Ok(total as f64 * 8.0 / 1e9 / start.elapsed().as_secs_f64())
    })
}

/// Microseconds one way of 64 bytes over kernel TCP, both sides polling.
fn tcp_ping_pong(options: Options) -> Outcome<f64> {
    let (mut near, mut far) = tcp_pair()?;
    near.set_nonblocking(true)?;
    far.set_nonblocking(true)?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut bytes = [0; 64];
            while !stop.load(Ordering::Relaxed) {
                if far.read(&mut bytes).is_ok_and(|count| count > 0) && far.write(&bytes).is_err() {
                    return;
                }
            }
        });
        let limit = Duration::from_secs_f64(options.seconds);
        let start = Instant::now();
        let (mut trips, mut bytes) = (0_u64, [7; 64]);
        while start.elapsed() < limit {
            near.write_all(&bytes)?;
            while near.read(&mut bytes).is_err() {}
            trips += 1;
        }
        stop.store(true, Ordering::Relaxed);
        Ok(start.elapsed().as_secs_f64() * 1e6 / trips as f64 / 2.0)
    })
}

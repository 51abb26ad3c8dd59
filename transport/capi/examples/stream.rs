//! How many bytes go from one process to another: the same loop as `c/stream.c`, to compare.
//!
//! `stream serve ADDRESS:PORT` prints its port, and ends with its first link;
//! `stream send ADDRESS:PORT [BYTES [DEPTH [SECONDS]]]` prints what went;
//! `stream both ADDRESS:0 ...` is both, the server in a process of its own.

#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use towpath_transport::{
    ChannelId, Endpoint, EndpointConfig, Event, LinkId, Nanos, Outcome, RoceUdp, SendOptions,
    UdpConfig,
};

type Failure = Box<dyn Error>;

/// About 50 us of turns without work, before the core is left to others.
const IDLE_TURNS: u32 = 100;

const USAGE: &str =
    "usage: stream serve ADDRESS:PORT | stream send|both ADDRESS:PORT [BYTES [DEPTH [SECONDS]]]";

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut addr: SocketAddr = args.get(1).ok_or(USAGE)?.parse()?;
    if args[0] == "both" {
        addr.set_port(start_server(addr)?);
    }
    let endpoint = Endpoint::udp(UdpConfig::new(addr.ip()), EndpointConfig::new().streams(false))?;
    match args[0].as_str() {
        "serve" => serve(endpoint, addr),
        "send" | "both" => {
            let bytes = args.get(2).map_or(Ok(65536), |arg| arg.parse())?;
            let depth = args.get(3).map_or(Ok(32), |arg| arg.parse())?;
            let seconds = args.get(4).map_or(Ok(2.0), |arg| arg.parse())?;
            send(endpoint, addr, (bytes, depth), Duration::try_from_secs_f64(seconds)?)
        }
        _ => Err(USAGE.into()),
    }
}

/// A server in a process of its own, and its port.
fn start_server(addr: SocketAddr) -> Result<u16, Failure> {
    let mut server = Command::new(std::env::current_exe()?);
    let child = server.args(["serve", &addr.to_string()]).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.ok_or("no pipe")?).read_line(&mut line)?;
    Ok(line.trim().rsplit(' ').next().unwrap_or_default().parse()?)
}

/// A turn; waits before it where a while has brought nothing.
fn turn(
    endpoint: &mut Endpoint<RoceUdp>,
    idle: &mut u32,
    on_event: impl FnMut(&mut Endpoint<RoceUdp>, Event),
) {
    if *idle > IDLE_TURNS {
        endpoint.wait(Nanos::from_millis(1));
    }
    let busy = endpoint.turn(on_event);
    *idle = if busy { 0 } else { *idle + 1 };
}

fn serve(mut server: Endpoint<RoceUdp>, addr: SocketAddr) -> Result<(), Failure> {
    println!("listening on port {}", server.listen(addr)?.port());
    let (mut idle, mut done) = (0, false);
    while !done {
        turn(&mut server, &mut idle, |server, event| match event {
            Event::Message(message) => server.release(message),
            Event::LinkDown { .. } => done = true,
            _ => {}
        });
    }
    Ok(())
}

fn post(
    client: &mut Endpoint<RoceUdp>,
    to: (LinkId, ChannelId),
    bytes: usize,
) -> Result<(), Failure> {
    let mut buf = client.alloc(bytes)?;
    buf.set_len(bytes)?;
    client.send(to.0, to.1, buf, SendOptions::new())?;
    Ok(())
}

fn send(
    mut client: Endpoint<RoceUdp>,
    addr: SocketAddr,
    (bytes, depth): (usize, usize),
    span: Duration,
) -> Result<(), Failure> {
    client.connect(addr)?;
    let (mut idle, mut to, mut failure) = (0, None, None);
    while to.is_none() && failure.is_none() {
        turn(&mut client, &mut idle, |client, event| match event {
            Event::Connected { link, .. } => {
                failure = client.open_channel(link, false).err().map(Failure::from);
            }
            Event::ChannelOpened { link, channel, .. } => to = Some((link, channel)),
            Event::ConnectFailed { error, .. } => failure = Some(error.into()),
            _ => {}
        });
    }
    let start = Instant::now();
    let Some(to) = to else { return Err(failure.unwrap_or("no channel".into())) };
    (0..depth).try_for_each(|_| post(&mut client, to, bytes))?;
    let (mut messages, mut took) = (0_u64, Duration::ZERO);
    while took < span && failure.is_none() {
        for _ in 0..64 {
            turn(&mut client, &mut idle, |client, event| match event {
                Event::Sent { outcome: Outcome::Delivered, payload, .. } => {
                    drop(payload);
                    messages += 1;
                    if let Err(error) = post(client, to, bytes) {
                        failure = Some(error);
                    }
                }
                Event::Sent { outcome, .. } => failure = Some(format!("{outcome:?}").into()),
                Event::LinkDown { reason, .. } => failure = Some(format!("{reason}").into()),
                _ => {}
            });
        }
        took = start.elapsed();
    }
    if let Some(failure) = failure {
        return Err(failure);
    }
    let seconds = took.as_secs_f64();
    let gbps = messages as f64 * bytes as f64 * 8e-9 / seconds;
    println!("{{\"messages\": {messages}, \"seconds\": {seconds:.6}, \"gbps\": {gbps:.4}}}");
    Ok(())
}

//! Two endpoints on two threads over loopback: messages per second and what each costs.
//!
//! `cargo run --profile dist -p towpath-transport --example endpoint_bench -- [bytes] [depth]
//! [seconds] [threads] [mode]`, where the mode is `open`, `authenticate` or `encrypt`.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use towpath_device_roce::udp::UdpConfig;
use towpath_transport::keys::{HostKey, Mode, Peers, system_random};
use towpath_transport::{
    ChannelId, Endpoint, EndpointConfig, Event, LinkId, Nanos, RoceUdp, Secure, SendOptions,
    Trusted,
};

/// About 50 us of turns.
const IDLE_TURNS: u32 = 100;

static STOP: AtomicBool = AtomicBool::new(false);

fn endpoint(keys: Option<Secure>) -> Result<Endpoint<RoceUdp>, Box<dyn Error>> {
    let config = EndpointConfig::new().quota_chunks(256).credit_total(512);
    let config = keys.into_iter().fold(config, EndpointConfig::secure);
    Ok(Endpoint::udp(UdpConfig::new(Ipv4Addr::LOCALHOST.into()), config)?)
}

/// Keys of two hosts that trust each other; none where links are open.
fn keys(mode: Mode) -> Result<[Option<Secure>; 2], Box<dyn Error>> {
    let Some(sealing) = mode.sealing() else { return Ok([None, None]) };
    let near = HostKey::generate(system_random())?;
    let far = HostKey::generate(system_random())?;
    let trusting = |own: &HostKey, peer: &HostKey| -> Result<_, Box<dyn Error>> {
        let peers = Arc::new(Peers::parse(&format!("{} peer", peer.public()))?);
        Ok(Some(Secure::new(own, Trusted::Peers(peers), sealing)?))
    };
    Ok([trusting(&near, &far)?, trusting(&far, &near)?])
}

/// What the server took.
#[derive(Default)]
struct Taken {
    messages: u64,
    bytes: u64,
}

impl Taken {
    fn turn(&mut self, server: &mut Endpoint<RoceUdp>) -> bool {
        server.turn(|server, event| {
            if let Event::Message(message) = event {
                self.messages += 1;
                self.bytes += message.len() as u64;
                server.release(message);
            }
        })
    }
}

fn serve(mut server: Endpoint<RoceUdp>) -> (Taken, Endpoint<RoceUdp>) {
    let (mut taken, mut idle) = (Taken::default(), 0);
    while !STOP.load(Ordering::Relaxed) {
        let busy = taken.turn(&mut server);
        rest(&mut server, busy, &mut idle);
    }
    (taken, server)
}

/// Polls on for a while without work, then lets others have the core: one that is shared serves
/// nobody while it is polled in vain.
fn rest(endpoint: &mut Endpoint<RoceUdp>, busy: bool, idle: &mut u32) {
    *idle = if busy { 0 } else { *idle + 1 };
    if *idle > IDLE_TURNS {
        endpoint.wait(Nanos::from_millis(1));
    }
}

fn report(name: &str, endpoint: &Endpoint<RoceUdp>) {
    for link in endpoint.links() {
        eprintln!("{name}: {:?}, rtt {:?}", endpoint.stats(link), endpoint.rtt(link));
    }
    eprintln!("{name}: {:?}", endpoint.endpoint_stats());
    eprintln!("{name}: {:?}", endpoint.device().counters());
}

/// Turns both until the client has a channel.
fn open(
    client: &mut Endpoint<RoceUdp>,
    server: &mut Endpoint<RoceUdp>,
    taken: &mut Taken,
) -> (LinkId, ChannelId) {
    loop {
        let mut opened = None;
        client.turn(|client, event| match event {
            Event::Connected { link, .. } => {
                client.open_channel(link, false).expect("a fresh link has room");
            }
            Event::ChannelOpened { link, channel, .. } => opened = Some((link, channel)),
            _ => {}
        });
        taken.turn(server);
        if let Some(opened) = opened {
            return opened;
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let bytes: usize = args.next().map_or(Ok(64), |arg| arg.parse())?;
    let depth: usize = args.next().map_or(Ok(128), |arg| arg.parse())?;
    let seconds: f64 = args.next().map_or(Ok(2.0), |arg| arg.parse())?;
    let threads: usize = args.next().map_or(Ok(2), |arg| arg.parse())?;
    let mode: Mode = args.next().map_or(Ok(Mode::Open), |arg| arg.parse())?;
    let [far, near] = keys(mode)?;
    let (mut server, mut client) = (endpoint(far)?, endpoint(near)?);
    let addr = server.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    client.connect(addr)?;
    let mut taken = Taken::default();
    let (link, channel) = open(&mut client, &mut server, &mut taken);
    let mut here = Some(server);
    let served = if threads > 1 {
        here.take().map(|server| thread::spawn(move || serve(server)))
    } else {
        None
    };
    for _ in 0..depth {
        let mut buf = client.alloc(bytes)?;
        buf.set_len(bytes)?;
        client.send(link, channel, buf, SendOptions::new())?;
    }
    let (mut done, mut turns, mut busy, mut idle) = (0u64, 0u64, 0u64, 0);
    let start = Instant::now();
    let span = Duration::from_secs_f64(seconds);
    while start.elapsed() < span {
        for _ in 0..64 {
            turns += 1;
            let moved = client.turn(|client, event| {
                if let Event::Sent { payload, .. } = event {
                    done += 1;
                    let sent = client.send(link, channel, payload, SendOptions::new());
                    assert!(sent.is_ok(), "the link took as many before");
                }
            });
            busy += u64::from(moved);
            match &mut here {
                Some(server) => {
                    taken.turn(server);
                }
                None => rest(&mut client, moved, &mut idle),
            }
        }
    }
    let elapsed = start.elapsed().as_secs_f64();
    STOP.store(true, Ordering::Relaxed);
    report("client", &client);
    if let Some(served) = served {
        let (there, server) = served.join().map_err(|_| "the server thread failed")?;
        taken = there;
        report("server", &server);
    }
    println!(
        "{bytes} B, depth {depth}, {threads} threads, {mode}: {:.3} M/s, {:.2} Gb/s, {:.0} ns per \
         message; {turns} turns, {busy} busy; the server took {} ({} B)",
        done as f64 / elapsed / 1e6,
        done as f64 * bytes as f64 * 8.0 / elapsed / 1e9,
        elapsed * 1e9 / done as f64,
        taken.messages,
        taken.bytes,
    );
    Ok(())
}

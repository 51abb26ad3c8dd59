//! Two endpoints on two threads over loopback: messages per second and what each costs.
//!
//! `cargo run --release -p towpath-transport --example endpoint_bench -- [bytes] [depth] [seconds]`

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use towpath_device_roce::udp::UdpConfig;
use towpath_transport::{Endpoint, EndpointConfig, Event, RoceUdp, SendOptions};

static STOP: AtomicBool = AtomicBool::new(false);

fn endpoint() -> Result<Endpoint<RoceUdp>, Box<dyn Error>> {
    let config = EndpointConfig::new().quota_chunks(256).credit_total(512);
    Ok(Endpoint::udp(UdpConfig::new(Ipv4Addr::LOCALHOST.into()), config)?)
}

fn serve(mut server: Endpoint<RoceUdp>) -> (u64, u64) {
    let (mut messages, mut bytes) = (0, 0);
    while !STOP.load(Ordering::Relaxed) {
        server.turn(|server, event| {
            if let Event::Message(message) = event {
                messages += 1;
                bytes += message.len() as u64;
                server.release(message);
            }
        });
    }
    for link in server.links().collect::<Vec<_>>() {
        eprintln!("server {:?}", server.stats(link));
    }
    eprintln!("server {:?}", server.endpoint_stats());
    eprintln!("server {:?}", server.device().counters());
    (messages, bytes)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let bytes: usize = args.next().map_or(Ok(64), |arg| arg.parse())?;
    let depth: usize = args.next().map_or(Ok(128), |arg| arg.parse())?;
    let seconds: f64 = args.next().map_or(Ok(2.0), |arg| arg.parse())?;
    let mut server = endpoint()?;
    let addr = server.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let served = thread::spawn(move || serve(server));
    let mut client = endpoint()?;
    client.connect(addr)?;
    let mut link = None;
    while link.is_none() {
        client.turn(|client, event| {
            if let Event::Connected { link, .. } = event {
                client.open_channel(link, false).expect("a fresh link has room");
            }
            if let Event::ChannelOpened { link: of, channel, .. } = event {
                link = Some((of, channel));
            }
        });
    }
    let (link, channel) = link.expect("the loop ends with one");
    for _ in 0..depth {
        let mut buf = client.alloc(bytes).ok_or("no buffer of that size")?;
        buf.set_len(bytes)?;
        client.send(link, channel, buf, SendOptions::new())?;
    }
    let (mut done, mut turns, mut busy) = (0u64, 0u64, 0u64);
    let start = Instant::now();
    let span = Duration::from_secs_f64(seconds);
    while start.elapsed() < span {
        for _ in 0..64 {
            turns += 1;
            busy += u64::from(client.turn(|client, event| {
                if let Event::Sent { payload, .. } = event {
                    done += 1;
                    let sent = client.send(link, channel, payload, SendOptions::new());
                    assert!(sent.is_ok(), "the link took as many before");
                }
            }));
        }
    }
    let elapsed = start.elapsed().as_secs_f64();
    eprintln!("client {:?}", client.stats(link));
    eprintln!("client {:?}", client.endpoint_stats());
    eprintln!("client {:?} rtt {:?}", client.device().counters(), client.rtt(link));
    STOP.store(true, Ordering::Relaxed);
    let (messages, total) = served.join().map_err(|_| "the server thread failed")?;
    println!(
        "{bytes} B depth {depth}: {:.3} M/s, {:.2} Gb/s, {:.0} ns per message; {turns} turns, \
         {busy} busy; server took {messages} ({total} B)",
        done as f64 / elapsed / 1e6,
        done as f64 * bytes as f64 * 8.0 / elapsed / 1e9,
        elapsed * 1e9 / done as f64,
    );
    Ok(())
}

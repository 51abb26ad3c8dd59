//! A client that greets a server each second, and dials again when its link is gone: at once, then
//! after pauses that double from 100 ms to 5 s.
//!
//! Start an `echo_poll` server, then
//! `cargo run --release -p towpath-transport --example reconnect -- 127.0.0.1:7471`, and stop and
//! start the server again. A message whose link went down ends as `Unknown` or `Abandoned`: whether
//! it is sent again is up to the application.

use std::error::Error;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use towpath_transport::{
    ChannelId, Endpoint, EndpointConfig, Event, LinkId, Nanos, RoceUdp, SendOptions, UdpConfig,
};

const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

enum State {
    /// Nothing is under way until then.
    Waiting(Instant),
    Connecting,
    /// With the time of the next greeting.
    Open(LinkId, ChannelId, Instant),
}

fn main() -> Result<(), Box<dyn Error>> {
    let addr: SocketAddr =
        std::env::args().nth(1).ok_or("usage: reconnect ADDRESS:PORT")?.parse()?;
    let mut client = Endpoint::udp(UdpConfig::new(addr.ip()), EndpointConfig::new())?;
    let (mut state, mut pause) = (State::Waiting(Instant::now()), Duration::ZERO);
    loop {
        match &mut state {
            State::Waiting(until) if Instant::now() >= *until => {
                client.connect(addr)?;
                state = State::Connecting;
            }
            State::Open(link, channel, next) if Instant::now() >= *next => {
                *next += Duration::from_secs(1);
                greet(&mut client, *link, *channel);
            }
            _ => {}
        }
        let busy = client.turn(|client, event| match event {
            Event::Connected { link, .. } => {
                if let Err(error) = client.open_channel(link, true) {
                    eprintln!("no channel: {error}");
                    client.close(link);
                }
            }
            Event::ChannelOpened { link, channel, .. } => {
                println!("connected");
                pause = Duration::ZERO;
                state = State::Open(link, channel, Instant::now());
            }
            Event::ChannelClosed { link, .. } => client.close(link),
            Event::Message(message) => {
                println!("{}", String::from_utf8_lossy(&message.to_vec()));
                client.release(message);
            }
            Event::ConnectFailed { error, .. } => {
                eprintln!("{error}");
                state = State::Waiting(Instant::now() + longer(&mut pause));
            }
            Event::LinkDown { reason, .. } => {
                eprintln!("the link is down: {reason:?}");
                state = State::Waiting(Instant::now() + longer(&mut pause));
            }
            _ => {}
        });
        if !busy {
            client.wait(Nanos::from_millis(50));
        }
    }
}

fn greet(client: &mut Endpoint<RoceUdp>, link: LinkId, channel: ChannelId) {
    let options = SendOptions::new().timeout(Duration::from_secs(1));
    if let Ok(buf) = client.copy(b"hello")
        && let Err(rejected) = client.send(link, channel, buf, options)
    {
        eprintln!("not sent: {rejected}");
    }
}

/// The pause before the next dial; the one behind it is twice as long.
fn longer(pause: &mut Duration) -> Duration {
    std::mem::replace(pause, (*pause * 2).clamp(SHORTEST, LONGEST))
}

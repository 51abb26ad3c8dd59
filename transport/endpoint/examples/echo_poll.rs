//! An echo server, or a client of one, in a loop of its own.
//!
//! Server: `cargo run --release -p towpath-transport --example echo_poll -- 127.0.0.1:7471`
//! Client: the same with ` hello` behind it.

use std::error::Error;
use std::net::SocketAddr;
use towpath_transport::{Endpoint, EndpointConfig, Event, Nanos, RoceUdp, SendOptions, UdpConfig};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let addr: SocketAddr = args.next().ok_or("usage: echo_poll ADDRESS:PORT [MESSAGE]")?.parse()?;
    let endpoint = Endpoint::udp(UdpConfig::new(addr.ip()), EndpointConfig::new())?;
    match args.next() {
        Some(message) => ask(endpoint, addr, &message),
        None => serve(endpoint, addr),
    }
}

fn serve(mut server: Endpoint<RoceUdp>, addr: SocketAddr) -> Result<(), Box<dyn Error>> {
    println!("listening on {}", server.listen(addr)?);
    loop {
        let busy = server.turn(|server, event| match event {
            Event::Message(message) => {
                let (link, channel) = (message.link(), message.channel());
                match message.into_payload() {
                    Ok(reply) => {
                        if let Err(rejected) = server.send(link, channel, reply, SendOptions::new())
                        {
                            eprintln!("cannot reply: {rejected}");
                        }
                    }
                    Err(message) => eprintln!("no reply: {} bytes in pieces", message.len()),
                }
            }
            Event::Accepted { peer, .. } => println!("{} is here", peer.device_addr),
            Event::AcceptFailed { from, error } => eprintln!("{from} was turned away: {error}"),
            Event::LinkDown { reason, .. } => println!("a link is down: {reason:?}"),
            _ => {}
        });
        if !busy {
            server.wait(Nanos::from_millis(100));
        }
    }
}

fn ask(
    mut client: Endpoint<RoceUdp>,
    addr: SocketAddr,
    message: &str,
) -> Result<(), Box<dyn Error>> {
    client.connect(addr)?;
    let mut end: Option<Result<(), Box<dyn Error>>> = None;
    while end.is_none() {
        let busy = client.turn(|client, event| match event {
            Event::Connected { link, .. } => {
                if let Err(error) = client.open_channel(link, true) {
                    end = Some(Err(error.into()));
                }
            }
            Event::ChannelOpened { link, channel, .. } => {
                if let Ok(buf) = client.copy(message.as_bytes())
                    && let Err(rejected) = client.send(link, channel, buf, SendOptions::new())
                {
                    end = Some(Err(rejected.into()));
                }
            }
            Event::Message(message) => {
                println!("{}", String::from_utf8_lossy(&message.to_vec()));
                client.release(message);
                end = Some(Ok(()));
            }
            Event::ConnectFailed { error, .. } => end = Some(Err(error.into())),
            Event::LinkDown { reason, .. } => {
                end = Some(Err(format!("the link is down: {reason:?}").into()));
            }
            _ => {}
        });
        if !busy {
            client.wait(Nanos::from_millis(10));
        }
    }
    end.unwrap_or(Ok(()))
}

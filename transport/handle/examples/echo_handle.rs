//! An echo server with a thread per channel, or a client of one, through handles. Messages of any
//! length are echoed: longer ones than an endpoint takes whole come, and go back, in pieces.
//!
//! Server: `cargo run --release -p towpath-handle --example echo_handle -- 127.0.0.1:7471`
//! Client: the same with ` hello` behind it.

use std::collections::HashMap;
use std::error::Error;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;
use towpath_handle::{ChannelHandle, EndpointHandle, Incoming, WaitError};
use towpath_transport::{EndpointConfig, Payload, SendOptions, StreamId, UdpConfig};

const SOON: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let addr: SocketAddr =
        args.next().ok_or("usage: echo_handle ADDRESS:PORT [MESSAGE]")?.parse()?;
    // Without this the sender of a message longer than 252 KiB is refused, and told so.
    let config = EndpointConfig::new().streams(true);
    let endpoint = EndpointHandle::spawn_udp(UdpConfig::new(addr.ip()), config)?;
    match args.next() {
        Some(message) => ask(&endpoint, addr, &message)?,
        None => serve(&endpoint, addr)?,
    }
    endpoint.shutdown();
    Ok(())
}

fn ask(endpoint: &EndpointHandle, addr: SocketAddr, message: &str) -> Result<(), Box<dyn Error>> {
    let channel = endpoint.connect(addr)?.open_channel(true)?;
    let ticket =
        channel.send(channel.copy(message.as_bytes())?, SendOptions::new().timeout(SOON))?;
    let sent = ticket.wait(SOON)?.ok_or("no outcome")?;
    println!("the message was {:?}", sent.outcome);
    if let Incoming::Message(message) = channel.recv(SOON)? {
        println!("{}", String::from_utf8_lossy(&message.to_vec()));
    }
    Ok(())
}

fn serve(endpoint: &EndpointHandle, addr: SocketAddr) -> Result<(), Box<dyn Error>> {
    println!("listening on {}", endpoint.listen(addr)?);
    loop {
        let link = match endpoint.accept(SOON) {
            Ok(link) => link,
            Err(WaitError::Timeout) => continue,
            Err(WaitError::ShutDown) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        println!("{} is here", link.peer().device_addr);
        thread::spawn(move || {
            // A timeout says that no channel came yet.
            while link.down().is_none() {
                if let Ok(channel) = link.accept_channel(SOON) {
                    thread::spawn(move || {
                        if let Err(error) = echo(&channel) {
                            eprintln!("an echo ends: {error}");
                        }
                    });
                }
            }
        });
    }
}

/// Echoes until the channel is closed.
fn echo(channel: &ChannelHandle) -> Result<(), Box<dyn Error>> {
    let mut streams: HashMap<StreamId, usize> = HashMap::new();
    // So long a wait that a timeout is as good as an end here.
    loop {
        match channel.recv(Duration::from_secs(3600))? {
            Incoming::Message(message) => match message.into_payload() {
                Ok(payload) => reply(channel, payload)?,
                // More pieces than a message may have segments.
                Err(message) => reply(channel, channel.copy_timeout(&message.to_vec(), SOON)?)?,
            },
            Incoming::StreamChunk { stream, chunk, end, .. } => {
                let bytes = streams.entry(stream).or_default();
                *bytes += chunk.len();
                reply(channel, chunk.into_payload())?;
                if end {
                    println!("a message of {} bytes came in pieces", streams[&stream]);
                    streams.remove(&stream);
                }
            }
            Incoming::StreamAborted { stream } => {
                streams.remove(&stream);
                println!("the sender gave a message up");
            }
        }
    }
}

fn reply(channel: &ChannelHandle, payload: impl Into<Payload>) -> Result<(), Box<dyn Error>> {
    // A client that never reads does not hold this thread for longer than that.
    drop(channel.send_timeout(payload, SendOptions::new().timeout(SOON), SOON)?);
    Ok(())
}

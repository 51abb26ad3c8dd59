//! An echo server with a thread per channel, or a client of one, through handles.
//!
//! Server: `cargo run --release -p towpath-transport --example echo_handle -- 127.0.0.1:7471`
//! Client: the same with ` hello` behind it.

use std::error::Error;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;
use towpath_transport::{
    ChannelHandle, EndpointConfig, EndpointHandle, Incoming, RecvError, SendOptions, UdpConfig,
};

const LONG: Duration = Duration::from_secs(3600);

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let addr: SocketAddr =
        args.next().ok_or("usage: echo_handle ADDRESS:PORT [MESSAGE]")?.parse()?;
    let endpoint = EndpointHandle::spawn_udp(UdpConfig::new(addr.ip()), EndpointConfig::new())?;
    let Some(message) = args.next() else {
        println!("listening on {}", endpoint.listen(addr)?);
        while let Ok(link) = endpoint.accept(LONG) {
            println!("{} is here", link.peer().device_addr);
            thread::spawn(move || {
                while let Ok(channel) = link.accept_channel(LONG) {
                    thread::spawn(move || echo(&channel));
                }
            });
        }
        return Ok(());
    };
    let channel = endpoint.connect(addr)?.open_channel(true)?;
    let buf = channel.copy(message.as_bytes())?;
    channel.send(buf, SendOptions::new());
    if let Incoming::Message(message) = channel.recv(Duration::from_secs(5))? {
        println!("{}", String::from_utf8_lossy(&message.to_vec()));
    }
    endpoint.shutdown();
    Ok(())
}

fn echo(channel: &ChannelHandle) {
    loop {
        match channel.recv(LONG) {
            Ok(Incoming::Message(message)) => {
                if let Ok(reply) = channel.copy(&message.to_vec()) {
                    channel.send(reply, SendOptions::new());
                }
            }
            // Long messages come in pieces; this server has no use for them.
            Ok(_) | Err(RecvError::Timeout) => {}
            Err(RecvError::Closed) => return,
        }
    }
}

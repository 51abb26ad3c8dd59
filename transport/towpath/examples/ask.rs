//! Requests and answers: as many at a time as there is room for, over a new link when one breaks.

use std::{collections::BTreeSet, error::Error, net::Ipv4Addr, net::SocketAddr, thread, time};
use towpath::{EndpointConfig, EndpointHandle, Incoming, RecvError, SendOptions, UdpConfig};

const REQUESTS: u64 = 1_000;
const UNDER_WAY: usize = 64;
const SOON: time::Duration = time::Duration::from_secs(30);

/// Answers each request with its own bytes, which are not copied; leaves the first client early.
fn serve(server: &EndpointHandle) -> Result<(), Box<dyn Error>> {
    for answers in [300, usize::MAX] {
        let link = server.accept(SOON)?;
        let channel = link.accept_channel(SOON)?;
        for _ in 0..answers {
            let Ok(Incoming::Message(request)) = channel.recv(SOON) else { break };
            let answer = request.into_payload().map_err(|_| "a request of many pieces")?;
            drop(channel.send(answer, SendOptions::new())); // waits while the queue is full
        }
        link.close();
    }
    Ok(())
}

/// Asks until each request has its answer; returns how many links that took.
fn ask(client: &EndpointHandle, addr: SocketAddr) -> Result<u32, Box<dyn Error>> {
    let (mut unanswered, mut links) = ((0..REQUESTS).collect::<BTreeSet<u64>>(), 0);
    while !unanswered.is_empty() {
        let channel = client.connect(addr)?.open_channel(false)?;
        links += 1;
        // What has no answer may have been done or not: it is asked for again.
        let (mut requests, mut under_way) = (unanswered.clone().into_iter(), 0);
        while !unanswered.is_empty() {
            for number in requests.by_ref().take(UNDER_WAY - under_way) {
                let request = channel.copy_timeout(&number.to_le_bytes(), SOON)?;
                drop(channel.send(request, SendOptions::new().timeout(SOON))); // the answer tells
                under_way += 1;
            }
            match channel.recv(SOON) {
                Ok(Incoming::Message(answer)) => {
                    unanswered.remove(&u64::from_le_bytes(answer.to_vec()[..].try_into()?));
                    under_way -= 1;
                }
                Err(RecvError::Down(_) | RecvError::Closed(_)) => break, // connect again
                other => return Err(format!("no answer: {other:?}").into()),
            }
        }
    }
    Ok(links)
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let udp = || UdpConfig::new(Ipv4Addr::LOCALHOST.into());
    let server = EndpointHandle::spawn_udp(udp(), EndpointConfig::new())?;
    let addr = server.listen((Ipv4Addr::LOCALHOST, 0).into())?;
    let serving = thread::spawn(move || serve(&server).map_err(|error| error.to_string()));
    let client = EndpointHandle::spawn_udp(udp(), EndpointConfig::new())?;
    println!("{REQUESTS} requests were answered over {} links", ask(&client, addr)?);
    Ok(serving.join().expect("no panic")?)
}

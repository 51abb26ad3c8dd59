//! Back-pressure on one thread: a client that asks as fast as the server answers, and no faster.
//!
//! Each signal is met once: no free buffer, no place in the completion queue, no room on the
//! channel; and the thread waits for whichever comes first. See docs/limits.md.
//!
//! `cargo run --release -p towpath-handle --example back_pressure`

use std::collections::VecDeque;
use std::error::Error;
use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::task::Poll;
use std::thread;
use std::time::Duration;
use towpath_handle::{ChannelHandle, CompletionQueue, EndpointHandle, Incoming};
use towpath_transport::{AllocError, EndpointConfig, Payload, SendOptions, SubmitError, UdpConfig};

const REQUESTS: u64 = 10_000;
const SOON: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn Error>> {
    let spawn = || {
        EndpointHandle::spawn_udp(UdpConfig::new(Ipv4Addr::LOCALHOST.into()), EndpointConfig::new())
    };
    let (server, client) = (spawn()?, spawn()?);
    let addr = server.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let link = client.connect(addr)?;
    let channel = link.open_channel(true)?;
    let theirs = server.accept(SOON)?.accept_channel(SOON)?;
    let answering = thread::spawn(move || answer(&theirs));
    ask(&client, &channel)?;
    channel.close();
    drop(channel);
    answering.join().map_err(|_| "the server panicked")?;
    Ok(())
}

fn ask(endpoint: &EndpointHandle, channel: &ChannelHandle) -> Result<(), Box<dyn Error>> {
    let completions = CompletionQueue::new(64);
    // What was refused for now, to be posted first.
    let mut waiting: VecDeque<Payload> = VecDeque::new();
    let (mut asked, mut answered) = (0, 0);
    while answered < REQUESTS {
        let mut is_full = false;
        while asked < REQUESTS || !waiting.is_empty() {
            let payload = match waiting.pop_front() {
                Some(payload) => payload,
                None => match channel.copy(&asked.to_le_bytes()) {
                    Ok(buf) => {
                        asked += 1;
                        buf.into()
                    }
                    // Outcomes and dropped answers bring buffers back.
                    Err(AllocError::AllOut { .. }) => break,
                    // TooLong: never, however long one waits.
                    Err(error) => return Err(error.into()),
                },
            };
            let options = SendOptions::new().timeout(SOON);
            let Err(refused) = channel.post(payload, options, &completions) else { continue };
            match refused.error {
                SubmitError::QueueFull => is_full = true,
                SubmitError::CompletionsFull { .. } => {}
                error => return Err(error.into()),
            }
            waiting.push_front(refused.payload);
            break;
        }
        // Whichever comes first; what the others would have taken stays where it is.
        let mut writable = pin!(channel.writable_async());
        let (mut outcome, mut answer) =
            (pin!(completions.wait_async()), pin!(channel.recv_async()));
        endpoint.block_on(poll_fn(|cx| {
            if let Poll::Ready(outcome) = outcome.as_mut().poll(cx) {
                return Poll::Ready(outcome.map(drop).map_err(Box::<dyn Error>::from));
            }
            if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
                answered += u64::from(answer.is_ok());
                return Poll::Ready(answer.map(drop).map_err(Box::from));
            }
            if is_full && writable.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            Poll::Pending
        }))?;
    }
    println!("{answered} requests were answered");
    Ok(())
}

/// The server blocks instead: it has one client, and nothing else to do.
fn answer(channel: &ChannelHandle) {
    while let Ok(Incoming::Message(message)) = channel.recv(SOON) {
        let bytes = message.to_vec();
        // Before the answer, so that the buffer and its credit are back.
        drop(message);
        let Ok(buf) = channel.copy(&bytes) else { return };
        drop(channel.send(buf, SendOptions::new()));
    }
}

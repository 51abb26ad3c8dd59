//! Requests and answers on tokio: 64 tasks ask over one channel, and each awaits its own answer.

use std::collections::HashMap;
use std::error::Error;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::{runtime, sync::oneshot, task::JoinSet, time::timeout};
use towpath::{ChannelHandle, EndpointConfig, EndpointHandle, Incoming, SendOptions, UdpConfig};

const TASKS: u64 = 64;
const REQUESTS: u64 = 16;
const SOON: Duration = Duration::from_secs(30);

type Failure = Box<dyn Error + Send + Sync>;

/// Answers each request with its own bytes, which are not copied.
async fn serve(server: EndpointHandle) -> Result<(), Failure> {
    let channel = server.accept_async().await?.accept_channel_async().await?;
    while let Ok(Incoming::Message(request)) = channel.recv_async().await {
        let answer = request.into_payload().map_err(|_| "a request of many pieces")?;
        // Waits while the queue is full.
        drop(channel.send_async(answer, SendOptions::new()).await?);
    }
    Ok(())
}

/// A channel on which any task asks. Whoever is dropped while it waits leaves the others alone.
struct Client {
    channel: ChannelHandle,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Vec<u8>>>>,
}

impl Client {
    async fn ask(&self, number: u64) -> Result<Vec<u8>, Failure> {
        let (tell, answer) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(number, tell);
        let request = self.channel.copy_async(&number.to_le_bytes()).await?;
        drop(self.channel.send_async(request, SendOptions::new().timeout(SOON)).await?);
        Ok(timeout(SOON, answer).await??) // tokio's clock: futures of handles have none
    }

    /// Hands each answer to whom it is for, until the channel is closed.
    async fn read(&self) -> Result<(), Failure> {
        while let Incoming::Message(answer) = self.channel.recv_async().await? {
            let answer = answer.to_vec();
            let number = u64::from_le_bytes(answer[..].try_into()?);
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(tell) = waiting.remove(&number) {
                let _ = tell.send(answer); // it may have been dropped
            }
        }
        Err("an answer of many pieces".into())
    }
}

async fn run() -> Result<u64, Failure> {
    let udp = || UdpConfig::new(Ipv4Addr::LOCALHOST.into());
    let server = EndpointHandle::spawn_udp(udp(), EndpointConfig::new())?;
    let addr = server.listen_async((Ipv4Addr::LOCALHOST, 0).into()).await?;
    let serving = tokio::spawn(serve(server));
    let endpoint = EndpointHandle::spawn_udp(udp(), EndpointConfig::new())?;
    let channel = endpoint.connect_async(addr).await?.open_channel_async(false).await?;
    let client = Arc::new(Client { channel, waiting: Mutex::default() });
    let reading = tokio::spawn({
        let client = Arc::clone(&client);
        async move { client.read().await }
    });
    let mut asking = JoinSet::new();
    for task in 0..TASKS {
        let client = Arc::clone(&client);
        asking.spawn(async move {
            for number in task * REQUESTS..(task + 1) * REQUESTS {
                assert_eq!(client.ask(number).await?, number.to_le_bytes());
            }
            Ok::<u64, Failure>(REQUESTS)
        });
    }
    let mut answered = 0;
    while let Some(done) = asking.join_next().await {
        answered += done??;
    }
    reading.abort(); // drops a future that waits: nothing is lost with it
    let _ = reading.await;
    drop(client); // closes the channel, which ends the server
    serving.await??;
    Ok(answered)
}

pub(crate) fn main() -> Result<(), Failure> {
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build()?;
    println!("{} requests were answered", runtime.block_on(run())?);
    Ok(())
}

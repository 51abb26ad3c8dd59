//! What tokio costs: requests a second of one client that keeps 64 under way, by calls that block,
//! by futures in one task, and by 64 tasks that each await an answer.
//!
//! `cargo run --profile dist -p towpath --example tokio_cost -- [ROUNDS [REQUESTS [BYTES]]]`
//!
//! The clients take turns within each round, over one server. Prints one line of JSON: medians and
//! extremes, in requests a second, and the median ratio within a round to the client that blocks.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::error::Error;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::LocalSet;
use towpath::{ChannelHandle, EndpointConfig, EndpointHandle, Incoming, SendOptions, UdpConfig};

const UNDER_WAY: usize = 64;
const SOON: Duration = Duration::from_secs(30);
const NAMES: [&str; 4] = ["blocking", "one_task", "one_task_two_threads", "tasks"];

type Outcome<T> = Result<T, Box<dyn Error>>;

fn serve(server: &EndpointHandle) -> Outcome<()> {
    let link = server.accept(SOON)?;
    while let Ok(channel) = link.accept_channel(SOON) {
        while let Ok(Incoming::Message(request)) = channel.recv(SOON) {
            let answer = request.into_payload().map_err(|_| "a request of many pieces")?;
            drop(channel.send(answer, SendOptions::new()));
        }
    }
    Ok(())
}

fn blocking(channel: &ChannelHandle, requests: usize, body: &[u8]) -> Outcome<()> {
    let (mut asked, mut answered) = (0, 0);
    while answered < requests {
        while asked < requests && asked - answered < UNDER_WAY {
            drop(channel.send(channel.copy_timeout(body, SOON)?, SendOptions::new()));
            asked += 1;
        }
        let Incoming::Message(_) = channel.recv(SOON)? else { return Err("pieces".into()) };
        answered += 1;
    }
    Ok(())
}

async fn one_task(channel: &ChannelHandle, requests: usize, body: &[u8]) -> Outcome<()> {
    let (mut asked, mut answered) = (0, 0);
    while answered < requests {
        while asked < requests && asked - answered < UNDER_WAY {
            drop(channel.send_async(channel.copy_async(body).await?, SendOptions::new()).await?);
            asked += 1;
        }
        let Incoming::Message(_) = channel.recv_async().await? else { return Err("pieces".into()) };
        answered += 1;
    }
    Ok(())
}

/// On one thread. The channel is ordered, so that answers come in the order of the requests.
async fn tasks(channel: &ChannelHandle, requests: usize, body: &[u8]) -> Outcome<()> {
    let (left, waiting) = (Rc::new(Cell::new(requests)), Rc::new(RefCell::new(VecDeque::new())));
    let local = LocalSet::new();
    for _ in 0..UNDER_WAY {
        let (left, waiting) = (Rc::clone(&left), Rc::clone(&waiting));
        let (channel, body) = (channel.clone(), body.to_vec());
        local.spawn_local(async move {
            while left.get() > 0 {
                left.set(left.get() - 1);
                let request = channel.copy_async(&body).await.expect("it fits");
                let (tell, answer) = oneshot::channel();
                waiting.borrow_mut().push_back(tell);
                drop(
                    channel.send_async(request, SendOptions::new()).await.expect("an open channel"),
                );
                answer.await.expect("an answer");
            }
        });
    }
    let read = async {
        for _ in 0..requests {
            let Incoming::Message(answer) = channel.recv_async().await? else {
                return Err("pieces".into());
            };
            let first = waiting.borrow_mut().pop_front();
            let _ = first.ok_or("an answer too many")?.send(answer);
        }
        Ok(())
    };
    local.run_until(read).await
}

fn run(which: usize, channel: &ChannelHandle, requests: usize, body: &[u8]) -> Outcome<f64> {
    let one = Builder::new_current_thread().enable_time().build()?;
    let begin = Instant::now();
    match which {
        0 => blocking(channel, requests, body)?,
        1 => one.block_on(one_task(channel, requests, body))?,
        2 => {
            let two = Builder::new_multi_thread().worker_threads(2).enable_time().build()?;
            let (channel, body) = (channel.clone(), body.to_vec());
            let asking = two.spawn(async move {
                one_task(&channel, requests, &body).await.map_err(|error| error.to_string())
            });
            two.block_on(asking)??;
        }
        _ => one.block_on(tasks(channel, requests, body))?,
    }
    Ok(requests as f64 / begin.elapsed().as_secs_f64())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<usize>());
    let mut next = |default: usize| args.next().unwrap_or(Ok(default));
    let (rounds, requests, bytes) = (next(11)?.max(1), next(100_000)?, next(64)?.max(1));
    let udp = || UdpConfig::new(Ipv4Addr::LOCALHOST.into());
    let server = EndpointHandle::spawn_udp(udp(), EndpointConfig::new())?;
    let addr = server.listen((Ipv4Addr::LOCALHOST, 0).into())?;
    let serving = thread::spawn(move || serve(&server).map_err(|error| error.to_string()));
    let client = EndpointHandle::spawn_udp(udp(), EndpointConfig::new())?;
    let (link, body) = (client.connect(addr)?, vec![7; bytes]);
    let mut rates = NAMES.map(|_| Vec::new());
    for _ in 0..rounds {
        for (which, rates) in rates.iter_mut().enumerate() {
            let channel = link.open_channel(true)?;
            rates.push(run(which, &channel, requests, &body)?);
        }
    }
    link.close();
    serving.join().map_err(|_| "the server panicked")??;
    let base = rates[0].clone();
    let lines = NAMES.iter().zip(rates).map(|(name, mut rates)| {
        let mut ratios: Vec<_> = rates.iter().zip(&base).map(|(rate, base)| rate / base).collect();
        let (middle, ratio) = (median(&mut rates), median(&mut ratios));
        let (least, most) = (rates[0], rates[rates.len() - 1]);
        format!(
            "\"{name}\": {{\"median\": {middle:.0}, \"least\": {least:.0}, \"most\": {most:.0}, \
             \"ratio\": {ratio:.3}}}"
        )
    });
    let lines = lines.collect::<Vec<_>>().join(", ");
    println!("{{\"rounds\": {rounds}, \"requests\": {requests}, \"bytes\": {bytes}, {lines}}}");
    Ok(())
}

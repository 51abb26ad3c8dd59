//! gRPC over kernel TCP: a runtime of one thread at either end.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::baseline::grpc::{SlicesClient, serve};
use crate::baseline::{SliceStore, Verdict};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::task::LocalSet;
use towpath_chunkserver::daemon::StopFlag;

use super::load::{CHUNK, Did, LoadError, Meter, say};
use super::server::Ready;

/// How often a wish to stop is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(20);

fn runtime() -> Result<Runtime, LoadError> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// Writes.
pub(super) fn write(meter: Meter, server: SocketAddr) -> Result<Did, LoadError> {
    let depth = meter.load().depth;
    let meter = Rc::new(RefCell::new(meter));
    runtime()?.block_on(LocalSet::new().run_until(async move {
        let client = SlicesClient::connect(server).await?;
        let (sender, mut ends) = mpsc::unbounded_channel();
        for _ in 0..depth {
            let (meter, client, sender) = (Rc::clone(&meter), client.clone(), sender.clone());
            tokio::task::spawn_local(async move {
                let end = write_on(&meter, client).await;
                // The first to end is all that is waited for.
                let _ = sender.send(end);
            });
        }
        ends.recv().await.unwrap_or(Err(LoadError::Gone))
    }))
}

/// Writes one after the other until the meter has enough.
async fn write_on(meter: &RefCell<Meter>, mut client: SlicesClient) -> Result<Did, LoadError> {
    loop {
        let began = Instant::now();
        let (offset, data) = {
            let mut meter = meter.borrow_mut();
            (meter.next_offset(), meter.data())
        };
        let reply = client.write((CHUNK, offset), data).await?;
        if reply.verdict() != Verdict::Done {
            return Err(LoadError::Verdict(reply.verdict()));
        }
        if let Some(did) = meter.borrow_mut().ended(began)? {
            return Ok(did);
        }
    }
}

/// Serves until it is to stop.
pub(super) fn serve_store(stop: &StopFlag, store: impl SliceStore) -> Result<(), LoadError> {
    runtime()?.block_on(async {
        let stopped = async {
            while !stop.is_stopped() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        let (listening, serving) = serve((Ipv4Addr::LOCALHOST, 0).into(), store, stopped)?;
        say(&Ready { listening })?;
        serving.await.map_err(|error| LoadError::Grpc(error.into()))
    })
}

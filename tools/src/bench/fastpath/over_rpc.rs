//! Protobuf over our rpc.

use std::net::SocketAddr;
use std::time::Duration;

use crate::baseline::{Bytes, ProstClient, ProstDone, ProstServer, Served, SliceStore, Verdict};
use towpath_chunkserver::daemon::StopFlag;
use towpath_transport::Event;

use super::load::{CHUNK, Did, LoadError, Meter};
use super::ours::{Udp, Writer, config, connect, drive, serve};

struct Prost(ProstClient);

impl Writer for Prost {
    fn start(
        &mut self,
        endpoint: &mut Udp,
        offset: u64,
        data: Bytes,
        token: u64,
    ) -> Result<(), LoadError> {
        Ok(self.0.start_write(endpoint, (CHUNK, offset), data, token)?)
    }

    fn on_event(&mut self, endpoint: &mut Udp, event: Event) {
        self.0.on_event(endpoint, event);
    }

    fn poll(&mut self, endpoint: &mut Udp) -> Result<Option<u64>, LoadError> {
        let Some(ProstDone { token, result }) = self.0.poll(endpoint) else { return Ok(None) };
        match result? {
            Served::Write(reply) if reply.verdict() == Verdict::Done => Ok(Some(token)),
            Served::Write(reply) => Err(LoadError::Verdict(reply.verdict())),
            Served::Read(reply) => Err(LoadError::Verdict(reply.verdict())),
        }
    }
}

/// Writes.
pub(super) fn write(meter: Meter, server: SocketAddr) -> Result<Did, LoadError> {
    let load = *meter.load();
    let (mut endpoint, link, channel) = connect(config(load.depth, load.bytes), server)?;
    drive(meter, &mut endpoint, &mut Prost(ProstClient::new(link, channel)))
}

/// Serves until it is to stop.
pub(super) fn serve_store(
    stop: &StopFlag,
    spin: Duration,
    bytes: usize,
    store: impl SliceStore,
) -> Result<(), LoadError> {
    serve(stop, spin, bytes, |endpoint| {
        let mut server = ProstServer::new(endpoint, store);
        move |endpoint: &mut Udp, event: Option<Event>| match event {
            Some(event) => {
                server.on_event(endpoint, event);
                true
            }
            None => server.answer(endpoint) > 0,
        }
    })
}

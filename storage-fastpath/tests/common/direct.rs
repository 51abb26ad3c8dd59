//! A client without a thread of its own: the test drives it, and each call waits for its end.

use super::UdpEndpoint;
use std::net::{Ipv4Addr, SocketAddr};
use towpath_fastpath::NewChunk;
use towpath_fastpath::StorageRequest;
use towpath_fastpath::wire::PROTOCOL;
use towpath_fastpath::{
    ChunkClient, ChunkId, ClientError, Done, HealthConfig, HealthMonitor, OpId, Output, ReadData,
};
use towpath_transport::{Endpoint, EndpointConfig, Event, Nanos, UdpConfig};

/// The longest write of [`Direct::write`].
const WRITE_BYTES: usize = 128 << 10;

pub struct Direct {
    pub endpoint: UdpEndpoint,
    pub client: ChunkClient,
    pub monitor: HealthMonitor,
    /// Ended while another operation was waited for.
    ended: Vec<Done>,
}

impl Direct {
    /// With the settings of a test that says nothing about them.
    pub fn connect(addr: SocketAddr) -> Self {
        Self::with(addr, |client| client)
    }

    /// With a client as `set` makes it.
    pub fn with(addr: SocketAddr, set: impl Fn(ChunkClient) -> ChunkClient) -> Self {
        Self::over(EndpointConfig::new().app_protocol(PROTOCOL), addr, set)
    }

    pub fn over(
        config: EndpointConfig,
        addr: SocketAddr,
        set: impl Fn(ChunkClient) -> ChunkClient,
    ) -> Self {
        let mut endpoint = endpoint(config);
        let client = set(join(&mut endpoint, addr));
        let monitor = HealthMonitor::new(HealthConfig::new());
        Self { endpoint, client, monitor, ended: Vec::new() }
    }

    /// Takes in what has come, or waits for it.
    pub fn turn(&mut self) {
        let Self { endpoint, client, monitor, .. } = self;
        let mut busy = endpoint.poll() > 0;
        while let Some(event) = endpoint.next_event() {
            busy = true;
            monitor.on_event(&event);
            drop(client.on_event(endpoint, event));
        }
        // What has come while this host was away comes before the end of its time.
        client.expire(endpoint);
        endpoint.flush();
        let now = endpoint.now();
        monitor.look_when_due(now, endpoint, |now, after, tell| client.note_slow(now, after, tell));
        if !busy {
            let due = client.next_deadline().since(now);
            endpoint.wait(due.min(Nanos::from_millis(1)));
        }
    }

    /// Starts an operation and waits for its end.
    pub fn ask(
        &mut self,
        start: impl FnOnce(&mut ChunkClient, &mut UdpEndpoint) -> Result<OpId, ClientError>,
    ) -> Result<Output, ClientError> {
        let op = start(&mut self.client, &mut self.endpoint)?;
        self.end_of(op)
    }

    pub fn end_of(&mut self, op: OpId) -> Result<Output, ClientError> {
        self.endpoint.flush();
        loop {
            while let Some(done) = self.client.poll(&mut self.endpoint) {
                self.ended.push(done);
            }
            if let Some(place) = self.ended.iter().position(|done| done.op == op) {
                return self.ended.swap_remove(place).result;
            }
            self.turn();
        }
    }

    pub fn create(&mut self, chunk: ChunkId) -> Result<(), ClientError> {
        self.ask(|client, endpoint| {
            client.start_request(
                endpoint,
                &StorageRequest::Create {
                    chunk,
                    limit_bytes: None,
                    kind: NewChunk::default(),
                    stamp: 0,
                },
            )
        })
        .map(drop)
    }

    /// Writes a copy, in as many operations as it takes.
    pub fn write(&mut self, chunk: ChunkId, offset: u64, bytes: &[u8]) -> Result<(), ClientError> {
        for (index, part) in bytes.chunks(WRITE_BYTES).enumerate() {
            let at = offset + (index * WRITE_BYTES) as u64;
            self.ask(|client, endpoint| client.start_write_copy(endpoint, chunk, at, part))?;
        }
        Ok(())
    }

    /// Reads by a request.
    pub fn read(
        &mut self,
        chunk: ChunkId,
        offset: u64,
        length: usize,
    ) -> Result<ReadData, ClientError> {
        let op = self.client.start_read(&mut self.endpoint, chunk, offset, length)?;
        self.end_of(op).map(read)
    }

    pub fn read_resident(
        &mut self,
        chunk: ChunkId,
        offset: u64,
        length: usize,
    ) -> Result<ReadData, ClientError> {
        let start = |client: &mut ChunkClient, endpoint: &mut UdpEndpoint| {
            client.start_resident_read(endpoint, chunk, offset, length)
        };
        self.ask(start).map(read)
    }

    /// Leaves in order.
    pub fn close(mut self) {
        let links: Vec<_> = self.endpoint.links().collect();
        links.into_iter().for_each(|link| self.endpoint.close(link));
        while self.endpoint.links().next().is_some() {
            self.turn();
        }
    }
}

fn read(output: Output) -> ReadData {
    match output {
        Output::Read(data) => data,
        other => panic!("a read gave {other:?}"),
    }
}

pub fn endpoint(config: EndpointConfig) -> UdpEndpoint {
    Endpoint::udp(UdpConfig::new(Ipv4Addr::LOCALHOST.into()), config).expect("loopback UDP")
}

fn join(endpoint: &mut UdpEndpoint, addr: SocketAddr) -> ChunkClient {
    endpoint.connect(addr).expect("room for a connection");
    let mut found = None;
    while found.is_none() {
        let busy = endpoint.turn(|endpoint, event| match event {
            Event::Connected { link, .. } => {
                endpoint.open_channel(link, false).expect("a fresh link has room");
            }
            Event::ChannelOpened { link, channel, .. } => found = Some((link, channel)),
            Event::ConnectFailed { error, .. } => panic!("{error}"),
            _ => {}
        });
        if !busy {
            endpoint.wait(Nanos::from_millis(1));
        }
    }
    let (link, channel) = found.expect("it is open");
    ChunkClient::new(link, channel)
}

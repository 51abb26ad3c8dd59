//! Several workers behind one listener, and the handles of all of them.

use super::commands::Command;
use super::{EndpointHandle, LinkHandle, WaitError};
use crate::config::EndpointConfig;
use crate::error::{ConnectError, EndpointError, ListenError};
use crate::udp::roce_udp_group;
use crate::workers::{Placing, Workers};
use crossbeam_channel::{Select, TryRecvError};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use towpath_device_roce::udp::UdpConfig;
use towpath_memory::Region;
use towpath_verbs::Device;

/// Endpoints on a thread each, that are one to their peers: one address, one listener. A link and
/// its channels are one worker's; what one worker has to do costs the links of the others nothing
/// but the core, where they have the same.
#[derive(Debug)]
pub struct EndpointGroup {
    workers: Workers,
    handles: Vec<EndpointHandle>,
}

impl EndpointGroup {
    /// A worker for each device; all of them must have one address.
    ///
    /// # Errors
    /// [`EndpointError`]: of the first endpoint that could not be made.
    pub fn spawn<D>(
        devices: Vec<D>,
        config: &EndpointConfig,
        placing: Placing,
    ) -> Result<Self, EndpointError>
    where
        D: Device<Memory = Region> + Send + 'static,
    {
        let workers = Workers::new(devices.len(), placing, config.seed);
        let spawn = |(index, device)| {
            EndpointHandle::spawn(move || Ok(device), config.clone().of_worker(&workers, index))
        };
        let handles = devices.into_iter().enumerate().map(spawn).collect::<Result<_, _>>()?;
        Ok(Self { workers, handles })
    }

    /// `count` workers on the default device.
    ///
    /// # Errors
    /// [`EndpointError`].
    pub fn spawn_udp(
        udp: UdpConfig,
        config: &EndpointConfig,
        count: usize,
        placing: Placing,
    ) -> Result<Self, EndpointError> {
        Self::spawn(roce_udp_group(udp, config, count)?, config, placing)
    }

    /// The handle of each worker.
    #[must_use]
    pub fn workers(&self) -> &[EndpointHandle] {
        &self.handles
    }

    /// How many links each worker has.
    pub fn links(&self) -> impl Iterator<Item = usize> {
        self.workers.links()
    }

    /// Listens for peers on a TCP address; port 0 is any free one. Returns the address with its
    /// port; [`accept`](Self::accept) gives the links of all workers.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn listen(&self, addr: SocketAddr) -> Result<SocketAddr, ListenError> {
        self.handles.first().ok_or(ListenError::ShutDown)?.listen(addr)
    }

    /// Connects the worker with the fewest links to a peer that listens on a TCP address. For
    /// another one ask [its handle](Self::workers). Blocks until the link is up.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(&self, addr: SocketAddr) -> Result<LinkHandle, ConnectError> {
        let chosen = self.handles.get(self.workers.least_loaded());
        chosen.ok_or(ConnectError::ShutDown)?.connect(addr)
    }

    /// The next link that a peer connected to any worker.
    ///
    /// # Errors
    /// [`WaitError::Timeout`] when none came within `timeout`; [`WaitError::ShutDown`] when all
    /// workers have ended, so that none will come, and [`WaitError::Panicked`] when any of them
    /// ended so.
    pub fn accept(&self, timeout: Duration) -> Result<LinkHandle, WaitError> {
        let mut running = self.handles.len();
        // Later than there are times is never.
        let until = Instant::now().checked_add(timeout);
        let mut select = Select::new();
        for handle in &self.handles {
            select.recv(&handle.accepted);
        }
        loop {
            if running == 0 {
                let has_panicked = |handle: &EndpointHandle| handle.shared.bell.has_panicked();
                let is_panic = self.handles.iter().any(has_panicked);
                return Err(if is_panic { WaitError::Panicked } else { WaitError::ShutDown });
            }
            let place = match until {
                Some(until) => select.ready_deadline(until).map_err(|_| WaitError::Timeout)?,
                None => select.ready(),
            };
            let handle = &self.handles[place];
            match handle.accepted.try_recv() {
                Ok(new) => return Ok(LinkHandle::new(&handle.shared, new)),
                // Another thread took it.
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => {
                    select.remove(place);
                    running -= 1;
                }
            }
        }
    }

    /// Closes all links in order, ends the workers and waits for them.
    pub fn shutdown(self) {
        // All are told first, so that none waits for another.
        for handle in &self.handles {
            handle.shared.command(Command::Shutdown);
        }
        self.handles.into_iter().for_each(EndpointHandle::shutdown);
    }
}

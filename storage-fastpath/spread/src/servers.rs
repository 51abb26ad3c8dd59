//! A client for each server.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use towpath_fastpath::{Client, ClientConfig};

use crate::error::PartError;

/// A server that could not be reached is not tried again before that: to find out takes a timeout.
const GONE_FOR: Duration = Duration::from_secs(5);

/// How long a unit may take before its file is read without it, unless set.
const LATE_AFTER: Duration = Duration::from_millis(100);

/// Clients of chunk servers, each made when it is first needed, and what files on several of them
/// are read and written with. Threads may share one.
#[derive(Debug)]
pub struct Servers {
    config: ClientConfig,
    known: Mutex<HashMap<SocketAddr, Known>>,
    late_after: Duration,
}

#[derive(Debug)]
enum Known {
    Client(Client),
    GoneSince(Instant),
}

impl Servers {
    /// Servers that are all talked to with these settings.
    #[must_use]
    pub fn new(config: ClientConfig) -> Self {
        Self { config, known: Mutex::default(), late_after: LATE_AFTER }
    }

    /// How long a read of one server may take before others are asked as well, where that is of
    /// use. Default 100 ms.
    #[must_use]
    pub fn late_after(mut self, span: Duration) -> Self {
        self.late_after = span;
        self
    }

    /// Whether two addresses are one server. Two addresses of one machine are not told apart from
    /// two machines.
    pub(crate) fn are_same(one: SocketAddr, other: SocketAddr) -> bool {
        let of = |server: SocketAddr| (server.ip().to_canonical(), server.port());
        of(one) == of(other)
    }

    pub(crate) fn late_by(&self) -> Instant {
        Instant::now() + self.late_after
    }

    /// The client of a server.
    pub(crate) fn client(&self, server: SocketAddr) -> Result<Client, PartError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get(&server) {
            Some(Known::Client(client)) => return Ok(client.clone()),
            Some(Known::GoneSince(at)) if at.elapsed() < GONE_FOR => return Err(PartError::Gone),
            _ => {}
        }
        drop(known);
        // Without the lock: it takes a while where nobody answers.
        let made = Client::connect(server, self.config.clone());
        known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match made {
            Ok(client) => {
                known.insert(server, Known::Client(client.clone()));
                Ok(client)
            }
            Err(error) => {
                known.insert(server, Known::GoneSince(Instant::now()));
                Err(error.into())
            }
        }
    }

    /// The clients of all servers, asked for at once.
    pub(crate) fn clients(&self, servers: &[SocketAddr]) -> Vec<Result<Client, PartError>> {
        std::thread::scope(|scope| {
            let asked: Vec<_> =
                servers.iter().map(|server| scope.spawn(|| self.client(*server))).collect();
            let made = asked.into_iter().map(|thread| thread.join());
            made.map(|made| made.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        })
    }

    /// What a server has answered, or not: one that does not is left alone for a while.
    pub(crate) fn note(&self, server: SocketAddr, error: &PartError) {
        if !error.is_gone() {
            return;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(server, Known::GoneSince(Instant::now()));
    }
}

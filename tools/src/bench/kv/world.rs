//! The processes of one point, and what was seen.

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;
use towpath_lab::studies::Runner;

use super::client::Did;
use super::way::{Load, Way};
use crate::child::{ChildError, Spawned};

/// How long a process may take to begin, and to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long one client may take to connect; they do so one after the other.
const CONNECTING: Duration = Duration::from_millis(20);

/// Connections of the server: the most clients, one that puts records and reads sums, and a few
/// that end.
const CONNECTIONS_MAX: usize = 10_016;

/// How often it is looked whether somebody asked to stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What is measured at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) way: Way,
    pub(super) polls: bool,
    pub(super) load: Load,
    pub(super) loss: f64,
    pub(super) clients: usize,
    pub(super) client_threads: usize,
    pub(super) workers: usize,
    pub(super) records: u64,
    pub(super) operations: u64,
    pub(super) most: Duration,
    pub(super) seed: u64,
}

/// What one round of a point gave.
pub(super) type Seen = Did;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum WorldError {
    #[error(transparent)]
    Child(#[from] ChildError),
    #[error("the server does not say where it listens")]
    Nowhere,
}

#[derive(Debug, Deserialize)]
struct Ready {
    requests: SocketAddr,
    links: Option<SocketAddr>,
    raw: Option<SocketAddr>,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { way, clients, load, .. } = self;
        write!(f, "{} {} x {clients}, {}", way.word(), self.waiting(), load.word())
    }
}

impl Point {
    /// How both ends wait, as a word.
    pub(super) const fn waiting(&self) -> &'static str {
        match (self.polls, self.way) {
            // The server's threads sleep beside memory that it granted.
            (true, Way::OneSided) => "poll (clients)",
            (true, _) => "poll",
            (false, _) => "sleep",
        }
    }

    /// Threads of its clients.
    pub(super) const fn threads(&self) -> usize {
        if self.way.shares_threads() && self.clients > self.client_threads {
            self.client_threads
        } else {
            self.clients
        }
    }

    /// Runs it, and ends all processes; none when somebody asked to stop.
    pub(super) fn measure(&self, runner: &Runner<'_>) -> Result<Option<Seen>, WorldError> {
        let mut server = self.start_server()?;
        let ready: Ready = server.next(PATIENCE)?;
        let mut clients = self.start_clients(&server, &ready)?;
        // Time to connect comes before, and the last operations end after.
        let until = Instant::now() + self.most + PATIENCE + CONNECTING * self.clients as u32;
        let did = loop {
            if runner.is_stopped() {
                return Ok(None);
            }
            match clients.poll::<Did>(LOOK_EVERY)? {
                Some(did) => break did,
                None if Instant::now() >= until => break clients.next(LOOK_EVERY)?,
                None => {}
            }
        };
        server.stop::<Value>(PATIENCE)?;
        Ok(Some(did))
    }

    fn start_server(&self) -> Result<Spawned, WorldError> {
        let mut words: Vec<String> =
            ["bench-kv-server", "--json", "--resp=127.0.0.1:0", "--requests=127.0.0.1:0"]
                .map(String::from)
                .to_vec();
        words.push(format!("--workers={}", self.workers));
        words.push(format!("--connections-max={CONNECTIONS_MAX}"));
        // Memory that is granted is served while the server's threads sleep.
        let polls = self.polls && self.way != Way::OneSided;
        words.extend(polls.then(|| String::from("--poll")));
        words.extend(self.way.server_words().iter().map(|&word| String::from(word)));
        Ok(Spawned::start("server", &words)?)
    }

    fn start_clients(&self, server: &Spawned, ready: &Ready) -> Result<Spawned, WorldError> {
        let at = match self.way {
            Way::Tcp => Some(ready.requests),
            Way::Rc | Way::Uc | Way::Ud => ready.raw,
            Way::TowpathUc
            | Way::TowpathShared
            | Way::OneSided
            | Way::TowpathRc
            | Way::TowpathTcp => ready.links,
        };
        let mut words = vec![
            String::from("bench-kv-client"),
            format!("--way={}", self.way.word()),
            format!("--server={}", at.ok_or(WorldError::Nowhere)?),
            format!("--filler={}", ready.requests),
            format!("--server-pid={}", server.pid()),
            format!("--load={}", self.load.word()),
            format!("--loss={}", self.loss),
            format!("--clients={}", self.clients),
            format!("--threads={}", self.client_threads),
            format!("--records={}", self.records),
            format!("--operations={}", self.operations),
            format!("--most-ms={}", self.most.as_millis()),
            format!("--seed={}", self.seed),
        ];
        words.extend(self.polls.then(|| String::from("--polls")));
        Ok(Spawned::start("clients", &words)?)
    }
}

//! A client for each server.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use towpath_base::Nanos;
use towpath_fastpath::{Client, ClientConfig};
use towpath_transport::Ride;

use crate::error::PartError;
use crate::notice::Notice;

/// A server that could not be reached is not tried again before that: to find out takes a timeout.
const GONE_FOR: Duration = Duration::from_secs(5);

/// How long a server may be away while a file is stored before it is done without, unless set: a
/// server that is started again at once is back before.
const LOST_AFTER: Duration = Duration::from_secs(5);

/// How long a unit may take before its file is read without it, unless set.
const LATE_AFTER: Duration = Duration::from_millis(100);

/// Clients of chunk servers, each made when it is first needed, and what files on several of them
/// are read and written with. Threads may share one.
pub struct Servers {
    config: ClientConfig,
    known: Arc<Known>,
    late_after: Duration,
    lost_after: Duration,
    patience: Duration,
    listener: Option<Listener>,
    /// Servers that a reader waits for, as was told.
    away: Mutex<Vec<SocketAddr>>,
}

type Listener = Arc<dyn Fn(&Notice) + Send + Sync>;

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servers").field("config", &self.config).finish_non_exhaustive()
    }
}

/// What is known of each server.
#[derive(Debug, Default)]
struct Known {
    states: Mutex<HashMap<SocketAddr, State>>,
    changed: Condvar,
}

#[derive(Debug)]
enum State {
    /// A thread finds out.
    Connecting,
    Client(Client),
    /// It could not be reached, for that reason.
    GoneSince(Instant, String),
}

impl Known {
    fn lock(&self) -> MutexGuard<'_, HashMap<SocketAddr, State>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, server: SocketAddr, state: State) {
        self.lock().insert(server, state);
        self.changed.notify_all();
    }
}

impl Servers {
    /// Servers that are all talked to with these settings. A server that is away is done without
    /// where the others are enough. Where they are not, a put and a get that have begun wait for
    /// it, for as long as [`ClientConfig::patience`] says.
    #[must_use]
    pub fn new(config: ClientConfig) -> Self {
        let patience = config.patience_span().into();
        // Other servers are asked in its place.
        let config = config.patience(Nanos::ZERO);
        let (late_after, lost_after) = (LATE_AFTER, LOST_AFTER);
        let (known, listener, away) = (Arc::default(), None, Mutex::default());
        Self { config, known, late_after, lost_after, patience, listener, away }
    }

    /// How long a server may be away while a file is stored before it is done without, where the
    /// others are enough. Default 5 s.
    #[must_use]
    pub fn lost_after(mut self, span: Duration) -> Self {
        self.lost_after = span;
        self
    }

    /// Has `listener` told what becomes of servers while a command goes on, as soon as it is known.
    /// Default: nobody is told. Threads of clients call it as well: it must not block.
    #[must_use]
    pub fn on_notice(mut self, listener: impl Fn(&Notice) + Send + Sync + 'static) -> Self {
        let listener: Listener = Arc::new(listener);
        let rode = Arc::clone(&listener);
        let tell = move |server, ride: &Ride| rode(&Notice::Rode { server, ride: *ride });
        self.config = self.config.on_ride(tell);
        self.listener = Some(listener);
        self
    }

    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// How long an operation may take.
    pub(crate) fn timeout(&self) -> Duration {
        self.config.timeout_span().into()
    }

    pub(crate) fn lost_after_span(&self) -> Duration {
        self.lost_after
    }

    pub(crate) fn tell(&self, notice: &Notice) {
        if let Some(listener) = &self.listener {
            listener(notice);
        }
    }

    /// Tells that a reader waits for a server, once until it is back.
    pub(crate) fn tell_away(&self, server: SocketAddr) {
        let mut away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        if !away.contains(&server) {
            away.push(server);
            drop(away);
            self.tell(&Notice::Away { server });
        }
    }

    /// Tells that a server is back for which a reader waited.
    pub(crate) fn tell_back(&self, server: SocketAddr) {
        let mut away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = away.iter().position(|told| *told == server) {
            away.swap_remove(at);
            drop(away);
            self.tell(&Notice::Back { server });
        }
    }

    /// How long a read of one server, or a connection to it, may take before a file is read from
    /// others, where that is of use. Default 100 ms.
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
        self.clients(&[server]).pop().unwrap_or(Err(PartError::Gone))
    }

    /// The client of a server, where it is there already.
    pub(crate) fn ready(&self, server: SocketAddr) -> Option<Client> {
        match self.known.lock().get(&server) {
            Some(State::Client(client)) => Some(client.clone()),
            _ => None,
        }
    }

    /// The clients of all servers, asked for at once.
    pub(crate) fn clients(&self, servers: &[SocketAddr]) -> Vec<Result<Client, PartError>> {
        self.clients_soon(servers, usize::MAX)
    }

    /// The clients of all servers; once so many are there, others are not waited for longer than a
    /// read.
    pub(crate) fn clients_soon(
        &self,
        servers: &[SocketAddr],
        enough: usize,
    ) -> Vec<Result<Client, PartError>> {
        self.clients_by(servers, enough, self.late_by())
    }

    /// The same for a file that is stored: others are waited for until they count as lost.
    pub(crate) fn clients_to_write(
        &self,
        servers: &[SocketAddr],
        enough: usize,
    ) -> Vec<Result<Client, PartError>> {
        self.clients_by(servers, enough, Instant::now() + self.lost_after)
    }

    fn clients_by(
        &self,
        servers: &[SocketAddr],
        enough: usize,
        late_by: Instant,
    ) -> Vec<Result<Client, PartError>> {
        let mut states = self.known.lock();
        for server in servers {
            let is_due = match states.get(server) {
                Some(State::GoneSince(at, _)) => at.elapsed() >= GONE_FOR,
                known => known.is_none(),
            };
            if is_due {
                states.insert(*server, self.connect(*server));
            }
        }
        while servers.iter().any(|server| matches!(states.get(server), Some(State::Connecting))) {
            let is_there =
                |server: &&SocketAddr| matches!(states.get(server), Some(State::Client(_)));
            let left = late_by.saturating_duration_since(Instant::now());
            states = if servers.iter().filter(is_there).count() < enough {
                self.known.changed.wait(states).unwrap_or_else(PoisonError::into_inner)
            } else if left.is_zero() {
                break;
            } else {
                let waited = self.known.changed.wait_timeout(states, left);
                waited.unwrap_or_else(PoisonError::into_inner).0
            };
        }
        let of = |server: &SocketAddr| match states.get(server) {
            Some(State::Client(client)) => Ok(client.clone()),
            Some(State::GoneSince(_, why)) => Err(PartError::Told(why.clone())),
            Some(State::Connecting) | None => Err(PartError::Gone),
        };
        servers.iter().map(of).collect()
    }

    /// Asks each server for something as soon as there is a client of it: who takes long to connect
    /// keeps no other one from being asked.
    pub(crate) fn ask_each<T>(
        &self,
        servers: &[SocketAddr],
        mut ask: impl FnMut(usize, Client) -> T,
    ) -> Vec<Result<T, PartError>> {
        let soon = self.clients_soon(servers, 0).into_iter().enumerate();
        let soon: Vec<Option<T>> =
            soon.map(|(at, client)| client.ok().map(|client| ask(at, client))).collect();
        let late = soon.into_iter().zip(self.clients(servers)).enumerate();
        late.map(|(at, (asked, client))| match asked {
            Some(asked) => Ok(asked),
            None => client.map(|client| ask(at, client)),
        })
        .collect()
    }

    /// Has a thread make a client: where nobody answers, that takes a while.
    fn connect(&self, server: SocketAddr) -> State {
        let (known, config) = (Arc::clone(&self.known), self.config.clone());
        let connect = move || {
            let gone = |why: String| State::GoneSince(Instant::now(), why);
            // Whatever comes of it, those who wait for it are told.
            let made = catch_unwind(AssertUnwindSafe(|| Client::connect(server, config)));
            let state = match made {
                Ok(Ok(client)) => State::Client(client),
                Ok(Err(error)) => gone(error.to_string()),
                Err(_) => gone("connecting to it panicked".into()),
            };
            known.set(server, state);
        };
        let thread = std::thread::Builder::new().name("towpath-connect".into());
        match thread.spawn(connect) {
            Ok(_) => State::Connecting,
            Err(error) => State::GoneSince(Instant::now(), error.to_string()),
        }
    }

    /// What a server has answered, or not: one that does not is left alone for a while.
    pub(crate) fn note(&self, server: SocketAddr, error: &PartError) {
        if error.is_gone() {
            self.known.set(server, State::GoneSince(Instant::now(), error.to_string()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_server_that_does_not_answer_is_not_waited_for_where_the_others_are_enough() {
        // It takes connections and says nothing.
        let mute = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let server = mute.local_addr().expect("it is bound");
        let servers = Servers::new(ClientConfig::new()).late_after(Duration::ZERO);
        let clients = servers.clients_soon(&[server], 0);
        assert!(matches!(clients[..], [Err(PartError::Gone)]), "{clients:?}");
        assert!(matches!(servers.known.lock().get(&server), Some(State::Connecting)));
        // Whoever needs it waits until it is known: here it closes what it has.
        drop(mute);
        assert!(matches!(servers.client(server), Err(PartError::Told(_))));
        assert!(servers.ready(server).is_none());
    }
}

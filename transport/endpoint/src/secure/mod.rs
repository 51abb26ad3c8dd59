//! Sealed links: what all endpoints of a host share, the handshake on set-up connections, and the
//! seal of each link (docs/secure-links.md).
//!
//! | file | what it does |
//! |---|---|
//! | `shake` | a handshake on a set-up connection |
//! | `seal` | seals what a link sends, and opens what it receives |

mod seal;
mod shake;

pub(crate) use seal::{LinkSeal, sealed_bytes};
pub(crate) use shake::{Shake, ShakeError};

use crate::error::LinkError;
use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use towpath_base::{Nanos, Time};
use towpath_proto::wire::{Hello, HelloSeal};
use towpath_secure::{
    Authority, Handshake, HandshakeError, Host, HostError, HostKey, HostKeyError, KnownSecret,
    Outcome, PeerIdentity, PeerName, Peers, PeersFile, PeersFileError, PublicKey, Role, RollOver,
    Salt, Sealing, SecretId, Secrets, SecureRandom, Trust, WallTime, limits::SECRETS_MAX,
    system_random,
};

/// How often the authorized peers are looked at: a peer whose line is gone has no link a second
/// later.
pub(crate) const TRUST_POLL: Nanos = Nanos::from_millis(250);

/// Whom a host trusts.
#[derive(Debug)]
pub enum Trusted {
    /// The peers of `authorized_peers`, which is read again when it changes.
    File(PeersFile),
    /// These.
    Peers(Arc<Peers>),
    /// Whoever has a certificate of an authority.
    Authority(Arc<Authority>),
}

/// What makes links of a host sealed: its key, whom it trusts, and the secrets that it shares with
/// peers. All endpoints of a process get the same
/// ([`EndpointConfig::secure`](crate::EndpointConfig::secure)), so that a pair of hosts shakes
/// hands once.
#[derive(Clone)]
pub struct Secure(Arc<Shared>);

struct Shared {
    public: PublicKey,
    sealing: Sealing,
    random: &'static dyn SecureRandom,
    state: Mutex<State>,
}

struct State {
    host: Host,
    trusted: Trusted,
    /// Of handshakes in which this host was the client, for HELLOs of its own.
    made: Secrets,
    /// Which of them is shared with whoever listens there.
    at: HashMap<SocketAddr, SecretId>,
    /// Of handshakes in which it was the server, for HELLOs of peers.
    taken: Secrets,
    vouched: Option<KnownSecret>,
    /// The name that servers must have.
    expected: Option<PeerName>,
    roll_over: RollOver,
    /// Counts up when the peers have changed.
    version: u64,
    refreshed_at: Option<Time>,
    /// What was wrong with the file of peers when it was last looked at.
    complaint: Option<String>,
    tally: SecureTally,
}

/// What happened with the keys of a host so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SecureTally {
    /// Handshakes that made a secret.
    pub handshakes: u64,
    /// Handshakes that failed.
    pub handshakes_failed: u64,
    /// HELLOs of peers that named a secret which this host lacks.
    pub unknown_secrets: u64,
    /// HELLOs of peers with a wrong tag.
    pub hellos_forged: u64,
    /// Links that ended because their peer was not trusted any more.
    pub links_revoked: u64,
}

/// Why the keys of a host cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecureError {
    /// Its own key.
    #[error("the host key cannot be used: {0}")]
    Key(#[from] HostKeyError),
    /// Whom it trusts.
    #[error("the authorized peers cannot be read: {0}; `towpath trust HOST:PORT` makes the file")]
    Peers(#[from] PeersFileError),
    /// The key cannot sign.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl Secure {
    /// From files: the key of the host, as `towpath keygen` makes it, and the peers that it trusts.
    ///
    /// # Errors
    /// [`SecureError`].
    pub fn open(key: &Path, peers: &Path, sealing: Sealing) -> Result<Self, SecureError> {
        let key = HostKey::read(key)?;
        let peers = PeersFile::open(peers, WallTime::now())?;
        Ok(Self::new(&key, Trusted::File(peers), sealing)?)
    }

    /// Where the peers of a host are unless somebody says otherwise: beside its key.
    #[must_use]
    pub fn peers_beside(key: &Path) -> PathBuf {
        key.with_file_name("authorized_peers")
    }

    /// For a host with that key. Its links are protected as `sealing` says, and those of its peers
    /// must be, too: nothing is negotiated.
    ///
    /// # Errors
    /// [`HostError`].
    pub fn new(key: &HostKey, trusted: Trusted, sealing: Sealing) -> Result<Self, HostError> {
        let random = system_random();
        let trust = match &trusted {
            Trusted::File(file) => Trust::Keys(Arc::clone(file.peers())),
            Trusted::Peers(peers) => Trust::Keys(Arc::clone(peers)),
            Trusted::Authority(authority) => Trust::Authority(Arc::clone(authority)),
        };
        let state = State {
            host: Host::new(key, trust, sealing, random)?,
            trusted,
            made: Secrets::default(),
            at: HashMap::new(),
            taken: Secrets::default(),
            vouched: None,
            expected: None,
            roll_over: RollOver::default(),
            version: 0,
            refreshed_at: None,
            complaint: None,
            tally: SecureTally::default(),
        };
        let public = key.public();
        Ok(Self(Arc::new(Shared { public, sealing, random, state: Mutex::new(state) })))
    }

    /// When the keys of links that are set up from now on are replaced. Default: see [`RollOver`].
    pub fn set_roll_over(&self, rule: RollOver) {
        self.state().roll_over = rule;
    }

    /// A secret for links whose HELLOs travel in another way than over TCP
    /// ([`Endpoint::offer`](crate::Endpoint::offer)): both ends need the same, and whoever carries
    /// the HELLOs vouches for the peer.
    pub fn vouch(&self, known: KnownSecret) {
        self.state().vouched = Some(known);
    }

    /// Whoever this host connects to must have that name in `authorized_peers`. Default: any that
    /// may be a server, so that a trusted host can answer in the place of another.
    pub fn expect(&self, server: PeerName) {
        self.state().expected = Some(server);
    }

    /// The key of the host.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        self.0.public
    }

    /// How its links are protected.
    #[must_use]
    pub fn sealing(&self) -> Sealing {
        self.0.sealing
    }

    /// What happened so far.
    #[must_use]
    pub fn tally(&self) -> SecureTally {
        let state = self.state();
        let unknown = state.taken.refusals().of(towpath_secure::Refusal::UnknownSecret);
        SecureTally { unknown_secrets: unknown, ..state.tally }
    }

    /// What is wrong with the file of authorized peers, whose last good version holds meanwhile.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        self.state().complaint.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn roll_over(&self) -> RollOver {
        self.state().roll_over
    }

    pub(crate) fn vouched(&self) -> Option<KnownSecret> {
        self.state().vouched.clone()
    }

    /// Begins a handshake with who listens somewhere, or with who has connected.
    pub(crate) fn shake(&self, role: Role, now: Time) -> Result<Shake, HandshakeError> {
        let state = self.state();
        let (host, expected) = (state.host.clone(), state.expected.clone());
        drop(state);
        let wall = WallTime::now();
        let handshake = match role {
            Role::Client => Handshake::client(&host, expected.as_ref(), wall, now),
            Role::Server => Handshake::server(&host, wall, now),
        };
        handshake.map(Shake::new)
    }

    /// Keeps the secret of a handshake as the client with who listens at `addr`.
    pub(crate) fn keep_made(&self, addr: SocketAddr, outcome: Outcome, now: Time) -> KnownSecret {
        let (known, mut state) = (known(outcome, now), self.state());
        state.tally.handshakes += 1;
        if state.at.len() >= SECRETS_MAX {
            state.at.clear();
        }
        state.at.insert(addr, known.secret.id());
        state.made.insert(known.clone());
        known
    }

    /// Keeps the secret of a handshake as the server.
    pub(crate) fn keep_taken(&self, outcome: Outcome, now: Time) {
        let mut state = self.state();
        state.tally.handshakes += 1;
        state.taken.insert(known(outcome, now));
    }

    pub(crate) fn note_failed(&self) {
        self.state().tally.handshakes_failed += 1;
    }

    /// The secret that is shared with who listens at `addr`, if there was a handshake.
    pub(crate) fn secret_at(&self, addr: SocketAddr, now: Time) -> Option<KnownSecret> {
        let mut state = self.state();
        let id = *state.at.get(&addr)?;
        let known = state.made.find(id, now).ok().cloned();
        // A peer that is trusted no longer is told so by a handshake.
        let has_name = |known: &KnownSecret| {
            state.expected.as_ref().is_none_or(|name| known.peer.name == *name)
        };
        let is_trusted = |known: &KnownSecret| {
            state.admits(&known.peer, Role::Server, WallTime::now()).is_some()
        };
        known.filter(has_name).filter(is_trusted)
    }

    /// Whoever listens at `addr` does not know the secret: it was started anew, say.
    pub(crate) fn forget(&self, addr: SocketAddr) {
        self.state().at.remove(&addr);
    }

    /// The secret that the HELLO of a client names, and was made with.
    pub(crate) fn admit(&self, hello: &Hello, now: Time) -> Result<KnownSecret, LinkError> {
        let ours = self.sealing().mode();
        let seal = hello.seal.ok_or(LinkError::NotSealed { ours })?;
        let mut state = self.state();
        let known = state.taken.find(SecretId(seal.secret), now);
        let known = known.map_err(|_| LinkError::UnknownSecret)?.clone();
        if state.admits(&known.peer, Role::Client, WallTime::now()).is_none() {
            return Err(LinkError::UnknownSecret);
        }
        let checked = check_hello(&known, Role::Client, hello);
        state.tally.hellos_forged += u64::from(checked.is_err());
        checked.map(|()| known)
    }

    /// Seals a HELLO.
    pub(crate) fn sign(
        &self,
        known: &KnownSecret,
        side: Role,
        hello: &mut Hello,
    ) -> Result<(), LinkError> {
        let Salt(salt) = Salt::new(self.0.random)?;
        let seal = HelloSeal { secret: known.secret.id().0, salt, tag: [0; 16] };
        hello.seal = Some(seal);
        let tag = known.secret.hello_tag(side, &hello.emit_untagged());
        hello.seal = Some(HelloSeal { tag, ..seal });
        Ok(())
    }

    /// Looks whether the peers have changed, if it is time to. Returns a number that counts up when
    /// they have.
    pub(crate) fn refresh(&self, now: Time) -> u64 {
        let mut state = self.state();
        if state.refreshed_at.is_some_and(|at| now.since(at) < TRUST_POLL) {
            return state.version;
        }
        state.refreshed_at = Some(now);
        state.refresh(WallTime::now(), now);
        state.version
    }

    /// Whether a peer is trusted, as that, and until when.
    pub(crate) fn admits(&self, peer: &PeerIdentity, role: Role) -> Option<Option<WallTime>> {
        self.state().admits(peer, role, WallTime::now())
    }

    pub(crate) fn note_revoked(&self) {
        self.state().tally.links_revoked += 1;
    }
}

impl State {
    fn refresh(&mut self, wall: WallTime, now: Time) {
        let Trusted::File(file) = &mut self.trusted else { return };
        match file.refresh(wall) {
            Ok(None) => self.complaint = None,
            Ok(Some(change)) => {
                self.complaint = None;
                let counts = (change.added.len(), change.removed.len(), change.altered.len());
                let (added, removed, altered) = counts;
                tracing::info!(added, removed, altered, "the authorized peers have changed");
                self.host = self.host.with_peers(Arc::clone(file.peers()));
                self.version += 1;
                let peers = Arc::clone(file.peers());
                let admits = |role| {
                    let peers = &peers;
                    move |peer: &PeerIdentity| peers.admit(&peer.key, role, wall).is_ok()
                };
                self.made.retain(now, admits(Role::Server));
                self.taken.retain(now, admits(Role::Client));
            }
            Err(error) => {
                let complaint = error.to_string();
                if self.complaint.as_ref() != Some(&complaint) {
                    tracing::warn!(%error, "the authorized peers stay as they were");
                    self.complaint = Some(complaint);
                }
            }
        }
    }

    fn admits(&self, peer: &PeerIdentity, role: Role, wall: WallTime) -> Option<Option<WallTime>> {
        let peers = match &self.trusted {
            Trusted::File(file) => file.peers(),
            Trusted::Peers(peers) => peers,
            Trusted::Authority(_) => return (!peer.has_expired(wall)).then_some(peer.expires),
        };
        peers.admit(&peer.key, role, wall).ok().map(|found| found.expires)
    }
}

fn known(outcome: Outcome, now: Time) -> KnownSecret {
    let Outcome { peer, secret, sealing } = outcome;
    KnownSecret { secret, peer, sealing, since: now }
}

/// Whether a HELLO was made by `side` with that secret.
pub(crate) fn check_hello(known: &KnownSecret, side: Role, hello: &Hello) -> Result<(), LinkError> {
    let seal = hello.seal.ok_or(LinkError::NotSealed { ours: known.sealing.mode() })?;
    if seal.secret != known.secret.id().0 {
        return Err(LinkError::HelloForged);
    }
    let checked = known.secret.check_hello(side, &hello.emit_untagged(), &seal.tag);
    checked.map_err(|_| LinkError::HelloForged)
}

impl fmt::Debug for Secure {
    // Its secrets stay such.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { public, sealing, .. } = &*self.0;
        f.debug_struct("Secure").field("public", public).field("sealing", sealing).finish()
    }
}

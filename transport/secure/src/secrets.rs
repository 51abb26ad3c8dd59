//! The pair secrets that a host has, by their ids.

use crate::handshake::PeerIdentity;
use crate::identity::PublicKey;
use crate::limits::{SECRET_NS, SECRETS_MAX};
use crate::mode::Sealing;
use crate::refusal::{Refusal, Refusals};
use crate::schedule::{PairSecret, SecretId};
use std::collections::HashMap;
use towpath_base::{Nanos, Time};

/// A pair secret, and what the handshake said of the peer.
#[derive(Clone, Debug)]
pub struct KnownSecret {
    /// The secret.
    pub secret: PairSecret,
    /// Who has it beside this host.
    pub peer: PeerIdentity,
    /// How links of it are protected.
    pub sealing: Sealing,
    /// When the handshake ended.
    pub since: Time,
}

/// The secrets of a host, in memory only: after a restart every peer shakes hands again.
#[derive(Debug)]
pub struct Secrets {
    by_id: HashMap<SecretId, KnownSecret>,
    secrets_max: usize,
    age_max: Nanos,
    refusals: Refusals,
}

impl Default for Secrets {
    fn default() -> Self {
        Self::new(SECRETS_MAX, SECRET_NS)
    }
}

impl Secrets {
    /// For so many secrets, each of which makes links until it has that age.
    #[must_use]
    pub fn new(secrets_max: usize, age_max: Nanos) -> Self {
        let refusals = Refusals::default();
        Self { by_id: HashMap::new(), secrets_max: secrets_max.max(1), age_max, refusals }
    }

    /// Takes a secret in. Where room is missing, the oldest of the same peer gives way, else the
    /// oldest of all: links that stand do not need theirs any more.
    pub fn insert(&mut self, known: KnownSecret) {
        if self.by_id.len() >= self.secrets_max {
            let key = known.peer.key;
            let is_others = |(_, other): &(&SecretId, &KnownSecret)| other.peer.key != key;
            let oldest = self.by_id.iter().min_by_key(|entry| (is_others(entry), entry.1.since));
            if let Some(oldest) = oldest.map(|(id, _)| *id) {
                self.by_id.remove(&oldest);
            }
        }
        self.by_id.insert(known.secret.id(), known);
    }

    /// The secret that a HELLO names.
    ///
    /// # Errors
    /// [`Refusal::UnknownSecret`], which is counted: the peer shakes hands again.
    pub fn find(&mut self, id: SecretId, now: Time) -> Result<&KnownSecret, Refusal> {
        let age_max = self.age_max;
        let is_young = |known: &&KnownSecret| now.since(known.since) < age_max;
        match self.by_id.get(&id).filter(is_young) {
            Some(known) => Ok(known),
            None => Err(self.refusals.count(Refusal::UnknownSecret)),
        }
    }

    /// The newest secret that this host shares with a peer, for a HELLO of its own.
    #[must_use]
    pub fn of_peer(&self, key: &PublicKey, now: Time) -> Option<&KnownSecret> {
        let is_usable =
            |known: &&KnownSecret| known.peer.key == *key && now.since(known.since) < self.age_max;
        self.by_id.values().filter(is_usable).max_by_key(|known| known.since)
    }

    /// Removes the secrets of peers that `is_trusted` no longer accepts, and those that are too
    /// old; returns the keys of the former, whose links end now.
    pub fn retain(
        &mut self,
        now: Time,
        is_trusted: impl Fn(&PeerIdentity) -> bool,
    ) -> Vec<PublicKey> {
        let mut distrusted = Vec::new();
        self.by_id.retain(|_, known| {
            let keeps = is_trusted(&known.peer);
            if !keeps {
                distrusted.push(known.peer.key);
            }
            keeps && now.since(known.since) < self.age_max
        });
        distrusted.sort_unstable();
        distrusted.dedup();
        distrusted
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// How often an unknown secret was named.
    #[must_use]
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::{PeerName, Roles};
    use zeroize::Zeroizing;

    fn known(peer: u8, secret: u8, since: u64) -> KnownSecret {
        KnownSecret {
            secret: PairSecret::new(Zeroizing::new([secret; 32])),
            peer: PeerIdentity {
                key: PublicKey::from_bytes([peer; 32]),
                name: PeerName::parse("a").expect("a name"),
                expires: None,
                roles: Roles::BOTH,
            },
            sealing: Sealing::Encrypt,
            since: Time(since),
        }
    }

    #[test]
    fn a_secret_is_known_until_it_is_old() {
        let mut secrets = Secrets::new(9, Nanos(100));
        let one = known(1, 1, 5);
        secrets.insert(one.clone());
        assert!(secrets.find(one.secret.id(), Time(104)).is_ok());
        let peer = one.peer.key;
        assert!(secrets.of_peer(&peer, Time(104)).is_some());
        assert!(secrets.of_peer(&peer, Time(105)).is_none());
        let refused = secrets.find(one.secret.id(), Time(105));
        assert_eq!(refused.map(|_| ()), Err(Refusal::UnknownSecret));
        assert!(secrets.find(SecretId([0; 16]), Time(5)).is_err());
        assert_eq!(secrets.refusals().of(Refusal::UnknownSecret), 2);
        assert_eq!(secrets.retain(Time(105), |_| true), []);
        assert!(secrets.is_empty());
    }

    #[test]
    fn a_peer_with_many_secrets_pushes_out_its_own() {
        let mut secrets = Secrets::new(3, Nanos(u64::MAX));
        secrets.insert(known(1, 0, 0));
        for secret in 1..50 {
            secrets.insert(known(2, secret, u64::from(secret)));
            assert!(secrets.len() <= 3);
        }
        assert!(secrets.of_peer(&PublicKey::from_bytes([1; 32]), Time(60)).is_some());
        let newest = secrets.of_peer(&PublicKey::from_bytes([2; 32]), Time(60)).expect("one");
        assert_eq!(newest.since, Time(49));
        secrets.insert(known(3, 99, 60));
        assert!(secrets.of_peer(&PublicKey::from_bytes([1; 32]), Time(60)).is_none());
    }

    #[test]
    fn a_revoked_peer_has_no_secrets() {
        let mut secrets = Secrets::default();
        [known(1, 1, 0), known(1, 2, 0), known(2, 3, 0)]
            .into_iter()
            .for_each(|of| secrets.insert(of));
        let revoked = PublicKey::from_bytes([1; 32]);
        assert_eq!(secrets.retain(Time(1), |peer| peer.key != revoked), [revoked]);
        assert_eq!(secrets.len(), 1);
    }
}

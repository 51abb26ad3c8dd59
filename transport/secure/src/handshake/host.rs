//! What all handshakes of a host share.

use super::authority::Authority;
use super::keys::ByKey;
use super::verifier::Verifier;
use super::{HandshakeError, PeerIdentity};
use crate::clock::WallTime;
use crate::identity::{HostKey, PublicKey};
use crate::mode::Sealing;
use crate::peers::{PeerName, Peers, Role};
use crate::random::SecureRandom;
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{AlwaysResolvesClientRawPublicKeys, ResolvesClientCert, Resumption};
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{self as ring_provider, cipher_suite, kx_group};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{AlwaysResolvesServerRawPublicKeys, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// What is agreed on inside of TLS, so that no other protocol is taken for this one.
const ALPN: &[u8] = b"towpath-secure/1";

/// Whom a host trusts.
#[derive(Clone, Debug)]
pub enum Trust {
    /// The keys of `authorized_peers`.
    Keys(Arc<Peers>),
    /// Everybody with a certificate of an authority.
    Authority(Arc<Authority>),
}

/// What a verifier found, for the handshake that asked it. It is written once.
pub(super) type Verdict = Arc<OnceLock<Result<PeerIdentity, HandshakeError>>>;

/// What all handshakes of a host share: its key, whom it trusts, and its mode.
#[derive(Clone, Debug)]
pub struct Host {
    public: PublicKey,
    certified: Arc<CertifiedKey>,
    trust: Trust,
    sealing: Sealing,
    provider: Arc<CryptoProvider>,
}

/// The key cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("the host key cannot sign: {0}; make another one with `towpath keygen`")]
pub struct HostError(rustls::Error);

impl Host {
    /// A host with that key.
    ///
    /// # Errors
    /// [`HostError`].
    pub fn new(
        key: &HostKey,
        trust: Trust,
        sealing: Sealing,
        random: &'static dyn SecureRandom,
    ) -> Result<Self, HostError> {
        let provider = CryptoProvider {
            cipher_suites: vec![
                cipher_suite::TLS13_AES_128_GCM_SHA256,
                cipher_suite::TLS13_AES_256_GCM_SHA384,
            ],
            kx_groups: vec![kx_group::X25519],
            secure_random: random,
            ..ring_provider::default_provider()
        };
        let signing = ring_provider::sign::any_eddsa_type(&key.pkcs8()).map_err(HostError)?;
        let chain = match &trust {
            // RFC 7250 section 3: the certificate is the SubjectPublicKeyInfo alone.
            Trust::Keys(_) => vec![CertificateDer::from(key.public().to_spki().to_vec())],
            Trust::Authority(authority) => authority.chain().to_vec(),
        };
        let certified = Arc::new(CertifiedKey::new(chain, signing));
        let public = key.public();
        Ok(Self { public, certified, trust, sealing, provider: Arc::new(provider) })
    }

    /// The same host with the peers of a new version of `authorized_peers`. Handshakes that have
    /// begun keep the old ones. A host that trusts an authority stays as it is.
    #[must_use]
    pub fn with_peers(&self, peers: Arc<Peers>) -> Self {
        let mut host = self.clone();
        if let Trust::Keys(old) = &mut host.trust {
            *old = peers;
        }
        host
    }

    /// The key of the host.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// How links of the host are protected.
    #[must_use]
    pub fn sealing(&self) -> Sealing {
        self.sealing
    }

    /// A TLS connection whose verifier writes its verdict.
    pub(super) fn connect(
        &self,
        wanted: Option<&PeerName>,
        now: WallTime,
        verdict: &Verdict,
    ) -> Result<Connection, rustls::Error> {
        let verifier: Arc<dyn ServerCertVerifier> = match &self.trust {
            Trust::Keys(peers) => {
                let by = self.by_key(peers, Role::Server, wanted.cloned(), now);
                Arc::new(Verifier::new(by, verdict))
            }
            Trust::Authority(authority) => {
                let by = authority.identify_by(&self.provider, Role::Server, wanted.cloned())?;
                Arc::new(Verifier::new(by, verdict))
            }
        };
        let resolver: Arc<dyn ResolvesClientCert> = match &self.trust {
            Trust::Keys(_) => {
                Arc::new(AlwaysResolvesClientRawPublicKeys::new(self.certified.clone()))
            }
            Trust::Authority(_) => Arc::new(SingleCertAndKey::from(self.certified.clone())),
        };
        let mut config = ClientConfig::builder_with_details(self.provider.clone(), clock(now))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_cert_resolver(resolver);
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = Resumption::disabled();
        // Our verifiers know who is wanted; no name of a server is sent.
        config.enable_sni = false;
        let name = ServerName::IpAddress(core::net::Ipv4Addr::UNSPECIFIED.into());
        Ok(ClientConnection::new(Arc::new(config), name)?.into())
    }

    /// The other end.
    pub(super) fn accept(
        &self,
        now: WallTime,
        verdict: &Verdict,
    ) -> Result<Connection, rustls::Error> {
        let verifier: Arc<dyn ClientCertVerifier> = match &self.trust {
            Trust::Keys(peers) => {
                Arc::new(Verifier::new(self.by_key(peers, Role::Client, None, now), verdict))
            }
            Trust::Authority(authority) => {
                let by = authority.identify_by(&self.provider, Role::Client, None)?;
                Arc::new(Verifier::new(by, verdict))
            }
        };
        let resolver: Arc<dyn ResolvesServerCert> = match &self.trust {
            Trust::Keys(_) => {
                Arc::new(AlwaysResolvesServerRawPublicKeys::new(self.certified.clone()))
            }
            Trust::Authority(_) => Arc::new(SingleCertAndKey::from(self.certified.clone())),
        };
        let mut config = ServerConfig::builder_with_details(self.provider.clone(), clock(now))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(resolver);
        config.alpn_protocols = vec![ALPN.to_vec()];
        // Nothing follows a handshake, and none is resumed.
        config.send_tls13_tickets = 0;
        Ok(ServerConnection::new(Arc::new(config))?.into())
    }

    fn by_key(
        &self,
        peers: &Arc<Peers>,
        role: Role,
        wanted: Option<PeerName>,
        now: WallTime,
    ) -> ByKey {
        let algorithms = self.provider.signature_verification_algorithms;
        ByKey { peers: peers.clone(), role, wanted, now, algorithms }
    }

    /// Whether TLS agreed on this protocol.
    pub(super) fn is_ours(connection: &Connection) -> bool {
        connection.alpn_protocol() == Some(ALPN)
    }
}

#[derive(Debug)]
struct Fixed(UnixTime);

impl TimeProvider for Fixed {
    fn current_time(&self) -> Option<UnixTime> {
        Some(self.0)
    }
}

fn clock(now: WallTime) -> Arc<dyn TimeProvider> {
    Arc::new(Fixed(UnixTime::since_unix_epoch(Duration::from_millis(now.0))))
}

//! Peers by their raw public keys (RFC 7250).

use super::verifier::Identify;
use super::{HandshakeError, PeerIdentity};
use crate::clock::WallTime;
use crate::identity::PublicKey;
use crate::peers::{PeerName, PeerRefused, Peers, Role};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};
use std::sync::Arc;

/// Looks a key up in `authorized_peers`, for one handshake.
#[derive(Debug)]
pub(super) struct ByKey {
    pub(super) peers: Arc<Peers>,
    /// What the peer would be.
    pub(super) role: Role,
    pub(super) wanted: Option<PeerName>,
    pub(super) now: WallTime,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
}

impl Identify for ByKey {
    const BY_RAW_KEY: bool = true;

    fn identify(
        &self,
        spki: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<PeerIdentity, HandshakeError> {
        let key = PublicKey::from_spki(spki).map_err(super::CertificateError::Key)?;
        let peer = self.peers.admit(&key, self.role, self.now)?;
        let (name, expires, roles) = (peer.name.clone(), peer.expires, peer.roles);
        match &self.wanted {
            Some(wanted) if *wanted != name => {
                Err(PeerRefused::Name { found: name, wanted: wanted.clone() }.into())
            }
            _ => Ok(PeerIdentity { key, name, expires, roles }),
        }
    }

    fn check_signature(
        &self,
        message: &[u8],
        spki: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let spki = SubjectPublicKeyInfoDer::from(spki.as_ref());
        verify_tls13_signature_with_raw_key(message, &spki, dss, &self.algorithms)
    }

    fn schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

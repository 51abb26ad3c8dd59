//! Peers by their raw public keys (RFC 7250).

use super::host::Verdict;
use super::{HandshakeError, PeerIdentity};
use crate::clock::WallTime;
use crate::identity::PublicKey;
use crate::peers::{PeerName, PeerRefused, Peers, Role};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use std::sync::Arc;

/// Looks a key up in `authorized_peers`, for one handshake.
#[derive(Debug)]
pub(super) struct KeyVerifier {
    peers: Arc<Peers>,
    /// What the peer would be.
    role: Role,
    wanted: Option<PeerName>,
    now: WallTime,
    algorithms: WebPkiSupportedAlgorithms,
    verdict: Verdict,
}

impl KeyVerifier {
    pub(super) fn new(
        peers: Arc<Peers>,
        role: Role,
        wanted: Option<PeerName>,
        now: WallTime,
        algorithms: WebPkiSupportedAlgorithms,
        verdict: Verdict,
    ) -> Self {
        Self { peers, role, wanted, now, algorithms, verdict }
    }

    fn identify(&self, spki: &[u8]) -> Result<PeerIdentity, HandshakeError> {
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

    fn verify(&self, spki: &[u8]) -> Result<(), Error> {
        judge(&self.verdict, self.identify(spki))
    }

    fn verify_signature(
        &self,
        message: &[u8],
        spki: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let spki = SubjectPublicKeyInfoDer::from(spki.as_ref());
        verify_tls13_signature_with_raw_key(message, &spki, dss, &self.algorithms)
    }
}

/// Writes the verdict for the handshake, and says to TLS what its peer learns of it.
pub(super) fn judge(
    verdict: &Verdict,
    found: Result<PeerIdentity, HandshakeError>,
) -> Result<(), Error> {
    let refusal = match &found {
        Ok(_) => None,
        Err(HandshakeError::Peer(PeerRefused::Expired { .. })) => Some(CertificateError::Expired),
        Err(_) => Some(CertificateError::ApplicationVerificationFailure),
    };
    // TLS asks once for each handshake; a second answer would change nothing.
    let is_first = verdict.set(found).is_ok();
    match refusal {
        None if is_first => Ok(()),
        refusal => {
            let refusal = refusal.unwrap_or(CertificateError::ApplicationVerificationFailure);
            Err(Error::InvalidCertificate(refusal))
        }
    }
}

/// TLS 1.2 is not in this build.
pub(super) fn no_tls12() -> Error {
    Error::General("TLS 1.2 is not in use".to_owned())
}

impl ServerCertVerifier for KeyVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verify(end_entity).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for KeyVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.verify(end_entity).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

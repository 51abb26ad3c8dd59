//! What TLS asks about a peer, at either end and whoever says who it is.

use super::host::Verdict;
use super::{HandshakeError, PeerIdentity};
use crate::peers::PeerRefused;
use core::fmt::Debug;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

/// Says who a peer is, for one handshake.
pub(super) trait Identify: Debug + Send + Sync {
    /// Whether peers show raw public keys, and no certificates.
    const BY_RAW_KEY: bool;

    /// Who has shown this key or certificate, and may be what it would be here.
    fn identify(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<PeerIdentity, HandshakeError>;

    /// Whether the peer has the private key.
    fn check_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error>;

    /// The signatures that it can check.
    fn schemes(&self) -> Vec<SignatureScheme>;
}

/// Asks who the peer is, and keeps the answer for the handshake.
#[derive(Debug)]
pub(super) struct Verifier<I> {
    by: I,
    verdict: Verdict,
}

impl<I: Identify> Verifier<I> {
    pub(super) fn new(by: I, verdict: &Verdict) -> Self {
        Self { by, verdict: verdict.clone() }
    }

    /// Writes the verdict for the handshake, and says to TLS what its peer learns of it.
    fn verify(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let found = self.by.identify(end_entity, intermediates, now);
        let refusal = match &found {
            Ok(_) => None,
            Err(HandshakeError::Peer(PeerRefused::Expired { .. })) => {
                Some(CertificateError::Expired)
            }
            Err(_) => Some(CertificateError::ApplicationVerificationFailure),
        };
        // TLS asks once for each handshake; a second answer would change nothing.
        let is_first = self.verdict.set(found).is_ok();
        match refusal {
            None if is_first => Ok(()),
            refusal => {
                let refusal = refusal.unwrap_or(CertificateError::ApplicationVerificationFailure);
                Err(Error::InvalidCertificate(refusal))
            }
        }
    }
}

/// TLS 1.2 is not in this build.
fn no_tls12() -> Error {
    Error::General("TLS 1.2 is not in use".to_owned())
}

impl<I: Identify> ServerCertVerifier for Verifier<I> {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verify(end_entity, intermediates, now).map(|()| ServerCertVerified::assertion())
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
        self.by.check_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by.schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        I::BY_RAW_KEY
    }
}

impl<I: Identify> ClientCertVerifier for Verifier<I> {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.verify(end_entity, intermediates, now).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        ServerCertVerifier::verify_tls12_signature(self, message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by.check_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by.schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        I::BY_RAW_KEY
    }
}

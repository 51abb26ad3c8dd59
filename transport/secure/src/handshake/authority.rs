//! Peers by certificates of an authority, for many hosts.

use super::certificate::{self, CertificateError};
use super::verifier::Identify;
use super::{HandshakeError, PeerIdentity};
use crate::clock::WallTime;
use crate::identity::{HostKey, PublicKey};
use crate::limits::CERTIFICATES_MAX;
use crate::peers::{PeerName, PeerRefused, Role, Roles};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::sync::Arc;

/// The certificates of an authority, and the chain that it gave this host.
#[derive(Debug)]
pub struct Authority {
    roots: Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
}

/// Why the files of an authority are not taken.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AuthorityError {
    /// Not PEM, or nothing in it.
    #[error("there is no `CERTIFICATE` in PEM in it, or more than {CERTIFICATES_MAX}")]
    Pem,
    /// A root is no certificate.
    #[error("a certificate of the authority cannot be read: {0}")]
    Root(Error),
    /// The first certificate of the chain is not of the host key.
    #[error(
        "the first certificate is not of this host's key: let the authority sign the key that is \
         in use, and put the host's own certificate first"
    )]
    OtherKey,
    /// The host's certificate lacks something.
    #[error(transparent)]
    Own(#[from] CertificateError),
}

impl Authority {
    /// From the PEM of the authority's certificates, and of the chain of this host, its own first.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn from_pem(roots: &[u8], chain: &[u8], key: &HostKey) -> Result<Self, AuthorityError> {
        let mut store = RootCertStore::empty();
        for root in certificates(roots)? {
            store.add(root).map_err(AuthorityError::Root)?;
        }
        let chain = certificates(chain)?;
        let own = chain.first().ok_or(AuthorityError::Pem)?;
        let parsed = ParsedCertificate::try_from(own).map_err(|_| CertificateError::Malformed)?;
        let spki = parsed.subject_public_key_info();
        if PublicKey::from_spki(&spki) != Ok(key.public()) {
            return Err(AuthorityError::OtherKey);
        }
        certificate::read(own)?;
        Ok(Self { roots: Arc::new(store), chain })
    }

    pub(super) fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    pub(super) fn identify_by(
        &self,
        provider: &Arc<CryptoProvider>,
        role: Role,
        wanted: Option<PeerName>,
    ) -> Result<ByAuthority, Error> {
        let roots = self.roots.clone();
        let clients = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
            .build()
            .map_err(|error| Error::General(error.to_string()))?;
        let algorithms = provider.signature_verification_algorithms;
        Ok(ByAuthority { roots, clients, algorithms, role, wanted })
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, AuthorityError> {
    let found: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(pem).take(CERTIFICATES_MAX + 1).collect();
    let found = found.map_err(|_| AuthorityError::Pem)?;
    let is_good = (1..=CERTIFICATES_MAX).contains(&found.len());
    if is_good { Ok(found) } else { Err(AuthorityError::Pem) }
}

/// Checks a chain, for one handshake.
#[derive(Debug)]
pub(super) struct ByAuthority {
    roots: Arc<RootCertStore>,
    clients: Arc<dyn ClientCertVerifier>,
    algorithms: WebPkiSupportedAlgorithms,
    /// What the peer would be.
    role: Role,
    wanted: Option<PeerName>,
}

impl Identify for ByAuthority {
    const BY_RAW_KEY: bool = false;

    fn identify(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<PeerIdentity, HandshakeError> {
        let parsed = ParsedCertificate::try_from(end_entity).map_err(CertificateError::Refused)?;
        match self.role {
            // Both hold the certificate to the extended key usage of the role, where it has one.
            Role::Server => verify_server_cert_signed_by_trust_anchor(
                &parsed,
                &self.roots,
                intermediates,
                now,
                self.algorithms.all,
            ),
            Role::Client => {
                self.clients.verify_client_cert(end_entity, intermediates, now).map(|_| ())
            }
        }
        .map_err(CertificateError::Refused)?;
        let spki = parsed.subject_public_key_info();
        let key = PublicKey::from_spki(&spki).map_err(CertificateError::Key)?;
        let (expires, names) = certificate::read(end_entity)?;
        let first = names.first().ok_or(CertificateError::NoName)?;
        let name = match &self.wanted {
            Some(wanted) if !names.contains(wanted) => {
                let (found, wanted) = (first.clone(), wanted.clone());
                return Err(PeerRefused::Name { found, wanted }.into());
            }
            Some(wanted) => wanted,
            None => first,
        };
        let (name, roles) = (name.clone(), Roles::only(self.role));
        let expires: Option<WallTime> = Some(expires);
        Ok(PeerIdentity { key, name, expires, roles })
    }

    fn check_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

//! Why a handshake failed, and what helps.

use super::certificate::CertificateError;
use crate::identity::PublicKey;
use crate::limits::{HANDSHAKE_BYTES_MAX, HANDSHAKE_NS};
use crate::mode::ModesDiffer;
use crate::peers::PeerRefused;
use crate::random::RandomError;
use rustls::AlertDescription;

/// Why a handshake failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum HandshakeError {
    /// The peer is not trusted.
    #[error(transparent)]
    Peer(#[from] PeerRefused),
    /// The peer's certificate.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The peer does not trust this host.
    #[error(
        "the peer does not trust this host (alert {alert:?}): add this line to authorized_peers \
         there, with the name of this host, or take its expiry or roles away there:\n{key} NAME"
    )]
    RefusedByPeer {
        /// What the peer sent.
        alert: AlertDescription,
        /// The key of this host.
        key: PublicKey,
    },
    /// The modes are not the same.
    #[error(transparent)]
    Mode(#[from] ModesDiffer),
    /// No random bytes.
    #[error(transparent)]
    Random(#[from] RandomError),
    /// What came is no TLS.
    #[error(
        "the peer does not answer in TLS: it has no key and its links are open, or another program \
         has this port; give it a key with `towpath keygen`"
    )]
    NotTls,
    /// TLS, but another protocol in it.
    #[error("the peer speaks TLS, and not this version of Towpath in it: bring both up to date")]
    OtherProtocol,
    /// The peer sent more than any handshake needs.
    #[error(
        "the peer sent more than {HANDSHAKE_BYTES_MAX} bytes and is not through: its certificate \
         chain is too long, or it is no peer"
    )]
    TooMuch,
    /// The peer took too long.
    #[error(
        "the peer was not through after {} s: it is overloaded, or what it sends gets lost",
        HANDSHAKE_NS.0 / 1_000_000_000
    )]
    TimedOut,
    /// The peer closed the connection.
    #[error("the peer closed the connection during the handshake: its log says why")]
    Closed,
    /// TLS failed otherwise.
    #[error("the handshake failed: {0}")]
    Tls(rustls::Error),
}

impl HandshakeError {
    /// What a failure of TLS means here, where the verifier has found nothing.
    pub(super) fn of_tls(error: rustls::Error, ours: PublicKey) -> Self {
        use AlertDescription as Alert;
        match error {
            rustls::Error::AlertReceived(
                alert @ (Alert::AccessDenied
                | Alert::BadCertificate
                | Alert::CertificateExpired
                | Alert::CertificateRevoked
                | Alert::CertificateUnknown
                | Alert::UnknownCA
                | Alert::UnsupportedCertificate
                | Alert::CertificateRequired),
            ) => Self::RefusedByPeer { alert, key: ours },
            rustls::Error::NoApplicationProtocol
            | rustls::Error::AlertReceived(Alert::NoApplicationProtocol) => Self::OtherProtocol,
            rustls::Error::FailedToGetRandomBytes => Self::Random(RandomError),
            error => Self::Tls(error),
        }
    }
}

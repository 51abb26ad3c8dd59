//! HELLOs that name a secret which this host lacks.

pub(super) const MEANING: &str = "a HELLO names a secret that this host lacks: it restarted, the \
                                  peer was revoked, or the secret is over a day old; the peer \
                                  shakes hands again by itself";

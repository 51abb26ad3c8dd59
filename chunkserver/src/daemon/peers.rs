//! Says which servers anything is passed on to.

use crate::service::AllowedPeers;

/// Says that clients choose whom this server connects to, where they do.
pub(super) fn say_who(peers: &AllowedPeers) {
    if peers.is_any() {
        tracing::info!("writes are passed on to whatever servers clients name: `peers` names some");
    } else if *peers == AllowedPeers::default() {
        tracing::info!("writes are passed on to no other server: `peers` names some");
    } else {
        tracing::info!(%peers, "writes are passed on to these servers alone");
    }
}

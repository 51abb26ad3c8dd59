//! The setting of which servers anything is passed on to.

use super::config::DaemonConfig;
use super::key::Key;
use super::value;
use crate::service::AllowedPeers;

pub(super) const KEY: Key = Key {
    name: "peers",
    kind: "ADDRESSES",
    doc: "servers that writes, and parts that are made anew, are passed on to, with commas \
          between: IP or IP:PORT; needed for `put --policy ring:K`, `tree:K` and `rs:K+M,triec`; \
          \"none\" is nobody, \"any\" is whatever address a client names",
    quoted: true,
    set: |config, text| {
        config.peers =
            value::parsed(text, "any, none, or up to 256 addresses with commas between")?;
        Ok(())
    },
    show: |config| config.peers.to_string(),
};

/// Says that clients choose whom this server connects to, where they do.
pub(super) fn say_who(config: &DaemonConfig) {
    if config.peers.is_any() {
        tracing::info!("writes are passed on to whatever servers clients name: `peers` names some");
    } else if config.peers == AllowedPeers::default() {
        tracing::info!("writes are passed on to no other server: `peers` names some");
    } else {
        tracing::info!(peers = %config.peers, "writes are passed on to these servers alone");
    }
}

//! Whether the links of a server are sealed, and what is said of it.

use towpath_transport::Secure;
use towpath_transport::keys::Sealing;

use super::config::{SecureConfig, SecureMode};
use super::error::DaemonError;

/// The keys of the server; none where its links are open.
pub(super) fn keys(config: &SecureConfig) -> Result<Option<Secure>, DaemonError> {
    let Some(key) = &config.host_key else {
        let is_asked = config.authorized_peers.is_some() || config.secure_mode.is_some();
        return if is_asked { Err(DaemonError::NoHostKey) } else { Ok(None) };
    };
    let peers = config.authorized_peers.clone().unwrap_or_else(|| Secure::peers_beside(key));
    let sealing = match config.secure_mode {
        None | Some(SecureMode::Encrypt) => Sealing::Encrypt,
        Some(SecureMode::Authenticate) => Sealing::Authenticate,
    };
    Ok(Some(Secure::open(key, &peers, sealing)?))
}

/// Says what is open, and to whom a client must be told to trust.
pub(super) fn say_what_is_open(keys: Option<&Secure>, is_local: bool) {
    match keys {
        Some(keys) => {
            let (mode, public) = (keys.sealing().mode(), keys.public());
            let fingerprint = public.fingerprint();
            tracing::info!(%mode, %fingerprint, key = %public, "links are sealed");
        }
        None if is_local => {
            tracing::info!("links are open: every program on this host may read and forge them");
        }
        None => tracing::warn!(
            "links are open: everybody on the network may read and forge what they carry; set \
             `host_key`"
        ),
    }
}

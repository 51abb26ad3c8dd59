//! Two endpoints joined within this process (feature `mem`).

use crate::config::EndpointConfig;
use crate::endpoint::{Endpoint, join};
use crate::error::{EndpointError, LinkError};
use crate::ids::LinkId;
use towpath_device_mem::MemDevice;

/// An endpoint at one end of a wire within the process, and its link to the other end.
pub struct MemEnd {
    /// The endpoint; it may go to another thread.
    pub endpoint: Endpoint<MemDevice>,
    /// Its link.
    pub link: LinkId,
}

/// Why two endpoints could not be joined.
#[derive(Debug, thiserror::Error)]
pub enum MemPairError {
    /// One of them could not be made.
    #[error("cannot make an endpoint on the device in memory")]
    Endpoint(#[from] EndpointError),
    /// They could not be linked.
    #[error("cannot link the two endpoints")]
    Link(#[from] LinkError),
}

/// A client and a server, linked by a wire that costs one copy: to see what the software itself
/// costs, and to use links where both ends are at home.
///
/// # Errors
/// [`MemPairError`].
pub fn mem_pair(
    client: EndpointConfig,
    server: EndpointConfig,
) -> Result<(MemEnd, MemEnd), MemPairError> {
    let (near, far) = MemDevice::pair();
    let mut near = Endpoint::new(near, client)?;
    let mut far = Endpoint::new(far, server)?;
    let (near_link, far_link) = join(&mut near, &mut far)?;
    Ok((MemEnd { endpoint: near, link: near_link }, MemEnd { endpoint: far, link: far_link }))
}

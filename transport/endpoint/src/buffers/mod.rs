//! What messages are sent from: pools, the regions that the device knows, and who waits for a
//! buffer.

mod pools;
mod wanted;

pub use pools::{AllocError, LinkBuffers, SendBuffers, SendPools};

use crate::bell::Bell;
use crate::config::EndpointConfig;
use crate::error::EndpointError;
use crate::ids::LinkId;
use crate::limits::REGIONS_MAX;
use std::sync::Arc;
use towpath_memory::{MemoryError, Region, RegionId};
use towpath_verbs::{Access, Device, PdNum};
use wanted::Wanted;

/// The send buffers of an endpoint, and the memory that it may send from.
pub(crate) struct Buffers {
    pools: SendPools,
    wanted: Wanted,
    /// With their keys; the pools' first.
    regions: Vec<(RegionId, u32)>,
}

impl Buffers {
    /// The pools that were asked for; their regions are to be [registered](Self::register_pools).
    pub(crate) fn new(config: &EndpointConfig, bell: &Arc<Bell>) -> Result<Self, MemoryError> {
        let pools = SendPools::new(&config.send_pools, config.sizes.links_max)?;
        Ok(Self { pools, wanted: Wanted::new(Arc::clone(bell)), regions: Vec::new() })
    }

    pub(crate) fn register_pools<D: Device<Memory = Region>>(
        &mut self,
        device: &mut D,
    ) -> Result<(), EndpointError> {
        let regions: Vec<Region> = self.pools.regions().cloned().collect();
        regions.iter().try_for_each(|region| self.register(device, region))
    }

    /// See [`Endpoint::register`](crate::Endpoint::register).
    pub(crate) fn register<D: Device<Memory = Region>>(
        &mut self,
        device: &mut D,
        region: &Region,
    ) -> Result<(), EndpointError> {
        if self.lkey_of(region.id()).is_some() {
            return Ok(());
        }
        if self.regions.len() == REGIONS_MAX {
            return Err(EndpointError::TooManyRegions { max: REGIONS_MAX });
        }
        if device.caps().pins_memory {
            // Receive buffers of another endpoint, say, which gives pages back.
            region.keep_pages();
        }
        let keys = device.reg_mr(PdNum::DEFAULT, region, Access::LOCAL)?;
        self.regions.push((region.id(), keys.lkey));
        Ok(())
    }

    /// See [`Endpoint::deregister`](crate::Endpoint::deregister).
    pub(crate) fn deregister<D: Device<Memory = Region>>(
        &mut self,
        device: &mut D,
        region: &Region,
    ) -> Result<(), EndpointError> {
        if let Some(place) = self.regions.iter().position(|&(id, _)| id == region.id()) {
            device.dereg_mr(self.regions[place].1)?;
            self.regions.swap_remove(place);
        }
        Ok(())
    }

    /// The key of a region: a scan, but of few, with the small messages' pool first.
    #[inline]
    pub(crate) fn lkey_of(&self, region: RegionId) -> Option<u32> {
        self.regions.iter().find(|&&(id, _)| id == region).map(|&(_, lkey)| lkey)
    }

    pub(crate) fn pools(&self) -> &SendPools {
        &self.pools
    }

    /// The pools as a link may have them.
    pub(crate) fn of(&self, link: LinkId) -> LinkBuffers<'_> {
        LinkBuffers { pools: &self.pools, link }
    }

    /// A buffer of so many bytes is wanted.
    pub(crate) fn want(&self, bytes: usize) {
        self.wanted.note(&self.pools, bytes);
    }

    /// Whether a buffer came back since one was wanted.
    pub(crate) fn is_back(&self) -> bool {
        self.wanted.is_back()
    }

    /// For how many bytes there is a buffer again that was wanted, once.
    #[inline]
    pub(crate) fn take_wanted(&self) -> Option<usize> {
        if self.wanted.is_back() { self.wanted.take(&self.pools) } else { None }
    }
}

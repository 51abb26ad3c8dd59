//! Which requests are let in.

use towpath_fastpath::ErrorReply;
use towpath_fastpath::cap::{Capability, Denied};
use towpath_fastpath::limits::SKETCHED_BYTES_MAX;
use towpath_fastpath::proof::Shown;
use towpath_fastpath::server::StorageRequest;
use towpath_transport::{Device, Endpoint, Region};

use super::limits::READ_BYTES_SIZES;
use crate::guard::Guard;

/// What is asked of each request that comes in.
#[derive(Debug)]
pub(super) struct Gate {
    guard: Option<Guard>,
    /// The longest read that a send buffer holds.
    read_bytes_max: usize,
    is_closed: bool,
}

impl Gate {
    pub(super) fn new<D: Device<Memory = Region>>(endpoint: &Endpoint<D>) -> Self {
        let holds = |bytes: &usize| endpoint.alloc(*bytes).is_ok();
        let read_bytes_max = READ_BYTES_SIZES.into_iter().find(holds).unwrap_or(0);
        Self { guard: None, read_bytes_max, is_closed: false }
    }

    /// Lets nothing in but what the guard allows.
    pub(super) fn set_guard(&mut self, guard: Option<Guard>) {
        self.guard = guard;
    }

    pub(super) fn guard(&self) -> Option<&Guard> {
        self.guard.as_ref()
    }

    /// No new request is let in.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// By which capability a request of a tenant is allowed; by none where there is no guard.
    pub(super) fn check(
        &self,
        shown: &Shown<'_>,
        parsed: &StorageRequest,
        tenant: u32,
    ) -> Result<Option<Capability>, Denied> {
        self.guard.as_ref().map_or(Ok(None), |guard| guard.check(shown, parsed, tenant))
    }

    /// Whether a send buffer holds so many bytes.
    pub(super) fn check_room(&self, bytes: u32) -> Result<(), ErrorReply> {
        within(bytes, self.read_bytes_max)
    }

    /// Whether sketches of so many bytes are made at a time: they are read into a send buffer.
    pub(super) fn check_sketch(&self, bytes: u32) -> Result<(), ErrorReply> {
        within(bytes, self.read_bytes_max.min(SKETCHED_BYTES_MAX))
    }
}

fn within(bytes: u32, max: usize) -> Result<(), ErrorReply> {
    match bytes as usize <= max {
        true => Ok(()),
        false => Err(ErrorReply::TooLong { max: max as u64 }),
    }
}

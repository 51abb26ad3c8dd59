//! What the server tells without having been asked, kept until it is taken.

use super::RpcClient;
use crate::limits::PUSHES_KEPT_MAX;
use crate::parcel::Parcel;

/// Something that the server told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    /// What it tells of.
    pub method: u16,
    /// The method's own body, of at most
    /// [`PUSH_BODY_BYTES_MAX`](crate::limits::PUSH_BODY_BYTES_MAX) bytes.
    pub body: Vec<u8>,
}

impl RpcClient {
    /// The oldest push that was not taken yet. Of those that nobody takes the newest
    /// [`PUSHES_KEPT_MAX`] stay.
    pub fn next_push(&mut self) -> Option<Push> {
        self.pushes.pop_front()
    }

    /// Keeps a copy of a push, so that its receive buffer and its credit go back at once.
    pub(super) fn on_push(&mut self, parcel: &Parcel) {
        self.stats.pushes += 1;
        if self.pushes.len() >= PUSHES_KEPT_MAX {
            self.pushes.pop_front();
            self.stats.pushes_dropped += 1;
        }
        self.pushes
            .push_back(Push { method: parcel.header().method, body: parcel.body().to_vec() });
    }
}

//! Parts that servers make anew among themselves.

use std::sync::Arc;

use super::client::{Client, changed};
use super::pending::Pending;
use super::request::Request;
use crate::rebuild::Rebuild;

impl Client {
    /// Has the servers of a plan, of which this client's is the first, make a range of a part anew:
    /// gives the version that its chunk has then. Where it fails with an unknown fate it may still
    /// be written later, unless the plan names the version that the chunk must have.
    pub fn rebuild(&self, plan: Arc<Rebuild>) -> Pending<u64> {
        self.ask(Request::Rebuild { plan }, false, changed)
    }
}

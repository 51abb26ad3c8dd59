//! Writes that servers pass on along a route.

use std::sync::Arc;

use super::client::{Client, done};
use super::pending::Pending;
use super::request::Request;
use crate::change::Terms;
use crate::route::Route;
use crate::slice::ChunkId;

impl Client {
    /// As [`write`](Self::write), along the servers of a route, of which this client's is the
    /// first: it has ended well when all of them have made it durable.
    pub fn write_along(
        &self,
        route: Arc<Route>,
        chunk: ChunkId,
        offset: u64,
        bytes: impl Into<Vec<u8>>,
    ) -> Pending<()> {
        self.forward(route, (chunk, offset), bytes.into(), self.any_terms())
    }

    /// Writes a data unit of a stripe, of whole slices: it has ended well when it is durable, and
    /// with it all parity units of the stripe, which servers make of all its data units
    /// ([`Route::stripe`]). `stamp` tells this writing of the stripe from all others, and is the
    /// same for its units. Nobody else may write the stripe meanwhile.
    pub fn write_unit(
        &self,
        route: Arc<Route>,
        (chunk, offset): (ChunkId, u64),
        bytes: impl Into<Vec<u8>>,
        stamp: u64,
    ) -> Pending<()> {
        let terms = Terms { stamp, ..self.any_terms() };
        self.forward(route, (chunk, offset), bytes.into(), terms)
    }

    fn forward(
        &self,
        route: Arc<Route>,
        (chunk, offset): (ChunkId, u64),
        bytes: Vec<u8>,
        terms: Terms,
    ) -> Pending<()> {
        self.ask(Request::Forward { route, chunk, offset, bytes, terms }, false, done)
    }
}

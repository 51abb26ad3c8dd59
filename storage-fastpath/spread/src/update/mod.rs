//! Bytes of a file changed where they are, in part of a stripe (docs/updates.md).
//!
//! | file | contents |
//! |---|---|
//! | `mod` | what is asked for: a change, the state of a file, its end before a repair |
//! | `pieces` | what is changed as one |
//! | `record` | what servers remember of a change |
//! | `heads` | that looked at, and brought to an end |
//! | `finish` | what was made known and left half-way |
//! | `change` | one change |
//! | `glance` | what a reader asks beside its first stripe |
//! | `net` | what is asked of servers, and how it is waited for |
//! | `error` | what can go wrong |

mod change;
mod error;
mod finish;
mod glance;
mod heads;
mod net;
mod pieces;
mod record;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;

use towpath_ec::ShardSet;

pub use error::ChangeError;
pub(crate) use glance::Glance;
pub(crate) use heads::head_chunk;

use self::heads::{File, Head, State, Who};
use self::net::{Clients, block_on};
use self::record::HEAD_BYTES;
use crate::error::{PartError, SpreadError};
use crate::layout::Layout;
use crate::servers::Servers;

/// What a chunk begins with in which a server remembers changes of a file: its name is that of the
/// part beside it, with the lowest bit turned over.
pub const RECORD_MAGIC: [u8; 8] = *record::MAGIC;

/// What was changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Changed {
    /// Bytes.
    pub bytes: u64,
    /// Pieces, each of which was changed as one.
    pub pieces: u64,
    /// How often others were first, and a piece was begun anew.
    pub conflicts: u64,
}

/// A layout that nothing of is half-way, and what its repair has to know.
pub(crate) struct Settled {
    pub(crate) layout: Layout,
    state: State,
}

impl Settled {
    /// By its layout nothing is changed any more, though no newer one may have been kept.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.is_closed
    }

    /// The parts whose servers have lost what they remember of changes: nothing is changed any more
    /// until these are made anew, in chunks of other names.
    pub(crate) fn without_memory(&self) -> ShardSet {
        let look = self.state.look.iter();
        let lost =
            |head: &Result<Head, PartError>| head.as_ref().is_err_and(PartError::is_of_one_slice);
        look.filter(|(_, head)| lost(head)).map(|(part, _)| *part).collect()
    }
}

impl Servers {
    /// Changes bytes of a file from `offset` on, where they are: in each piece of a stripe all or
    /// nothing, whoever dies meanwhile. When it returns, the change is durable on all servers that
    /// it concerns. Pieces are as long as one operation of the servers allows. All servers that
    /// have parts which change must be there; a change does not make a file longer.
    ///
    /// The layout holds as it is: whoever reads by it finds what was changed. Others may change the
    /// file at the same time: each piece comes before or after each of theirs.
    ///
    /// # Errors
    /// [`SpreadError::Change`] says how many bytes were changed, and what became of the rest.
    pub fn write_at(
        &self,
        layout: &Layout,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Changed, SpreadError> {
        layout.check()?;
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > layout.bytes) {
            let source = ChangeError::Beyond { bytes: layout.bytes };
            return Err(SpreadError::Change { done: 0, source });
        }
        let net = self.clients_of(layout);
        let most = record_bytes_max(&net)?;
        let file = File::new(&net, layout);
        let mut changed = Changed::default();
        for piece in pieces::pieces(layout, offset, bytes.len(), most) {
            let made = block_on(file.change(&piece, bytes));
            let (_, conflicts) = made.map_err(|why| error::failed(why, changed.bytes, layout))?;
            changed.bytes += piece.changed() as u64;
            changed.pieces += 1;
            changed.conflicts += u64::from(conflicts);
        }
        Ok(changed)
    }

    fn clients_of(&self, layout: &Layout) -> Clients {
        let places: Vec<SocketAddr> = layout.nodes.iter().map(|node| node.server).collect();
        Clients { parts: self.clients(&places) }
    }

    /// The layout with the versions that its parts have now, once what somebody has begun to
    /// change and left half-way is at its end. A layout that says this already comes back as it is.
    ///
    /// # Errors
    /// [`SpreadError::Change`]: others change the file all the time.
    pub fn current(&self, layout: &Layout) -> Result<Layout, SpreadError> {
        match self.settled(layout, Who::Reader) {
            Ok(settled) => Ok(settled.layout),
            // Nobody says more than the layout does.
            Err(SpreadError::Change { source: ChangeError::Missing { .. }, .. }) => {
                Ok(layout.clone())
            }
            Err(error) => Err(error),
        }
    }

    /// The same for a repair, which closes the file next.
    pub(crate) fn settled_to_repair(&self, layout: &Layout) -> Result<Settled, SpreadError> {
        self.settled(layout, Who::Repairer)
    }

    fn settled(&self, layout: &Layout, who: Who) -> Result<Settled, SpreadError> {
        layout.check()?;
        let net = self.clients_of(layout);
        let file = File::new(&net, layout);
        let state = block_on(file.settle_and_tell(who));
        let state = state.map_err(|stop| error::unsettled(stop, layout))?;
        let mut current = layout.clone();
        for (node, version) in current.nodes.iter_mut().zip(&state.versions) {
            node.version = *version;
        }
        Ok(Settled { layout: current, state })
    }

    /// Ends changes by a layout, of which a repair makes a newer one; gives the generation of that.
    /// Whoever has changed the file since it was looked at ends the repair.
    pub(crate) fn close(&self, settled: &Settled) -> Result<u64, SpreadError> {
        let layout = &settled.layout;
        let net = self.clients_of(layout);
        let closed = block_on(File::new(&net, layout).close(&settled.state));
        closed.map_err(|stop| error::unsettled(stop, layout))
    }
}

/// The most bytes of what an intent writes, for all of those that remember it.
fn record_bytes_max(net: &Clients) -> Result<usize, SpreadError> {
    let clients = net.parts.iter().flatten();
    let most = clients.filter_map(|client| client.op_bytes_max().ok()).min();
    Ok(most.unwrap_or(0).saturating_sub(HEAD_BYTES))
}

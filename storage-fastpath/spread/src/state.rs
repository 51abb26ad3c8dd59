//! What has become of each part of a file.

use std::net::SocketAddr;

use towpath_ec::ShardSet;
use towpath_fastpath::control::ChunkInfo;
use towpath_fastpath::{Client, ErrorKind, ErrorReply, Pending};

use crate::error::{PartError, SpreadError};
use crate::get::Reader;
use crate::layout::{Layout, Node};
use crate::servers::Servers;

/// What has become of one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// It is there, at the version of the layout.
    Whole,
    /// The server has no such chunk, or it was never finished, or the layout says that it is not
    /// whole.
    Missing,
    /// Somebody has changed it: it has this version.
    Changed(u64),
    /// The server does not answer.
    Unreachable,
    /// The server answers, and does not give it.
    Refused,
}

/// What a scrub found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Scrubbed {
    /// Stripes that were read whole and compared.
    pub stripes: u64,
    /// Parts of which a piece is missing or damaged.
    pub bad: ShardSet,
    /// Stripes whose parts are each whole and do not belong together.
    pub torn: u64,
}

/// A part that is whole, as far as its server says, or why it is not.
pub(crate) type Part = Result<Client, PartError>;

/// Asks for the state of all parts at once.
pub(crate) fn parts(servers: &Servers, layout: &Layout) -> Vec<Part> {
    let places: Vec<SocketAddr> = layout.nodes.iter().map(|node| node.server).collect();
    let clients = servers.clients(&places);
    let ask = |(node, client): (&Node, Part)| {
        let (client, expected) = (client?, node.version.ok_or(PartError::NotWhole)?);
        Ok((client.stat(node.chunk), client, expected))
    };
    type Asked = Result<(Pending<ChunkInfo>, Client, u64), PartError>;
    let asked: Vec<Asked> = layout.nodes.iter().zip(clients).map(ask).collect();
    let told = asked.into_iter().zip(&places).map(|(asked, server)| {
        let (stat, client, expected) = asked?;
        let told = stat.wait().map_err(PartError::from);
        let found = told.inspect_err(|error| servers.note(*server, error))?.version;
        if found != expected {
            return Err(PartError::OtherVersion { expected, found });
        }
        Ok(client)
    });
    told.collect()
}

impl NodeState {
    fn of(part: &Part) -> Self {
        match part {
            Ok(_) => Self::Whole,
            Err(PartError::NotWhole) => Self::Missing,
            Err(PartError::OtherVersion { found, .. }) => Self::Changed(*found),
            Err(PartError::Open(_) | PartError::Gone | PartError::Told(_)) => Self::Unreachable,
            Err(PartError::Client(error)) => match error.kind {
                ErrorKind::Refused(
                    ErrorReply::NoSuchChunk { .. } | ErrorReply::Unfinished { .. },
                ) => Self::Missing,
                ErrorKind::Refused(_) => Self::Refused,
                _ => Self::Unreachable,
            },
        }
    }
}

impl Servers {
    /// What has become of each part of a file, as its server says it.
    ///
    /// # Errors
    /// [`SpreadError::Layout`].
    pub fn stat(&self, layout: &Layout) -> Result<Vec<NodeState>, SpreadError> {
        layout.check()?;
        Ok(parts(self, layout).iter().map(NodeState::of).collect())
    }

    /// Reads every byte of every part and compares what belongs together. `progress` is told how
    /// many bytes of the file are done.
    ///
    /// # Errors
    /// [`SpreadError::Layout`].
    pub fn scrub(
        &self,
        layout: &Layout,
        mut progress: impl FnMut(u64),
    ) -> Result<Scrubbed, SpreadError> {
        layout.check()?;
        let (mut scrubbed, mut done) = (Scrubbed::default(), 0);
        let mut reader = Reader::new(self, layout);
        for stripe in layout.stripes().iter() {
            let units = reader.all(stripe);
            let (mut read, mut bad) = (Vec::new(), ShardSet::default());
            for (part, unit) in units.iter().enumerate() {
                match unit {
                    Some(unit) => read.push(&unit[..]),
                    None => {
                        bad.insert(part);
                    }
                }
            }
            scrubbed.bad = scrubbed.bad.with(bad);
            if bad.is_empty() {
                scrubbed.stripes += 1;
                scrubbed.torn += u64::from(!fits(layout, &read));
            }
            done += stripe.bytes as u64;
            progress(done);
        }
        // A file without bytes has parts all the same.
        for (part, state) in self.stat(layout)?.into_iter().enumerate() {
            if state != NodeState::Whole {
                scrubbed.bad.insert(part);
            }
        }
        Ok(scrubbed)
    }

    /// Deletes all parts; says how many were not, since their servers do not answer or refuse it.
    ///
    /// # Errors
    /// [`SpreadError::Layout`].
    pub fn remove(&self, layout: &Layout) -> Result<usize, SpreadError> {
        layout.check()?;
        Ok(self.delete(&layout.nodes))
    }

    /// Deletes chunks, of which those that are not there count as deleted; says how many were not.
    pub(crate) fn delete(&self, nodes: &[Node]) -> usize {
        let places: Vec<SocketAddr> = nodes.iter().map(|node| node.server).collect();
        let clients = self.clients(&places).into_iter();
        let asked: Vec<_> = nodes
            .iter()
            .zip(clients)
            .map(|(node, client)| Some(client.ok()?.delete(node.chunk)))
            .collect();
        let is_gone = |deleted: Option<Pending<()>>| match deleted?.wait() {
            Ok(()) => Some(()),
            Err(error) => match error.kind {
                ErrorKind::Refused(ErrorReply::NoSuchChunk { .. }) => Some(()),
                _ => None,
            },
        };
        asked.into_iter().map(is_gone).filter(Option::is_none).count()
    }
}

/// Whether the units of a stripe belong together.
fn fits(layout: &Layout, units: &[&[u8]]) -> bool {
    match layout.policy.code() {
        Some(code) => {
            let (data, parity) = units.split_at(code.shape().k());
            code.check(data, parity).is_ok_and(ShardSet::is_empty)
        }
        None => units.windows(2).all(|pair| pair[0] == pair[1]),
    }
}

//! What has become of each part of a file.

use std::net::SocketAddr;

use towpath_fastpath::control::ChunkInfo;
use towpath_fastpath::{Client, ErrorKind, ErrorReply, Pending};

use crate::error::{PartError, SpreadError};
use crate::layout::{Layout, Node};
use crate::servers::Servers;
use crate::survey::Subject;
use crate::update::head_chunk;

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
    /// It has so many bytes, and not as many as the layout says.
    OtherLength(u64),
    /// The server does not answer.
    Unreachable,
    /// The server answers, and does not give it.
    Refused,
}

/// A part that is whole, as far as its server says, or why it is not.
pub(crate) type Part = Result<Client, PartError>;

/// The parts that are whole by the layout, on servers that are there; once so many are, others are
/// not waited for. What has become of them is
/// not asked: that takes as long as the slowest server.
pub(crate) fn parts_by_layout(servers: &Servers, layout: &Layout, enough: usize) -> Vec<Part> {
    let whole = layout.nodes.iter().filter(|node| node.version.is_some());
    let places: Vec<SocketAddr> = whole.map(|node| node.server).collect();
    let mut clients = servers.clients_soon(&places, enough).into_iter();
    let part = |node: &Node| match node.version {
        Some(_) => clients.next().unwrap_or(Err(PartError::Gone)),
        None => Err(PartError::NotWhole),
    };
    layout.nodes.iter().map(part).collect()
}

/// Asks for the state of all parts at once.
pub(crate) fn parts(servers: &Servers, layout: &Layout) -> Vec<Part> {
    let places: Vec<SocketAddr> = layout.nodes.iter().map(|node| node.server).collect();
    let part_bytes = layout.stripes().part_bytes();
    let asked = servers.ask_each(&places, |part, client| {
        let Node { chunk, version, .. } = layout.nodes[part];
        version.map(|expected| (client.stat(chunk), client, expected))
    });
    let told = asked.into_iter().zip(&places).map(|(asked, server)| {
        let (stat, client, expected) = asked?.ok_or(PartError::NotWhole)?;
        let told = stat.wait().map_err(PartError::from);
        let info = told.inspect_err(|error| servers.note(*server, error))?;
        if info.unfinished {
            return Err(PartError::Unfinished);
        }
        if info.version != expected {
            return Err(PartError::OtherVersion { expected, found: info.version });
        }
        if info.byte_len != part_bytes {
            return Err(PartError::OtherLength { expected: part_bytes, found: info.byte_len });
        }
        Ok(client)
    });
    told.collect()
}

/// Parts that are there and are not what the layout says, as they are now, asked for at once; the
/// others are to be made anew.
pub(crate) fn patients(
    servers: &Servers,
    layout: &Layout,
    found: &[Part],
    bad: &[usize],
) -> Vec<(usize, Subject)> {
    let is_there = |part: &&usize| match &found[**part] {
        Ok(_) => true,
        Err(error) => {
            matches!(error, PartError::OtherVersion { .. } | PartError::OtherLength { .. })
        }
    };
    let ask = |part: &usize| {
        let node = layout.nodes[*part];
        let client = servers.client(node.server).ok()?;
        Some((*part, node.chunk, client.stat(node.chunk), client))
    };
    let asked: Vec<_> = bad.iter().filter(is_there).filter_map(ask).collect();
    let told = asked.into_iter().filter_map(|(part, chunk, stat, client)| {
        let ChunkInfo { version, byte_len, unfinished, .. } = stat.wait().ok()?;
        (!unfinished).then_some((part, Subject { client, chunk, version, byte_len }))
    });
    told.collect()
}

impl NodeState {
    fn of(part: &Part) -> Self {
        match part {
            Ok(_) => Self::Whole,
            Err(PartError::NotWhole | PartError::Unfinished | PartError::OtherServer) => {
                Self::Missing
            }
            Err(PartError::OtherLength { found, .. }) => Self::OtherLength(*found),
            Err(PartError::OtherVersion { found, .. }) => Self::Changed(*found),
            Err(PartError::Wrong) => Self::Refused,
            Err(PartError::Gone | PartError::Away { .. } | PartError::Told(_)) => Self::Unreachable,
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
    /// [`SpreadError::Layout`], [`SpreadError::Change`].
    pub fn stat(&self, layout: &Layout) -> Result<Vec<NodeState>, SpreadError> {
        let layout = self.current(layout)?;
        Ok(parts(self, &layout).iter().map(NodeState::of).collect())
    }

    /// Deletes all parts; gives those that are left, since their servers do not answer or refuse
    /// it.
    ///
    /// # Errors
    /// [`SpreadError::Layout`].
    pub fn remove(&self, layout: &Layout) -> Result<Vec<Node>, SpreadError> {
        layout.check()?;
        Ok(self.discard(&[&layout.nodes[..], &layout.left].concat()))
    }

    /// Deletes chunks that no layout needs any more, such as those that a
    /// [`repair`](Self::repair) has replaced, once its layout is kept, and what their servers
    /// remember of changes of them. Those that are not there
    /// count as deleted; gives the ones that are left, since their servers do not answer or refuse
    /// it.
    pub fn discard(&self, nodes: &[Node]) -> Vec<Node> {
        let places: Vec<SocketAddr> = nodes.iter().map(|node| node.server).collect();
        // A delete of unknown fate is repeated until it is known.
        let asked = self.ask_each(&places, |at, client| {
            let (client, chunk) = (client.sole_writer(), nodes[at].chunk);
            [client.delete(chunk), client.delete(head_chunk(chunk))]
        });
        let is_gone = |deleted: Pending<()>| match deleted.wait() {
            Ok(()) => Some(()),
            Err(error) => match error.kind {
                ErrorKind::Refused(ErrorReply::NoSuchChunk { .. }) => Some(()),
                _ => None,
            },
        };
        let gone = asked.into_iter().map(|asked| {
            let [part, head] = asked.ok()?;
            // Nobody asks what was remembered of a part that is gone.
            let _ = is_gone(head);
            is_gone(part)
        });
        let gone = gone.zip(nodes);
        gone.filter(|(gone, _)| gone.is_none()).map(|(_, node)| *node).collect()
    }
}

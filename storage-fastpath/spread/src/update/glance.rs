//! What a reader asks beside its first stripe: whether the file was changed since its layout was
//! made.

use towpath_fastpath::{ErrorKind, ErrorReply, ReadData};

use super::heads::head_chunk;
use super::record::{HEAD_BYTES, Record, Stage};
use crate::layout::Layout;
use crate::race::Race;
use crate::servers::Servers;
use crate::state::Part;

/// A question to all who remember changes, of whom any one knows of each that is made.
pub(crate) struct Glance {
    race: Race<(), ReadData>,
}

impl Glance {
    /// Asks those that are there.
    pub(crate) fn begin(layout: &Layout, parts: &[Part]) -> Self {
        let mut race = Race::new();
        let first = layout.policy.data() - 1;
        for (node, part) in layout.nodes.iter().zip(parts).skip(first) {
            if let Ok(client) = part {
                race.add((), client.read_held(head_chunk(node.chunk), 0, HEAD_BYTES));
            }
        }
        Self { race }
    }

    /// What the first of them says. Nobody is waited for who is late: a part that was changed has
    /// another version in any case.
    pub(crate) fn says_other(mut self, servers: &Servers, layout: &Layout) -> bool {
        let late_by = servers.late_by();
        while let Some((_, told)) = self.race.next(Some(late_by)) {
            match told.map_err(|error| error.kind) {
                Ok(data) => {
                    let mut head = vec![0; HEAD_BYTES];
                    data.copy_to(&mut head);
                    let record = Record::parse(&head, layout.nodes.len());
                    return record.is_some_and(|record| differs(&record, layout));
                }
                Err(ErrorKind::Refused(
                    ErrorReply::NoSuchChunk { .. } | ErrorReply::PastEnd { .. },
                )) => return false,
                // Another one says it.
                Err(_) => {}
            }
        }
        false
    }
}

/// Whether a record says something that the layout does not.
fn differs(record: &Record, layout: &Layout) -> bool {
    let by_layout = layout.nodes.iter().map(|node| node.version);
    record.generation == layout.generation
        && (matches!(record.stage, Stage::Intent { .. })
            || !record.versions.iter().copied().eq(by_layout))
}

//! Who watches what, and up to where it was told.

use std::collections::BTreeMap;

use super::engine::Engine;
use super::rows::Rows;
use super::{MetaError, Outcome, Report, Revision, Tag};

/// Revisions that are looked through for a watch at once.
const REVISIONS_AT_ONCE: u64 = 256;

/// A client of a store.
pub(super) type ClientId = u64;

#[derive(Debug)]
struct Watch {
    prefix: String,
    seen: Revision,
}

/// The watches of all clients of a store.
#[derive(Debug, Default)]
pub(super) struct Watches(BTreeMap<(ClientId, Tag), Watch>);

impl Watches {
    /// One more, which has seen all up to a revision.
    pub(super) fn begin(&mut self, client: ClientId, tag: Tag, prefix: String, seen: Revision) {
        self.0.insert((client, tag), Watch { prefix, seen });
    }

    /// One ends, if it is there; what it is told then.
    pub(super) fn end(&mut self, client: ClientId, tag: Tag) -> Option<Report> {
        let result = Ok(Outcome::WatchEnded);
        self.0.remove(&(client, tag)).map(|_| Report::Done { tag, result })
    }

    /// Whether it is there.
    pub(super) fn has(&self, client: ClientId, tag: Tag) -> bool {
        self.0.contains_key(&(client, tag))
    }

    /// Whether one has not been told all up to a revision.
    pub(super) fn any_behind(&self, revision: Revision) -> bool {
        self.0.values().any(|watch| watch.seen < revision)
    }

    /// Nobody is there any more who could be told.
    pub(super) fn forget(&mut self, client: ClientId) {
        self.0.retain(|(whose, _), _| *whose != client);
    }

    /// All end, for one reason.
    pub(super) fn end_all(&mut self, why: &MetaError) -> Vec<(ClientId, Report)> {
        let all = std::mem::take(&mut self.0).into_keys();
        all.map(|(client, tag)| (client, Report::Done { tag, result: Err(why.clone()) })).collect()
    }

    /// Tells clients that have room what changed, a part at a time; whether there is more.
    pub(super) fn tell(
        &mut self,
        engine: &Engine,
        rows: &impl Rows,
        has_room: impl Fn(ClientId) -> bool,
        mut say: impl FnMut(ClientId, Report),
    ) -> bool {
        let mut is_behind = false;
        self.0.retain(|&(client, tag), watch| {
            if watch.seen >= engine.revision() {
                return true;
            }
            if !has_room(client) {
                is_behind = true;
                return true;
            }
            match engine.changes(rows, &watch.prefix, watch.seen, REVISIONS_AT_ONCE) {
                Ok((found, seen)) => {
                    watch.seen = seen;
                    is_behind |= seen < engine.revision();
                    for changed in found {
                        say(client, Report::Changed { tag, changed });
                    }
                    true
                }
                Err(why) => {
                    say(client, Report::Done { tag, result: Err(why) });
                    false
                }
            }
        });
        is_behind
    }
}

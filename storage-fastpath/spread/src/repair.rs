//! Parts made anew.

use std::net::SocketAddr;

use towpath_ec::ShardSet;

use crate::error::{PartError, SpreadError};
use crate::get::Reader;
use crate::layout::{Layout, LayoutError, Node};
use crate::put::Writer;
use crate::servers::Servers;
use crate::state::{Part, parts};

/// What a repair did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repaired {
    /// Where the file is now. The layout that was given holds too, until `replaced` are deleted.
    pub layout: Layout,
    /// The parts that were made anew.
    pub parts: ShardSet,
    /// Chunks of the given layout that the new one does without. Once the new one is kept, they are
    /// to be [discarded](Servers::discard).
    pub replaced: Vec<Node>,
    /// Chunks that were made. Where the new layout is not kept, they are to be
    /// [discarded](Servers::discard) instead.
    pub made: Vec<Node>,
    /// Bytes that were read for it.
    pub bytes_read: u64,
    /// Bytes that were written.
    pub bytes_written: u64,
}

impl Servers {
    /// Makes the parts of a file anew that are not whole by their servers, and those that are
    /// `also` to be made, of which whatever can be read is used: each on its server where that
    /// answers, else on the next one of `replacements` that has no part of the file. Where nothing
    /// is to be done, nothing is. `progress` is told how many bytes of the file are done.
    ///
    /// The parts that are whole stay as they are, and nothing is deleted: the caller keeps the
    /// layout that comes back first, and discards what it replaces then.
    ///
    /// # Errors
    /// [`SpreadError`]; the layout that was given holds as before.
    pub fn repair(
        &self,
        layout: &Layout,
        also: ShardSet,
        replacements: &[SocketAddr],
        mut progress: impl FnMut(u64),
    ) -> Result<Repaired, SpreadError> {
        layout.check()?;
        let found = parts(self, layout);
        let is_bad = |part: &usize| found[*part].is_err() || also.contains(*part);
        let bad: Vec<usize> = (0..found.len()).filter(is_bad).collect();
        let mut repaired = Repaired {
            layout: layout.clone(),
            parts: bad.iter().copied().collect(),
            replaced: bad.iter().map(|part| layout.nodes[*part]).collect(),
            made: Vec::new(),
            bytes_read: 0,
            bytes_written: 0,
        };
        if bad.is_empty() {
            return Ok(repaired);
        }
        let generation = layout.generation.checked_add(1).ok_or(LayoutError::Generation)?;
        let places = self.places(layout, &found, &bad, replacements)?;
        let mut writer = Writer::create(self, &places, bad.len())?;
        let wanted = repaired.parts;
        let (mut read, mut written, mut done) = (0, 0, 0);
        let made = Reader::with(self, layout, found)
            .each(|reader, stripe, mut units| {
                read += (units.present().len() * stripe.unit) as u64;
                reader.make(stripe, wanted, &mut units)?;
                let made: Vec<&[u8]> =
                    bad.iter().map(|part| units.of[*part].as_deref().unwrap_or(&[])).collect();
                written += (made.len() * stripe.unit) as u64;
                writer.write(stripe.offset, &made).map_err(not_made)?;
                done += stripe.bytes as u64;
                progress(done);
                Ok(())
            })
            .and_then(|_| writer.finish(layout.stripes().part_bytes()).map_err(not_made));
        if let Err(error) = made {
            return Err(writer.give_up(error));
        }
        repaired.made = writer.nodes();
        for (part, node) in bad.iter().zip(&repaired.made) {
            repaired.layout.nodes[*part] = *node;
        }
        repaired.layout.generation = generation;
        (repaired.bytes_read, repaired.bytes_written) = (read, written);
        Ok(repaired)
    }

    /// Where parts are made anew.
    fn places(
        &self,
        layout: &Layout,
        found: &[Part],
        bad: &[usize],
        replacements: &[SocketAddr],
    ) -> Result<Vec<SocketAddr>, SpreadError> {
        // A server of two parts would take both with it.
        let mut used: Vec<SocketAddr> = layout.nodes.iter().map(|node| node.server).collect();
        let mut others = replacements.iter().copied();
        let mut place = |part: usize| {
            let server = layout.nodes[part].server;
            let is_there = !matches!(found[part], Err(PartError::Gone | PartError::Told(_)))
                && self.client(server).is_ok();
            if is_there {
                return Ok(server);
            }
            let is_free = |other: &SocketAddr| !used.iter().any(|it| Self::are_same(*it, *other));
            let instead = others.find(is_free);
            used.extend(instead);
            instead.ok_or(SpreadError::NoServer { part, server })
        };
        bad.iter().map(|part| place(*part)).collect()
    }
}

/// The error of whoever writes the parts, in the words of a repair.
fn not_made(error: SpreadError) -> SpreadError {
    match error {
        SpreadError::TooFew { server, source, .. } => SpreadError::NotMade { server, source },
        other => other,
    }
}

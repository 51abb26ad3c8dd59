//! Parts made anew.

use std::net::SocketAddr;

use towpath_ec::ShardSet;

use crate::error::{PartError, SpreadError};
use crate::get::Reader;
use crate::layout::Layout;
use crate::put::Writer;
use crate::servers::Servers;
use crate::state::{Part, parts};

/// What a repair did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repaired {
    /// Where the file is now: the layout that was given holds no more for the parts made anew.
    pub layout: Layout,
    /// The parts that were made anew.
    pub parts: ShardSet,
    /// Bytes that were read for it.
    pub bytes_read: u64,
    /// Bytes that were written.
    pub bytes_written: u64,
}

impl Servers {
    /// Makes the parts of a file anew that are not whole by their servers, and those that are
    /// `also` to be made: each on its server where that answers, else on the next one of
    /// `replacements`. Where nothing is to be done, nothing is. `progress` is told how many bytes
    /// of the file are done.
    ///
    /// The parts that are whole stay as they are. The layout that comes back is the one to keep;
    /// chunks that it replaces are deleted where their servers answer.
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
        let mut found = parts(self, layout);
        for (part, of) in found.iter_mut().enumerate() {
            if also.contains(part) {
                *of = Err(PartError::NotWhole);
            }
        }
        let bad: Vec<usize> = (0..found.len()).filter(|part| found[*part].is_err()).collect();
        let mut repaired = Repaired {
            layout: layout.clone(),
            parts: bad.iter().copied().collect(),
            bytes_read: 0,
            bytes_written: 0,
        };
        if bad.is_empty() {
            return Ok(repaired);
        }
        let places = self.places(layout, &found, &bad, replacements)?;
        let mut writer = Writer::create(self, &places, bad.len())?;
        let wanted = repaired.parts;
        let (mut read, mut written, mut done) = (0, 0, 0);
        let made = Reader::with(self, layout, found)
            .each(|reader, stripe, mut units| {
                read += (units.present().len() * stripe.unit) as u64;
                reader.make(stripe, wanted, &mut units);
                let made: Vec<&[u8]> =
                    bad.iter().map(|part| units.of[*part].as_deref().unwrap_or(&[])).collect();
                written += (made.len() * stripe.unit) as u64;
                writer.write(stripe.offset, &made)?;
                done += stripe.bytes as u64;
                progress(done);
                Ok(())
            })
            .and_then(|_| writer.finish(layout.stripes().part_bytes()));
        if let Err(error) = made {
            self.delete(&writer.nodes());
            return Err(error);
        }
        let replaced: Vec<_> = bad.iter().map(|part| layout.nodes[*part]).collect();
        for (part, node) in bad.iter().zip(writer.nodes()) {
            repaired.layout.nodes[*part] = node;
        }
        repaired.layout.generation += 1;
        (repaired.bytes_read, repaired.bytes_written) = (read, written);
        // What is not deleted is not in the layout any more.
        self.delete(&replaced);
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
        let mut others = replacements.iter().copied();
        let mut place = |part: usize| {
            let server = layout.nodes[part].server;
            let is_there = !matches!(found[part], Err(PartError::Open(_) | PartError::Gone))
                && self.client(server).is_ok();
            let instead = if is_there { Some(server) } else { others.next() };
            instead.ok_or(SpreadError::NoServer { part, server })
        };
        bad.iter().map(|part| place(*part)).collect()
    }
}

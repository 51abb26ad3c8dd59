//! Parts made anew, or brought up to date.

use std::net::SocketAddr;

use towpath_ec::ShardSet;

use crate::error::{PartError, SpreadError};
use crate::get::Reader;
use crate::layout::{Layout, LayoutError, Node};
use crate::mend::{Mender, mostly_differing};
use crate::ring::{Ring, fit};
use crate::scrub::Scrubbed;
use crate::servers::Servers;
use crate::state::{Part, parts, patients};
use crate::survey::Subject;
use crate::writer::Writer;

/// How a file is repaired.
#[derive(Clone, Debug, Default)]
pub struct RepairOptions {
    also: ShardSet,
    odd: ShardSet,
    anew: ShardSet,
    replacements: Vec<SocketAddr>,
    share: bool,
    by_client: bool,
}

impl RepairOptions {
    /// What is not whole by its server, on its server.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Parts that a [scrub](Servers::scrub) has found bad are to be made whole as well. Those that
    /// it has found wrong though each slice has its checksum are read for nothing.
    #[must_use]
    pub fn scrubbed(mut self, found: &Scrubbed) -> Self {
        (self.also, self.odd) = (found.bad.with(found.odd), found.odd);
        self
    }

    /// Parts that are to be made anew, in chunks of other names, whatever is there of them.
    #[must_use]
    pub fn anew(mut self, parts: ShardSet) -> Self {
        self.anew = parts;
        self
    }

    /// Whether parts that are made anew are read and written by this client alone. By default the
    /// servers make them among themselves where as many parts as are enough are whole, and the
    /// client where they cannot. Default false.
    #[must_use]
    pub fn by_client(mut self, by_client: bool) -> Self {
        self.by_client = by_client;
        self
    }

    /// Servers for parts whose own do not answer; those that have a part of the file are none.
    #[must_use]
    pub fn replacements(mut self, servers: &[SocketAddr]) -> Self {
        self.replacements = servers.to_vec();
        self
    }

    /// Whether a replacement may have several parts where there are too few of them: these are lost
    /// together. Default false.
    #[must_use]
    pub fn share_replacements(mut self, share: bool) -> Self {
        self.share = share;
        self
    }
}

/// What a repair did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repaired {
    /// Where the file is now. The layout that was given holds too, until `replaced` are deleted.
    pub layout: Layout,
    /// The parts that were made anew, in chunks of other names.
    pub parts: ShardSet,
    /// The parts that were brought up to date where they are: only slices that differed were
    /// written.
    pub mended: ShardSet,
    /// The file may be changed by the new layout, and not by the one that was given.
    pub reopened: bool,
    /// Chunks of the given layout that the new one does without. Once the new one is kept, they are
    /// to be [discarded](Servers::discard).
    pub replaced: Vec<Node>,
    /// Chunks that were made. Where the new layout is not kept, they are to be
    /// [discarded](Servers::discard) instead.
    pub made: Vec<Node>,
    /// Bytes of checksums or sketches that came, to know which slices differ.
    pub bytes_compared: u64,
    /// Bytes of parts that were read for it.
    pub bytes_read: u64,
    /// Bytes that were written.
    pub bytes_written: u64,
    /// Bytes that servers sent to each other to make parts anew.
    pub bytes_passed_on: u64,
    /// Why the servers could not make parts anew among themselves, so that the client did.
    pub not_by_servers: Option<String>,
}

impl Repaired {
    fn nothing(layout: &Layout) -> Self {
        Self {
            layout: layout.clone(),
            parts: ShardSet::NONE,
            mended: ShardSet::NONE,
            reopened: false,
            replaced: Vec::new(),
            made: Vec::new(),
            bytes_compared: 0,
            bytes_read: 0,
            bytes_written: 0,
            bytes_passed_on: 0,
            not_by_servers: None,
        }
    }

    /// Parts of a layout are in these chunks now.
    fn take(&mut self, layout: &Layout, parts: &[usize], made: Vec<Node>) {
        self.parts = parts.iter().copied().collect();
        for (part, node) in parts.iter().zip(&made) {
            self.replaced.push(layout.nodes[*part]);
            self.layout.nodes[*part] = *node;
        }
        self.made = made;
    }

    /// Whether there was something to do: then the layout is another one.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        self.reopened
    }
}

/// What servers have made among themselves.
struct ByServers {
    nodes: Vec<Node>,
    /// Bytes of sketches that came.
    compared: u64,
    /// Bytes of the parts.
    bytes: u64,
    /// Bytes that servers sent to each other.
    passed_on: u64,
}

impl Servers {
    /// Makes the parts of a file whole that are not so by their servers, and those that a scrub
    /// [has found bad](RepairOptions::scrubbed).
    ///
    /// Where the others are enough to read the file, parts that are there are compared with them
    /// slice by slice, and what differs is written where they are. Other parts are made anew: each
    /// on its server where that answers, else on the next replacement that has no part of the
    /// file. Where those that are whole are not enough, whatever can be read of damaged ones is
    /// used. Where nothing is to be done, nothing is. `progress` is told how many bytes of the file
    /// are done.
    ///
    /// The parts that are whole stay as they are, and nothing is deleted: the caller keeps the
    /// layout that comes back first, and discards what it replaces then.
    ///
    /// # Errors
    /// [`SpreadError`]; by the layout that was given the file is read as before. Where the error
    /// came as parts were brought up to date, nothing is changed by it any more until the file is
    /// repaired once more.
    pub fn repair(
        &self,
        layout: &Layout,
        options: &RepairOptions,
        mut progress: impl FnMut(u64),
    ) -> Result<Repaired, SpreadError> {
        let settled = self.settled_to_repair(layout)?;
        let layout = &settled.layout;
        let options = &options.clone().anew(options.anew.with(settled.without_memory()));
        let (found, also) = (parts(self, layout), options.also.with(options.anew));
        let is_bad = |part: &usize| found[*part].is_err() || also.contains(*part);
        let bad: Vec<usize> = (0..found.len()).filter(is_bad).collect();
        let mut repaired = Repaired::nothing(layout);
        if bad.is_empty() && !settled.is_closed() {
            return Ok(repaired);
        }
        let sources = (0..found.len()).filter(|part| !is_bad(part)).collect::<ShardSet>();
        // Whoever reads by the layout before does without the parts that are written to.
        let patients = match sources.len() >= layout.policy.enough() {
            true => self.patients(layout, &found, (sources, &bad, options), &mut repaired)?,
            false => Vec::new(),
        };
        repaired.mended = patients.iter().map(|(part, _)| *part).collect();
        let anew: Vec<usize> =
            bad.iter().copied().filter(|part| !repaired.mended.contains(*part)).collect();
        if !anew.is_empty() {
            let of = (&anew[..], sources, options);
            self.make_anew(layout, &found, of, &mut repaired, &mut progress)?;
        }
        // Whoever changes the file by the layout before would miss the parts that were made, and
        // could not finish what he has begun once a part is written to for a repair.
        let closed = self.close(&settled).and_then(|generation| {
            let next = generation.checked_add(1).filter(|next| *next < u64::MAX);
            Ok(next.ok_or(LayoutError::Generation)?)
        });
        match closed {
            Ok(generation) => repaired.layout.generation = generation,
            Err(error) => return Err(self.take_back(&repaired, error)),
        }
        if !patients.is_empty() {
            let is_damaged = !options.also.is_empty();
            let of = (sources, patients);
            let mended = Mender::new(self, layout, &found, of, is_damaged)
                .and_then(|mender| mender.mend(progress))
                .map_err(|error| self.take_back(&repaired, error));
            let (versions, moved) = mended?;
            for (part, version) in versions {
                repaired.layout.nodes[part].version = Some(version);
            }
            repaired.bytes_compared += moved.compared;
            repaired.bytes_read += moved.read;
            repaired.bytes_written += moved.written;
        }
        repaired.reopened = true;
        Ok(repaired)
    }

    /// Parts that are brought up to date where they are: the others are to be made anew.
    fn patients(
        &self,
        layout: &Layout,
        found: &[Part],
        (sources, bad, options): (ShardSet, &[usize], &RepairOptions),
        repaired: &mut Repaired,
    ) -> Result<Vec<(usize, Subject)>, SpreadError> {
        let mut patients = patients(self, layout, found, bad);
        patients.retain(|(part, _)| !options.anew.contains(*part));
        // Of damage a scrub has found how little there is.
        if options.by_client || patients.is_empty() || !options.also.is_empty() {
            return Ok(patients);
        }
        // Servers make a part among themselves with fewer bytes than a client needs for most of it.
        let of = (sources, &patients[..]);
        let (mostly, compared) = mostly_differing(self, layout, found, of)?;
        repaired.bytes_compared = compared;
        patients.retain(|(part, _)| !mostly.contains(*part));
        Ok(patients)
    }

    /// Makes parts in new chunks.
    fn make_anew(
        &self,
        layout: &Layout,
        found: &[Part],
        (anew, sources, options): (&[usize], ShardSet, &RepairOptions),
        repaired: &mut Repaired,
        progress: &mut impl FnMut(u64),
    ) -> Result<(), SpreadError> {
        let places = self.places(layout, found, anew, options)?;
        let set = anew.iter().copied().collect();
        let ring = Ring::new(layout, found, (sources, set)).filter(|_| !options.by_client);
        if let Some(ring) = ring {
            match self.make_by_servers(&ring, layout, found, (sources, anew, &places), progress) {
                Ok(ByServers { nodes, compared, bytes, passed_on }) => {
                    repaired.take(layout, anew, nodes);
                    repaired.bytes_compared += compared;
                    (repaired.bytes_written, repaired.bytes_passed_on) = (bytes, passed_on);
                    return Ok(());
                }
                // Nothing of it is used: what may still come is for chunks of other names.
                Err(error @ SpreadError::Left { .. }) => return Err(error),
                Err(error) => repaired.not_by_servers = Some(error.to_string()),
            }
        }
        let mut writer = Writer::create(self, &places, anew.len(), None).map_err(not_made)?;
        let (mut read, mut written, mut done, mut compared) = (0, 0, 0, 0);
        let readable = readable(layout, found, sources, options.odd);
        let whole = readable.iter().enumerate().filter(|(_, part)| part.is_ok());
        let whole = whole.map(|(part, _)| part).collect();
        let made = Reader::with(self, layout, readable)
            .each(|reader, stripe, mut units| {
                read += (units.present().len() * stripe.unit) as u64;
                reader.make(stripe, set, &mut units)?;
                let made: Vec<&[u8]> =
                    anew.iter().map(|part| units.of[*part].as_deref().unwrap_or(&[])).collect();
                written += (made.len() * stripe.unit) as u64;
                writer.write(stripe.offset, &made).map_err(not_made)?;
                done += stripe.bytes as u64;
                progress(done);
                Ok(())
            })
            .and_then(|_| writer.finish(layout.stripes().part_bytes()).map_err(not_made))
            .and_then(|()| {
                let (mut after, nodes) = (layout.clone(), writer.nodes());
                anew.iter().zip(&nodes).for_each(|(part, node)| after.nodes[*part] = *node);
                let (fits, bytes) = fit(self, &after, found, (whole, set))?;
                compared = bytes;
                fits.then_some(()).ok_or(SpreadError::Unlike)
            });
        if let Err(error) = made {
            return Err(writer.give_up(error));
        }
        repaired.take(layout, anew, writer.nodes());
        repaired.bytes_compared += compared;
        (repaired.bytes_read, repaired.bytes_written) = (read, written);
        Ok(())
    }

    /// Has the servers make parts in new chunks, and holds them against the others.
    fn make_by_servers(
        &self,
        ring: &Ring<'_>,
        layout: &Layout,
        found: &[Part],
        (sources, anew, places): (ShardSet, &[usize], &[SocketAddr]),
        progress: &mut impl FnMut(u64),
    ) -> Result<ByServers, SpreadError> {
        let mut writer = Writer::create(self, places, anew.len(), None).map_err(not_made)?;
        let part_bytes = layout.stripes().part_bytes();
        let parts = anew.len() as u64;
        let mut made = || {
            let mut done = 0;
            for (part, node) in anew.iter().zip(writer.nodes()) {
                let made = ring.make(*part, &node, |bytes| {
                    done += bytes;
                    progress(done / parts);
                });
                made.map_err(|error| SpreadError::NotMade {
                    server: node.server,
                    source: Box::new(error),
                })?;
            }
            writer.finish(part_bytes).map_err(not_made)?;
            let mut after = layout.clone();
            let nodes = writer.nodes();
            anew.iter().zip(&nodes).for_each(|(part, node)| after.nodes[*part] = *node);
            let of = (sources, anew.iter().copied().collect());
            let (fits, compared) = fit(self, &after, found, of)?;
            let bytes = part_bytes * parts;
            match fits {
                true => Ok(ByServers { nodes, compared, bytes, passed_on: bytes * ring.hops() }),
                false => Err(SpreadError::Unlike),
            }
        };
        let made = made();
        made.map_err(|error| writer.give_up(error))
    }

    /// Deletes what was made, after this error; what is left is added to it.
    fn take_back(&self, repaired: &Repaired, error: SpreadError) -> SpreadError {
        let left = self.discard(&repaired.made);
        match left.is_empty() {
            true => error,
            false => SpreadError::Left { left, source: Box::new(error) },
        }
    }

    /// Where parts are made anew.
    fn places(
        &self,
        layout: &Layout,
        found: &[Part],
        bad: &[usize],
        options: &RepairOptions,
    ) -> Result<Vec<SocketAddr>, SpreadError> {
        // A server of two parts would take both with it.
        let mut used: Vec<SocketAddr> = layout.nodes.iter().map(|node| node.server).collect();
        let mut others = options.replacements.iter().copied();
        let mut given: Vec<SocketAddr> = Vec::new();
        let mut place = |part: usize| {
            let server = layout.nodes[part].server;
            let is_there = !matches!(
                found[part],
                Err(PartError::Gone | PartError::Away { .. } | PartError::Told(_))
            ) && self.client(server).is_ok();
            if is_there {
                return Ok(server);
            }
            let is_free = |other: &SocketAddr| !used.iter().any(|it| Self::are_same(*it, *other));
            let parts_of = |other: &&SocketAddr| given.iter().filter(|it| it == other).count();
            let shared = || given.iter().filter(|_| options.share).min_by_key(parts_of).copied();
            let instead = others.find(is_free).or_else(shared);
            used.extend(instead);
            given.extend(instead);
            instead.ok_or(SpreadError::NoServer { part, server })
        };
        bad.iter().map(|part| place(*part)).collect()
    }
}

/// Those that are read to make others: the ones that are whole where they are enough, else what
/// there is of damaged ones as well. A part that is wrong gives nothing by which that is seen.
fn readable(layout: &Layout, found: &[Part], whole: ShardSet, odd: ShardSet) -> Vec<Part> {
    let is_enough = whole.len() >= layout.policy.enough();
    let part = |(part, found): (usize, &Part)| match found {
        _ if odd.contains(part) => Err(PartError::Wrong),
        Ok(_) if is_enough && !whole.contains(part) => Err(PartError::NotWhole),
        Ok(client) => Ok(client.clone()),
        Err(error) => Err(error.again()),
    };
    found.iter().enumerate().map(part).collect()
}

/// The error of whoever writes the parts, in the words of a repair.
fn not_made(error: SpreadError) -> SpreadError {
    match error {
        SpreadError::TooFew { server, source, .. } => SpreadError::NotMade { server, source },
        other => other,
    }
}

//! Parts that the servers make anew among themselves, one after the other adding its own.

use towpath_ec::{Decoder, ShardSet};
use towpath_fastpath::{ChunkId, Client, Helper, Rebuild, Rebuilt, Terms};

use crate::coder::Coder;
use crate::error::{PartError, SpreadError};
use crate::layout::{Layout, Node};
use crate::race::Race;
use crate::scrub::belong_together;
use crate::servers::Servers;
use crate::state::Part;
use crate::survey::{By, Survey, WINDOW_BYTES};

/// Ranges of a part that are under way together: as many as keep each server of a ring busy while
/// the others add theirs.
const UNDER_WAY: usize = 16;

/// The servers that help to make parts anew.
pub(crate) struct Ring<'a> {
    layout: &'a Layout,
    /// As many parts that are whole as are enough.
    sources: ShardSet,
    /// Of the first source.
    client: Client,
    decoder: Option<Decoder>,
}

impl<'a> Ring<'a> {
    /// Of parts that are whole, which make others anew; none where they are too few.
    pub(crate) fn new(
        layout: &'a Layout,
        found: &[Part],
        (whole, anew): (ShardSet, ShardSet),
    ) -> Option<Self> {
        let sources: ShardSet = whole.iter().take(layout.policy.enough()).collect();
        let decoder = match layout.policy.code() {
            None => None,
            Some(code) => Some(Decoder::new(&code, sources, anew).ok()?),
        };
        let client = found.get(sources.iter().next()?)?.as_ref().ok()?.clone();
        let is_enough = sources.len() == layout.policy.enough();
        is_enough.then_some(Self { layout, sources, client, decoder })
    }

    /// How often servers send each byte to each other.
    pub(crate) fn hops(&self) -> u64 {
        self.sources.len() as u64
    }

    fn helpers(&self, part: usize) -> Vec<Helper> {
        let helper = |source: usize| {
            let Node { server, chunk, version } = self.layout.nodes[source];
            // A copy is what any other one is.
            let coefficient =
                self.decoder.as_ref().map_or(1, |decoder| decoder.coefficient(part, source));
            Some(Helper { server, chunk, version: version?, coefficient })
        };
        self.sources.iter().filter_map(helper).collect()
    }

    /// Makes a part in a chunk that nobody else knows. `done` is told how many bytes are.
    ///
    /// # Errors
    /// Why it was not made; some of it may be written later.
    pub(crate) fn make(
        &self,
        part: usize,
        node: &Node,
        mut done: impl FnMut(u64),
    ) -> Result<(), PartError> {
        let helpers = self.helpers(part);
        let (mut race, mut failed) = (Race::new(), None);
        let mut stripes = self.layout.stripes().iter();
        loop {
            while failed.is_none()
                && race.len() < UNDER_WAY
                && let Some(stripe) = stripes.next()
            {
                let (server, chunk, offset) = (node.server, node.chunk, stripe.offset);
                let (length, terms) = (stripe.unit as u32, Terms::default());
                let target = Rebuilt { server, chunk, offset, length, terms };
                match Rebuild::new(&helpers, target) {
                    Ok(plan) => race.add(stripe.bytes, self.client.rebuild(plan)),
                    Err(error) => failed = Some(PartError::Told(error.to_string())),
                }
            }
            match race.next(None) {
                Some((bytes, Ok(_))) => done(bytes as u64),
                Some((_, Err(error))) => failed = failed.or(Some(error.into())),
                None => return failed.map_or(Ok(()), Err),
            }
        }
    }
}

/// Whether parts that were made belong to those that are whole, by sketches that nobody could
/// foresee, and how many bytes of them came. No more than are enough are compared with nothing.
pub(crate) fn fit(
    servers: &Servers,
    layout: &Layout,
    found: &[Part],
    (whole, anew): (ShardSet, ShardSet),
) -> Result<(bool, u64), SpreadError> {
    if whole.with(anew).len() <= layout.policy.enough() {
        return Ok((true, 0));
    }
    let part = |(part, found): (usize, &Part)| match found {
        _ if anew.contains(part) => servers.client(layout.nodes[part].server),
        Ok(client) if whole.contains(part) => Ok(client.clone()),
        _ => Err(PartError::NotWhole),
    };
    let subjects = layout.subjects(found.iter().enumerate().map(part).collect());
    let seed = ChunkId::random().0 as u64;
    let mut survey = Survey::new(servers, layout, By::Sketch(seed), subjects);
    let mut coder = Coder::new(layout.policy);
    for (offset, bytes) in layout.stripes().windows(WINDOW_BYTES) {
        let marks = survey.look(offset, bytes);
        if !belong_together(&mut coder, &marks, anew)? {
            return Ok((false, survey.bytes));
        }
    }
    Ok((true, survey.bytes))
}

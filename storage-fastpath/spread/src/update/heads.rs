//! What servers remember of the changes of a file: looked at, and brought to an end where whoever
//! began one has left it half-way (docs/updates.md section 2).

use towpath_fastpath::{ChunkId, ClientError, ErrorKind, ErrorReply, Fate, Method};

use super::net::{Answer, Net, Op, all};
use super::record::{HEAD_BYTES, NUMBER_MAX, Record, Stage};
use crate::error::PartError;
use crate::layout::Layout;

/// How often whoever meets others looks again before it gives up.
pub(crate) const TRIES: u32 = 24;

/// How often a head is read that somebody writes for the first time.
const HEAD_TRIES: u32 = 3;

/// The chunk in which the server of a part remembers changes of its file, from the name of the
/// part. A capability for a prefix of the one is one for the other.
pub(crate) fn head_chunk(part: ChunkId) -> ChunkId {
    ChunkId(part.0 ^ 1)
}

/// What one server remembers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Head {
    /// Of the chunk; none where there is none.
    pub(super) version: Option<u64>,
    pub(super) record: Option<Record>,
}

#[cfg(test)]
impl Head {
    pub(crate) fn record(&self) -> Option<&Record> {
        self.record.as_ref()
    }
}

/// What the servers that remember changes do, each by its part.
pub(crate) type Look = Vec<(usize, Result<Head, PartError>)>;

/// Who looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// It changes the file next: every server has to have what was changed before.
    Writer,
    /// It reads: some servers may be gone.
    Reader,
    /// It closes the file next: some servers may be gone, and what was begun is made, since nobody
    /// can make it afterwards.
    Repairer,
}

/// How a file is when nothing of it is half-way.
#[derive(Debug)]
pub(crate) struct State {
    /// Of its last change.
    pub(crate) number: u64,
    pub(crate) id: u64,
    /// By this layout nothing is changed any more.
    pub(crate) is_closed: bool,
    /// Of each part; none where it is not known.
    pub(crate) versions: Vec<Option<u64>>,
    pub(crate) look: Look,
    /// What tells all that the last change is made, where some do not know.
    pub(crate) untold: Option<Record>,
}

/// Why a step did not go on.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Somebody else was there, with this part: to look again is of use.
    Met(usize, PartError),
    /// The server of a part is not there, or refuses.
    Part(usize, PartError),
    /// A repair has made a newer layout.
    Closed,
}

/// Whether looking again can be of use after that.
fn is_met(error: &PartError) -> bool {
    match error {
        PartError::OtherVersion { .. } => true,
        PartError::Client(error) => matches!(
            error.kind,
            ErrorKind::Refused(ErrorReply::OtherVersion { .. } | ErrorReply::ChunkExists { .. })
                | ErrorKind::PeerGone { fate: Fate::Unknown }
        ),
        _ => false,
    }
}

/// Whether a part has a version that was not expected.
pub(super) fn is_of_version(stop: &Stop) -> bool {
    let other = |error: &ClientError| {
        matches!(error.kind, ErrorKind::Refused(ErrorReply::OtherVersion { .. }))
    };
    match stop {
        Stop::Met(_, PartError::Client(error)) => other(error),
        Stop::Met(_, error) => matches!(error, PartError::OtherVersion { .. }),
        Stop::Part(..) | Stop::Closed => false,
    }
}

pub(crate) fn stop(part: usize, error: PartError) -> Stop {
    if is_met(&error) { Stop::Met(part, error) } else { Stop::Part(part, error) }
}

/// A file, and those that have it.
pub(crate) struct File<'a> {
    pub(crate) net: &'a dyn Net,
    pub(crate) layout: &'a Layout,
    /// Changes are not made known before they are made, for tests that must notice.
    #[cfg(test)]
    pub(crate) bug: Option<super::tests::Bug>,
}

impl<'a> File<'a> {
    pub(crate) fn new(net: &'a dyn Net, layout: &'a Layout) -> Self {
        Self {
            net,
            layout,
            #[cfg(test)]
            bug: None,
        }
    }

    /// The parts whose servers remember changes: one more than may be lost.
    pub(crate) fn holders(&self) -> std::ops::Range<usize> {
        self.layout.policy.data() - 1..self.layout.policy.parts()
    }

    pub(super) fn head_of(&self, part: usize) -> ChunkId {
        head_chunk(self.layout.nodes[part].chunk)
    }

    /// What all of them remember.
    pub(crate) async fn look(&self) -> Look {
        all(self.holders().map(|part| async move { (part, self.head(part).await) })).await
    }

    async fn head(&self, part: usize) -> Result<Head, PartError> {
        let chunk = self.head_of(part);
        let (parts, part_bytes) = (self.layout.nodes.len(), self.layout.stripes().part_bytes());
        let mut tries = 0;
        loop {
            let read = self.net.ask(part, Op::Read { chunk, offset: 0, bytes: HEAD_BYTES }).await;
            let kind = match read {
                Ok(Answer { version, bytes, .. }) => {
                    let record = Record::parse(&bytes, parts);
                    let record = record.filter(|record| record.is_within(part_bytes));
                    return Ok(Head { version: Some(version), record });
                }
                Err(PartError::Client(error)) => error.kind,
                Err(error) => return Err(error),
            };
            let error = match kind {
                ErrorKind::Refused(ErrorReply::NoSuchChunk { .. }) => return Ok(Head::default()),
                ErrorKind::Refused(ErrorReply::PastEnd { .. }) => {
                    // Nothing is in it yet: that is what the version must be of.
                    let Answer { version, len, .. } =
                        self.net.ask(part, Op::Stat { chunk }).await?;
                    if len == 0 {
                        return Ok(Head { version: Some(version), record: None });
                    }
                    PartError::OtherLength { expected: 0, found: len }
                }
                kind => {
                    ClientError { method: Method::Read, chunk: Some(chunk), offset: Some(0), kind }
                        .into()
                }
            };
            let is_written = matches!(error, PartError::OtherLength { .. });
            if !is_written || tries == HEAD_TRIES {
                return Err(error);
            }
            tries += 1;
        }
    }

    /// Has one of them remember a record in place of what it did before.
    pub(crate) async fn put(
        &self,
        (part, head): (usize, &Head),
        record: &Record,
        body: &[u8],
    ) -> Result<Head, PartError> {
        let chunk = self.head_of(part);
        let version = match head.version {
            Some(version) => version,
            // Of what somebody else has written there since it has another one.
            None => self.net.ask(part, Op::Create { chunk }).await?.version,
        };
        let (bytes, stamp) = ([&record.emit(), body].concat(), record.stamp());
        let write = Op::Write { chunk, offset: 0, bytes, version, stamp };
        let version = Some(self.net.ask(part, write).await?.version);
        Ok(Head { version, record: Some(record.clone()) })
    }

    /// How the file is when what was begun is at its end. Whoever finds a change that was made
    /// known to all and perhaps not made, makes it.
    pub(crate) async fn settle(&self, who: Who, known: Option<Look>) -> Result<State, Stop> {
        let mut known = known;
        let mut tries = 0;
        loop {
            let look = match known.take() {
                Some(look) => look,
                None => self.look().await,
            };
            match self.settle_once(who, look).await {
                Err(Stop::Met(..)) if tries < TRIES => {
                    self.net.pause(tries).await;
                    tries += 1;
                }
                settled => return settled,
            }
        }
    }

    /// The same, and all who remember it are told.
    pub(crate) async fn settle_and_tell(&self, who: Who) -> Result<State, Stop> {
        let mut state = self.settle(who, None).await?;
        self.tell(&mut state).await;
        Ok(state)
    }

    async fn settle_once(&self, who: Who, look: Look) -> Result<State, Stop> {
        let gone = look.iter().find_map(|(part, head)| Some((*part, head.as_ref().err()?.again())));
        let is_nobody = look.iter().all(|(_, head)| head.is_err());
        if let Some((part, error)) = gone
            && (who == Who::Writer || is_nobody)
        {
            return Err(Stop::Part(part, error));
        }
        let records = look.iter().filter_map(|(_, head)| head.as_ref().ok()?.record.clone());
        let newest = records.max_by_key(Record::age);
        let by_layout = || self.layout.nodes.iter().map(|node| node.version).collect();
        let Some(newest) = newest else {
            let versions = by_layout();
            let (number, id, is_closed, untold) = (0, 0, false, None);
            return Ok(State { number, id, is_closed, versions, look, untold });
        };
        let Record { generation, number, id, stage, .. } = newest;
        let own = self.layout.generation;
        if generation != own {
            // Of an older layout it says nothing, and of a newer one nothing that helps.
            let (versions, is_closed, untold) = (by_layout(), generation > own, None);
            return Ok(State { number, id, is_closed, versions, look, untold });
        }
        match stage {
            Stage::Intent { .. } => self.finish(who, look, newest).await,
            Stage::Made | Stage::Closed => {
                let (versions, is_closed) = (newest.versions, stage == Stage::Closed);
                Ok(State { number, id, is_closed, versions, look, untold: None })
            }
        }
    }

    /// Tells all who remember a change that it is made. Whoever does not hear of it looks for
    /// himself.
    pub(crate) async fn tell(&self, state: &mut State) {
        let Some(made) = state.untold.take() else { return };
        let heads = state.look.iter().filter_map(|(part, head)| Some((*part, head.as_ref().ok()?)));
        let heads: Vec<_> = heads.collect();
        let told = all(heads.iter().map(|of| self.put(*of, &made, &[]))).await;
        let told: Vec<_> = heads.iter().map(|(part, _)| *part).zip(told).collect();
        for (part, told) in told {
            // What a repair closes next is what they remember now.
            if let Some((_, place)) = state.look.iter_mut().find(|(of, _)| *of == part)
                && told.is_ok()
            {
                *place = told;
            }
        }
    }

    /// Closes a file to changes by this layout, at all of those that are there; gives the
    /// generation that the next layout has. It asks one after the other, in the order in which
    /// changes are made known: where the first of them is not as it was looked at, somebody has
    /// changed the file, and nothing is closed. Once one of them has taken it, a change that this
    /// one has not heard of can no more be known to all, and the others take it in place of that.
    pub(crate) async fn close(&self, state: &State) -> Result<u64, Stop> {
        // Of one number what closes the file is the newest.
        let number = NUMBER_MAX.min(state.number + 1);
        let id = Record::id_of(self.net.draw());
        let known = state.look.iter().filter_map(|(part, head)| Some((*part, head.as_ref().ok()?)));
        let known: Vec<_> = known.collect();
        let generations =
            known.iter().filter_map(|(_, head)| Some(head.record.as_ref()?.generation));
        let generation = generations.fold(self.layout.generation, u64::max);
        let versions = state.versions.clone();
        let closed = Record { generation, number, id, stage: Stage::Closed, versions };
        let mut is_told = false;
        let mut last = Stop::Closed;
        for (part, head) in known {
            let told = self.put((part, head), &closed, &[]).await;
            let told = match told.map_err(|error| stop(part, error)) {
                Err(Stop::Met(..)) if is_told => self.close_later(part, &closed).await,
                told => told.map(|_| ()),
            };
            match told {
                Ok(()) => is_told = true,
                Err(Stop::Part(part, error)) => last = Stop::Part(part, error),
                Err(stop) => return Err(stop),
            }
        }
        if is_told { Ok(generation) } else { Err(last) }
    }

    /// Has one of them remember what closes the file, in place of a change that it has heard of
    /// since it was looked at, and that another one will not hear of.
    async fn close_later(&self, part: usize, closed: &Record) -> Result<(), Stop> {
        let mut tries = 0;
        loop {
            let told = match self.head(part).await {
                Ok(Head { record: Some(record), .. }) if record.age() >= closed.age() => {
                    return if record == *closed { Ok(()) } else { Err(Stop::Closed) };
                }
                Ok(head) => self.put((part, &head), closed, &[]).await.map(|_| ()),
                Err(error) => Err(error),
            };
            match told.map_err(|error| stop(part, error)) {
                Err(Stop::Met(..)) if tries < TRIES => {
                    self.net.pause(tries).await;
                    tries += 1;
                }
                told => return told,
            }
        }
    }
}

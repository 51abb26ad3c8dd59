//! What each client has here over its link: its session, its tenant, its unfinished chunks, and
//! what it was granted.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use towpath_fastpath::ErrorReply;
use towpath_fastpath::cap::Denied;
use towpath_fastpath::control::{LocateReply, SlotRun};
use towpath_fastpath::server::StorageRequest;
use towpath_rpc::{Piece, Responder};
use towpath_transport::{
    Buf, Device, Endpoint, GrantId, LinkId, Region, Rights, SharedMemory, Time,
};

use super::answer::Answer;
use super::errors::of_look;
use super::limits::OPEN_PUTS_MAX;
use super::server::ChunkServer;
use crate::guard::Revocation;
use crate::store::disks::Disks;
use crate::store::{ChunkId, Fenced, Located, LookError, Pass, Reply};

/// The clients of a server.
#[derive(Debug, Default)]
pub(super) struct Clients {
    /// By the index of the link.
    links: Vec<Client>,
    /// Entries that wait until the store has nothing of older links, and revocations.
    entries: Vec<Entry>,
    /// The memory of resident chunks, of each disk that has any.
    memory: Vec<Option<SharedMemory>>,
}

#[derive(Debug, Default)]
struct Client {
    /// Of one that has entered a session.
    pass: Option<Arc<Pass>>,
    /// The number of the tenant that it has joined as; 0 of one that has not.
    tenant: u32,
    /// Unfinished chunks that it has made: they are kept while it is there, however slowly their
    /// data comes.
    puts: Vec<ChunkId>,
    /// What it was granted of the memory of each disk.
    grants: Vec<Option<GrantId>>,
}

/// Leave of the session of a link for one change, until that has ended. A link without a session
/// needs none.
#[derive(Debug, Default)]
pub(super) struct Leave(Option<Arc<Pass>>);

impl Drop for Leave {
    fn drop(&mut self) {
        self.0.iter().for_each(|pass| pass.end());
    }
}

#[derive(Debug)]
struct Entry {
    responder: Responder,
    deadline: Time,
    until: Until,
}

/// What an entry waits for.
#[derive(Debug)]
enum Until {
    /// The store has nothing of older links.
    IsClear(Arc<Pass>),
    /// A revocation is on stable media.
    IsRevoked(Receiver<Revocation>),
}

impl Until {
    /// The answer, where it is there.
    fn answer(&self) -> Option<Answer> {
        match self {
            Self::IsClear(pass) => pass.is_clear().then_some(Answer::Done),
            Self::IsRevoked(told) => match told.try_recv() {
                Ok(Revocation::Done) => Some(Answer::Done),
                Ok(Revocation::Full) => Some(Answer::Error(ErrorReply::NoSpace)),
                Ok(Revocation::Failed) | Err(TryRecvError::Disconnected) => {
                    Some(Answer::Error(ErrorReply::Media))
                }
                Err(TryRecvError::Empty) => None,
            },
        }
    }
}

impl Clients {
    fn get(&self, link: LinkId) -> Option<&Client> {
        self.links.get(link.index())
    }

    fn of(&mut self, link: LinkId) -> &mut Client {
        client(&mut self.links, link)
    }

    /// Counts in a change of `link` that goes to the store.
    pub(super) fn begin(&self, link: LinkId) -> Result<Leave, Fenced> {
        let pass = self.get(link).and_then(|client| client.pass.as_ref());
        pass.map(|pass| pass.begin()).transpose()?;
        Ok(Leave(pass.cloned()))
    }

    /// The epoch with which a link has entered its session; 0 where it has entered none.
    pub(super) fn epoch(&self, link: LinkId) -> u64 {
        let pass = self.get(link).and_then(|client| client.pass.as_ref());
        pass.map_or(0, |pass| pass.epoch())
    }

    /// The number of the tenant that a link has joined as; 0 of one that has not.
    pub(super) fn tenant(&self, link: LinkId) -> u32 {
        self.get(link).map_or(0, |client| client.tenant)
    }

    /// A link has joined as a tenant.
    pub(super) fn join(&mut self, link: LinkId, tenant: u32) {
        self.of(link).tenant = tenant;
    }

    /// Whether something waits for what another worker has, or for a disk.
    pub(super) fn are_waiting(&self) -> bool {
        !self.entries.is_empty()
    }

    /// The entries that wait for nothing any more, or whose time is over, with their answers.
    fn answered(&mut self, now: Time) -> Vec<(Responder, Time, Answer)> {
        let mut answered = Vec::new();
        for at in (0..self.entries.len()).rev() {
            let entry = &self.entries[at];
            let answer = match entry.until.answer() {
                Some(answer) => answer,
                None if now >= entry.deadline => Answer::Error(ErrorReply::Busy),
                None => continue,
            };
            let Entry { responder, deadline, .. } = self.entries.swap_remove(at);
            answered.push((responder, deadline, answer));
        }
        answered
    }

    /// Follows what a change of a link did to an unfinished chunk.
    pub(super) fn follow_put<D: Device<Memory = Region>>(
        &mut self,
        (endpoint, store): (&Endpoint<D>, &Disks<Piece>),
        link: LinkId,
        done: (&Reply<Piece, Buf>, &StorageRequest),
    ) {
        match done {
            (Reply::Change(Ok(_)), StorageRequest::Create { chunk, kind, .. })
                // A link that is gone has been forgotten.
                if kind.unfinished && endpoint.class_of(link).is_some() =>
            {
                let puts = &mut self.of(link).puts;
                if puts.len() < OPEN_PUTS_MAX {
                    puts.push(*chunk);
                    store.begin_put(*chunk);
                }
            }
            (
                Reply::Change(Ok(_)),
                StorageRequest::Finish { chunk, .. } | StorageRequest::Delete { chunk, .. },
            ) => {
                let puts = &mut self.of(link).puts;
                if let Some(at) = puts.iter().position(|known| known == chunk) {
                    puts.swap_remove(at);
                    store.end_put(*chunk);
                }
            }
            _ => {}
        }
    }

    /// A link is gone. With it the endpoint has taken back what it was granted.
    pub(super) fn forget(&mut self, store: &Disks<Piece>, link: LinkId) {
        let Some(client) = self.links.get_mut(link.index()) else { return };
        let Client { puts, .. } = std::mem::take(client);
        puts.into_iter().for_each(|chunk| store.end_put(chunk));
    }

    /// What a link was granted, which it is not granted any more.
    pub(super) fn take_grants(&mut self, link: LinkId) -> impl Iterator<Item = GrantId> + use<> {
        let client = self.links.get_mut(link.index());
        let grants = client.map(|client| std::mem::take(&mut client.grants));
        grants.into_iter().flatten().flatten()
    }

    /// The grant of a link for the memory that a disk keeps resident chunks in, which is made when
    /// it is first wanted.
    fn grant<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        link: LinkId,
        disk: usize,
    ) -> Option<GrantId> {
        let grants = &mut client(&mut self.links, link).grants;
        if grants.len() <= disk {
            grants.resize(disk + 1, None);
        }
        let (grant, memory) = (&mut grants[disk], self.memory.get(disk)?.as_ref()?);
        if grant.is_none() {
            match endpoint.grant(link, memory, memory.whole(), Rights::READ) {
                Ok(made) => *grant = Some(made),
                Err(error) => {
                    tracing::debug!(link = link.index(), %error, "no memory is granted");
                }
            }
        }
        *grant
    }
}

fn client(links: &mut Vec<Client>, link: LinkId) -> &mut Client {
    if links.len() <= link.index() {
        links.resize_with(link.index() + 1, Client::default);
    }
    &mut links[link.index()]
}

impl<D: Device<Memory = Region>> ChunkServer<D> {
    /// Grants the memory in which each disk's store keeps resident chunks to each client that asks
    /// where they are.
    #[must_use]
    pub fn resident_memory(mut self, memory: Vec<Option<SharedMemory>>) -> Self {
        self.clients.memory = memory;
        self
    }

    /// A link enters a session. It may enter one, once: work that came before its entry would not
    /// be counted.
    pub(super) fn enter(&mut self, responder: Responder, deadline: Time, id: u128, epoch: u64) {
        let client = self.clients.of(responder.link());
        let entered = match client.pass {
            Some(_) => Err(Fenced),
            None => self.store.fences().enter(id, epoch).map(Arc::new),
        };
        match entered {
            Ok(pass) => {
                client.pass = Some(Arc::clone(&pass));
                let until = Until::IsClear(pass);
                self.clients.entries.push(Entry { responder, deadline, until });
            }
            Err(Fenced) => self.answer(responder, deadline, Answer::Error(ErrorReply::Fenced)),
        }
    }

    /// The capabilities of a serial number hold no more, which is answered when it is durable.
    pub(super) fn revoke(
        &mut self,
        responder: Responder,
        deadline: Time,
        serial: u64,
        until_ms: u64,
    ) {
        let answer = match self.gate.guard().map(|guard| guard.revoke(serial, until_ms)) {
            Some(Some(told)) => {
                let until = Until::IsRevoked(told);
                return self.clients.entries.push(Entry { responder, deadline, until });
            }
            Some(None) => ErrorReply::Busy,
            // It has no keys, so no capability holds anyway.
            None => ErrorReply::Denied { why: Denied::Key },
        };
        self.answer(responder, deadline, Answer::Error(answer));
    }

    /// Answers the entries that wait for nothing any more, and gives up those whose time is over.
    pub(super) fn answer_entries(&mut self) {
        if !self.clients.are_waiting() {
            return;
        }
        let now = self.endpoint.now();
        for (responder, deadline, answer) in self.clients.answered(now) {
            self.answer(responder, deadline, answer);
        }
    }

    /// Where the slices of a resident chunk lie in memory, which its client is granted.
    pub(super) fn located(
        &mut self,
        link: LinkId,
        chunk: ChunkId,
        found: Result<Located, LookError>,
    ) -> Answer {
        let Located { version, byte_len, slots } = match found {
            Ok(found) => found,
            Err(error) => return Answer::Error(of_look(error)),
        };
        // A client that is not, or cannot be, granted the memory reads by requests.
        let may = self.sched.tenants().may_reach_memory(link);
        let disk = self.store.disk_of(chunk);
        let granted = slots
            .filter(|_| may)
            .and_then(|slots| Some((slots, self.clients.grant(&mut self.endpoint, link, disk)?)));
        let mut reply = LocateReply { version, byte_len, ..LocateReply::default() };
        if let Some(((runs, more), GrantId(grant))) = granted {
            let runs = runs.into_iter().map(|run| SlotRun {
                first_slice: run.first_slice,
                slot: run.slot,
                count: run.count,
            });
            reply = LocateReply { resident: true, grant, runs: runs.collect(), more, ..reply };
        }
        Answer::Locate(Box::new(reply))
    }
}

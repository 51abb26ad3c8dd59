//! Where the slices of resident chunks lie in memory, told to clients, which are granted it.

use towpath_fastpath::control::{LocateReply, SlotRun};
use towpath_transport::{Device, GrantId, LinkId, Region, Rights, SharedMemory};

use super::answer::Answer;
use super::errors::of_look;
use super::server::ChunkServer;
use crate::store::{ChunkId, Located, LookError};

/// The memory of resident chunks, and which links are granted it.
#[derive(Debug, Default)]
pub(super) struct Grants {
    /// Of each disk that has any.
    memory: Vec<Option<SharedMemory>>,
    /// By the index of the link: that of each disk.
    links: Vec<Vec<Option<GrantId>>>,
}

impl Grants {
    /// What a link was granted, which it is not granted any more.
    pub(super) fn take(&mut self, link: LinkId) -> impl Iterator<Item = GrantId> + use<> {
        let taken = self.links.get_mut(link.index()).map(std::mem::take).unwrap_or_default();
        taken.into_iter().flatten()
    }
}

impl<D: Device<Memory = Region>> ChunkServer<D> {
    /// Grants the memory in which each disk's store keeps resident chunks to each client that asks
    /// where they are.
    #[must_use]
    pub fn resident_memory(mut self, memory: Vec<Option<SharedMemory>>) -> Self {
        self.grants.memory = memory;
        self
    }

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
        let granted = slots.and_then(|slots| Some((slots, self.grant_to(link, chunk)?)));
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

    /// The grant of a link for the memory that has a chunk, which is made when it is first wanted.
    fn grant_to(&mut self, link: LinkId, chunk: ChunkId) -> Option<GrantId> {
        let Self { grants: Grants { memory, links }, endpoint, sched, store, .. } = self;
        if !sched.tenants().may_reach_memory(link) {
            return None;
        }
        let disk = store.disk_of(chunk);
        let memory = memory.get(disk)?.as_ref()?;
        if links.len() <= link.index() {
            links.resize_with(link.index() + 1, Vec::new);
        }
        let grants = &mut links[link.index()];
        if grants.len() <= disk {
            grants.resize(disk + 1, None);
        }
        let grant = &mut grants[disk];
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

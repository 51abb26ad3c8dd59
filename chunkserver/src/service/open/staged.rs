//! What the store has of a write before the write is asked for.

use crossbeam_channel::{Receiver, Sender, unbounded};
use towpath_transport::Class;

/// What was staged and is not wanted any more: what the store calls it, on which disk, and of which
/// class: it is told in the queue in which it was asked for.
pub(super) type Unwanted = (u64, usize, Class);

/// What the store was asked to take of writes before these are asked for.
#[derive(Debug)]
pub(super) struct Stages {
    /// What the last one is called.
    last: u64,
    /// Where those are told that are not wanted any more.
    unwanted: (Sender<Unwanted>, Receiver<Unwanted>),
    /// One of them whose disk's queue had no room.
    waiting: Option<Unwanted>,
}

impl Default for Stages {
    fn default() -> Self {
        Self { last: 0, unwanted: unbounded(), waiting: None }
    }
}

impl Stages {
    /// For another write.
    pub(super) fn add(&mut self, class: Class) -> Staged {
        self.last += 1;
        Staged::new(self.last, class, self.unwanted.0.clone())
    }

    /// One that the store is to forget.
    pub(super) fn next_unwanted(&mut self) -> Option<Unwanted> {
        self.waiting.take().or_else(|| self.unwanted.1.try_recv().ok())
    }

    /// The disk's queue has no room for that now.
    pub(super) fn put_back(&mut self, unwanted: Unwanted) {
        self.waiting = Some(unwanted);
    }

    #[cfg(test)]
    pub(super) fn left(&self) -> usize {
        self.unwanted.1.len() + usize::from(self.waiting.is_some())
    }
}

/// What the store has of a write before the write is asked for. Dropped before the store has done
/// the write, it has the store forget it.
#[derive(Debug, Default)]
pub(in crate::service) struct Staged {
    stage: u64,
    class: Class,
    /// Where to tell that it is not wanted any more; none where nothing can be staged.
    unwanted: Option<Sender<Unwanted>>,
    /// The disk that was asked to take something, once one was.
    disk: Option<usize>,
    /// The store has something.
    is_there: bool,
}

impl Staged {
    /// Of a write that the store is to call `stage`.
    fn new(stage: u64, class: Class, unwanted: Sender<Unwanted>) -> Self {
        Self { stage, class, unwanted: Some(unwanted), disk: None, is_there: false }
    }

    /// What the store calls the write, where something can be staged of it.
    pub(super) fn stage(&self) -> Option<u64> {
        self.unwanted.as_ref().map(|_| self.stage)
    }

    /// The class of the write.
    pub(super) fn class(&self) -> Class {
        self.class
    }

    /// A disk was asked to take something.
    pub(super) fn ask(&mut self, disk: usize) {
        self.disk = Some(disk);
    }

    /// The store took something.
    pub(super) fn note(&mut self) {
        self.is_there = true;
    }

    /// What the store calls the write, where it has some of it.
    pub(in crate::service) fn name(&self) -> Option<u64> {
        self.is_there.then_some(self.stage)
    }

    /// The write was asked for and has its answer: there is nothing left to forget.
    pub(in crate::service) fn end(&mut self) {
        self.disk = None;
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if let (Some(disk), Some(unwanted)) = (self.disk, &self.unwanted) {
            // Nobody hears it where the server is gone, and with it the store's memory of it.
            let _ = unwanted.send((self.stage, disk, self.class));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_disk_was_asked_to_take_is_told_unwanted_unless_its_write_is_done() {
        let (told, heard) = unbounded();
        drop(Staged::new(1, Class::Gold, told.clone()));
        let mut refused = Staged::new(2, Class::Gold, told.clone());
        assert_eq!(refused.stage(), Some(2));
        refused.ask(5);
        assert_eq!(refused.name(), None);
        drop(refused);
        let mut done = Staged::new(3, Class::Gold, told);
        done.ask(5);
        done.note();
        assert_eq!(done.name(), Some(3));
        done.end();
        drop(done);
        assert_eq!(Staged::default().stage(), None);
        assert_eq!(heard.iter().collect::<Vec<_>>(), [(2, 5, Class::Gold)]);
    }
}

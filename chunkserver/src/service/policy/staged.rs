//! What the store has of a write before the write is asked for.

use crossbeam_channel::Sender;
use towpath_transport::Class;

/// What was staged and is not wanted any more: what the store calls it, on which disk, and of which
/// class: it is told in the queue in which it was asked for.
pub(super) type Unwanted = (u64, usize, Class);

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
    pub(super) fn new(stage: u64, class: Class, unwanted: Sender<Unwanted>) -> Self {
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
    use crossbeam_channel::unbounded;

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

//! The queues of those who ask one store: one request of each in turn, or those of one.

use crossbeam_channel::Receiver;

/// Several queues, taken from in turn.
#[derive(Debug)]
pub(super) struct Asked<T> {
    queues: Vec<Receiver<T>>,
    /// Whose turn it is.
    turn: usize,
}

impl<T> Asked<T> {
    pub(super) fn new(queues: Vec<Receiver<T>>) -> Self {
        Self { queues, turn: 0 }
    }

    /// The next item and whose it is, if one is there.
    pub(super) fn poll(&mut self) -> Option<(usize, T)> {
        for _ in 0..self.queues.len() {
            let asker = self.turn;
            self.turn = (self.turn + 1) % self.queues.len();
            if let Some(item) = self.poll_of(asker) {
                return Some(item);
            }
        }
        None
    }

    /// The next item of one of them.
    pub(super) fn poll_of(&self, asker: usize) -> Option<(usize, T)> {
        self.queues[asker].try_recv().ok().map(|item| (asker, item))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::unbounded;

    #[test]
    fn askers_take_turns_and_each_keeps_its_order() {
        let (mut senders, queues): (Vec<_>, Vec<_>) = (0..3).map(|_| unbounded()).unzip();
        for item in ["a1", "a2", "a3"] {
            senders[0].send(item).expect("it is open");
        }
        for (asker, item) in [(1, "b1"), (2, "c1"), (2, "c2"), (2, "c3")] {
            senders[asker].send(item).expect("it is open");
        }
        let mut asked = Asked::new(queues);
        assert_eq!(asked.poll_of(2), Some((2, "c1")));
        // What somebody left who is gone is served as well.
        senders.remove(1);
        let order: Vec<_> = std::iter::from_fn(|| asked.poll()).map(|(_, item)| item).collect();
        assert_eq!(order, ["a1", "b1", "c2", "a2", "c3", "a3"]);
        assert_eq!((asked.poll(), asked.poll_of(1)), (None, None));
    }
}

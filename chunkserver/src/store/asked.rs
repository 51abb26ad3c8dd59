//! The queues of those who ask one store, as its thread sees them: one request of each in turn.

use std::time::Instant;

use crossbeam_channel::{Receiver, Select, TryRecvError};

/// Several queues, taken from in turn.
pub(super) struct Asked<'a, T> {
    queues: &'a [Receiver<T>],
    /// Whose turn it is.
    turn: usize,
    /// Those that are not disconnected.
    select: Select<'a>,
    open: Vec<bool>,
}

impl<'a, T> Asked<'a, T> {
    pub(super) fn new(queues: &'a [Receiver<T>]) -> Self {
        let mut select = Select::new();
        for queue in queues {
            select.recv(queue);
        }
        Self { queues, turn: 0, select, open: vec![true; queues.len()] }
    }

    /// The next item and whose it is, if one is there.
    pub(super) fn poll(&mut self) -> Option<(usize, T)> {
        for _ in 0..self.queues.len() {
            let asker = self.turn;
            self.turn = (self.turn + 1) % self.queues.len();
            match self.queues[asker].try_recv() {
                Ok(item) => return Some((asker, item)),
                Err(TryRecvError::Disconnected) if self.open[asker] => {
                    self.open[asker] = false;
                    self.select.remove(asker);
                }
                Err(_) => {}
            }
        }
        None
    }

    /// Waits for the next item; none when nobody can ask any more.
    pub(super) fn wait(&mut self) -> Option<(usize, T)> {
        loop {
            if let Some(item) = self.poll() {
                return Some(item);
            }
            if !self.open.contains(&true) {
                return None;
            }
            self.select.ready();
        }
    }

    /// Waits for the next item, not beyond `end`.
    pub(super) fn wait_until(&mut self, end: Instant) -> Option<(usize, T)> {
        loop {
            if let Some(item) = self.poll() {
                return Some(item);
            }
            if !self.open.contains(&true) || self.select.ready_deadline(end).is_err() {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::unbounded;
    use std::time::Duration;

    #[test]
    fn askers_take_turns_and_each_keeps_its_order() {
        let (senders, queues): (Vec<_>, Vec<_>) = (0..3).map(|_| unbounded()).unzip();
        for item in ["a1", "a2", "a3"] {
            senders[0].send(item).expect("it is open");
        }
        for (asker, item) in [(1, "b1"), (2, "c1"), (2, "c2")] {
            senders[asker].send(item).expect("it is open");
        }
        let mut asked = Asked::new(&queues);
        let order: Vec<_> = std::iter::from_fn(|| asked.poll()).map(|(_, item)| item).collect();
        assert_eq!(order, ["a1", "b1", "c1", "a2", "c2", "a3"]);
        assert_eq!(asked.wait_until(Instant::now() + Duration::from_millis(1)), None);
    }

    #[test]
    fn it_ends_when_all_are_gone_and_has_served_what_they_left() {
        let (mut senders, queues): (Vec<_>, Vec<_>) = (0..3).map(|_| unbounded()).unzip();
        let mut asked = Asked::new(&queues);
        senders[1].send(1).expect("it is open");
        senders.remove(1);
        assert_eq!(asked.wait(), Some((1, 1)));
        assert_eq!(asked.poll(), None);
        let late = senders.remove(1);
        let thread = std::thread::spawn(move || late.send(2));
        assert_eq!(asked.wait(), Some((2, 2)));
        assert_eq!(thread.join().expect("no panic"), Ok(()));
        drop(senders);
        assert_eq!(asked.wait(), None);
        assert_eq!(asked.wait_until(Instant::now()), None);
    }
}

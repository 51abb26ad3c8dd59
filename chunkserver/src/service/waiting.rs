//! Requests that wait for the store, link by link.

use std::collections::VecDeque;

use towpath_transport::LinkId;

/// One queue for each link, served in turn, one item at a time. How much waits is bounded where
/// requests are taken in.
#[derive(Debug)]
pub(super) struct Waiting<T> {
    queues: Vec<VecDeque<T>>,
    /// Links with something waiting, by index, in the order of their turns.
    turns: VecDeque<usize>,
    count: usize,
}

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self { queues: Vec::new(), turns: VecDeque::new(), count: 0 }
    }
}

impl<T> Waiting<T> {
    pub(super) fn push(&mut self, link: LinkId, item: T) {
        self.push_at(link.index(), item);
    }

    fn push_at(&mut self, index: usize, item: T) {
        if self.queues.len() <= index {
            self.queues.resize_with(index + 1, VecDeque::new);
        }
        let queue = &mut self.queues[index];
        if queue.is_empty() {
            self.turns.push_back(index);
        }
        queue.push_back(item);
        self.count += 1;
    }

    /// The first wanted item of the link whose turn it is; none where it has none. Afterwards the
    /// next link has its turn.
    pub(super) fn pop(&mut self, wanted: impl Fn(&T) -> bool) -> Option<T> {
        let index = self.turns.pop_front()?;
        let at = self.queues[index].iter().position(wanted);
        let item = at.and_then(|at| self.queues[index].remove(at));
        self.count -= usize::from(item.is_some());
        if !self.queues[index].is_empty() {
            self.turns.push_back(index);
        }
        item
    }

    /// Puts back, in front of its link's others, what could not be served yet.
    pub(super) fn put_back(&mut self, link: LinkId, item: T) {
        let index = link.index();
        if self.queues[index].is_empty() {
            self.turns.push_back(index);
        }
        self.queues[index].push_front(item);
        self.count += 1;
    }

    /// It is that link's turn next.
    pub(super) fn stay_first(&mut self, link: LinkId) {
        if let Some(place) = self.turns.iter().position(|&turn| turn == link.index()) {
            self.turns.remove(place);
            self.turns.push_front(link.index());
        }
    }

    /// Takes away everything of a link.
    pub(super) fn clear(&mut self, link: LinkId) -> VecDeque<T> {
        self.clear_at(link.index())
    }

    fn clear_at(&mut self, index: usize) -> VecDeque<T> {
        self.turns.retain(|turn| *turn != index);
        let gone = self.queues.get_mut(index).map(std::mem::take).unwrap_or_default();
        self.count -= gone.len();
        gone
    }

    /// Takes the first item of a link that is wanted.
    pub(super) fn take(&mut self, link: LinkId, wanted: impl Fn(&T) -> bool) -> Option<T> {
        self.take_at(link.index(), wanted)
    }

    fn take_at(&mut self, index: usize, wanted: impl Fn(&T) -> bool) -> Option<T> {
        let queue = self.queues.get_mut(index)?;
        let place = queue.iter().position(wanted)?;
        let item = queue.remove(place)?;
        self.count -= 1;
        if queue.is_empty() {
            self.turns.retain(|turn| *turn != index);
        }
        Some(item)
    }

    /// Takes every item that is wanted, of all links.
    pub(super) fn take_all(&mut self, wanted: impl Fn(&T) -> bool) -> Vec<T> {
        let mut taken = Vec::new();
        for index in 0..self.queues.len() {
            taken.extend(std::iter::from_fn(|| self.take_at(index, &wanted)));
        }
        taken
    }

    /// All items, to change.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.queues.iter_mut().flatten()
    }

    /// All items.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.queues.iter().flatten()
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Links with something waiting.
    pub(super) fn links(&self) -> usize {
        self.turns.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_take_turns_and_each_keeps_its_order() {
        let mut waiting = Waiting::default();
        for (index, item) in [(0, "a1"), (0, "a2"), (0, "a3"), (7, "b1"), (7, "b2")] {
            waiting.push_at(index, item);
        }
        let order: Vec<_> = std::iter::from_fn(|| waiting.pop(|_| true)).collect();
        assert_eq!(order, ["a1", "b1", "a2", "b2", "a3"]);
        assert_eq!(waiting.len(), 0);
    }

    #[test]
    fn what_is_taken_out_of_turn_leaves_the_turns_of_the_others() {
        let mut waiting = Waiting::default();
        for (index, item) in [(0, 1), (1, 2), (0, 3), (2, 4)] {
            waiting.push_at(index, item);
        }
        assert_eq!(waiting.take_at(1, |item| *item == 3), None, "of another link");
        assert_eq!(waiting.take_at(1, |item| *item == 2), Some(2));
        assert_eq!(waiting.take_at(0, |item| *item == 3), Some(3));
        assert_eq!((waiting.links(), waiting.len()), (2, 2));
        assert_eq!(waiting.iter().copied().collect::<Vec<_>>(), [1, 4]);
        assert_eq!(waiting.take_all(|item| *item == 4), [4]);
        assert_eq!(
            (waiting.pop(|_| true), waiting.pop(|_| true), waiting.len()),
            (Some(1), None, 0)
        );
    }

    #[test]
    fn a_link_that_is_gone_leaves_nothing_behind() {
        let mut waiting = Waiting::default();
        for (index, item) in [(0, 1), (1, 2), (0, 3)] {
            waiting.push_at(index, item);
        }
        assert_eq!(waiting.clear_at(0), [1, 3]);
        assert!(waiting.clear_at(9).is_empty());
        assert_eq!(
            (waiting.pop(|_| true), waiting.pop(|_| true), waiting.len()),
            (Some(2), None, 0)
        );
        waiting.push_at(0, 4);
        assert_eq!(waiting.pop(|_| true), Some(4));
    }
}

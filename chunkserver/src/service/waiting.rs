//! Queues of links, served in turn.

use std::collections::VecDeque;

/// What is done with an item whose link has its turn.
pub(super) enum Look<R> {
    /// It is taken, with what came of that.
    Take(R),
    /// The same, and its link keeps the turn.
    TakeAndStay(R),
    /// The next one of its link may go before it.
    Skip,
    /// No other one of its link may go before it.
    Wait,
    /// No other one may either, and its link keeps the turn.
    Stay,
}

/// One queue for each link, by the index of the link, served in turn, one item at a time. How much
/// waits is bounded where requests are taken in.
#[derive(Debug)]
pub(super) struct Waiting<T> {
    queues: Vec<VecDeque<T>>,
    /// Links with something waiting, in the order of their turns.
    turns: VecDeque<usize>,
    count: usize,
}

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self { queues: Vec::new(), turns: VecDeque::new(), count: 0 }
    }
}

impl<T> Waiting<T> {
    pub(super) fn push(&mut self, link: usize, item: T) {
        if self.queues.len() <= link {
            self.queues.resize_with(link + 1, VecDeque::new);
        }
        let queue = &mut self.queues[link];
        if queue.is_empty() {
            self.turns.push_back(link);
        }
        queue.push_back(item);
        self.count += 1;
    }

    /// Takes the first item of the link whose turn it is that `look` takes. Afterwards the next
    /// link has its turn, unless this one stays.
    pub(super) fn next<R>(&mut self, mut look: impl FnMut(&mut T) -> Look<R>) -> Option<(T, R)> {
        let link = self.turns.pop_front()?;
        let queue = &mut self.queues[link];
        let (mut taken, mut stays) = (None, false);
        for at in 0..queue.len() {
            let with = match look(&mut queue[at]) {
                Look::Skip => continue,
                Look::Wait => break,
                Look::Stay => {
                    stays = true;
                    break;
                }
                Look::Take(with) => with,
                Look::TakeAndStay(with) => {
                    stays = true;
                    with
                }
            };
            taken = queue.remove(at).map(|item| (item, with));
            self.count -= 1;
            break;
        }
        match (queue.is_empty(), stays) {
            (true, _) => {}
            (false, true) => self.turns.push_front(link),
            (false, false) => self.turns.push_back(link),
        }
        taken
    }

    /// Takes every item of a link that is wanted.
    pub(super) fn take(&mut self, link: usize, mut wanted: impl FnMut(&T) -> bool) -> Vec<T> {
        let (mut taken, mut at) = (Vec::new(), 0);
        let Some(queue) = self.queues.get_mut(link) else { return taken };
        while let Some(item) = queue.get(at) {
            if wanted(item) {
                taken.extend(queue.remove(at));
            } else {
                at += 1;
            }
        }
        self.count -= taken.len();
        if queue.is_empty() && !taken.is_empty() {
            self.turns.retain(|turn| *turn != link);
        }
        taken
    }

    /// Takes every item that is wanted, of all links.
    pub(super) fn take_all(&mut self, mut wanted: impl FnMut(&T) -> bool) -> Vec<T> {
        (0..self.queues.len()).flat_map(|link| self.take(link, &mut wanted)).collect()
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

    fn waiting<T>(items: impl IntoIterator<Item = (usize, T)>) -> Waiting<T> {
        let mut waiting = Waiting::default();
        items.into_iter().for_each(|(link, item)| waiting.push(link, item));
        waiting
    }

    fn pop<T>(waiting: &mut Waiting<T>) -> Option<T> {
        waiting.next(|_| Look::Take(())).map(|(item, ())| item)
    }

    #[test]
    fn links_take_turns_and_each_keeps_its_order() {
        let mut waiting = waiting([(0, "a1"), (0, "a2"), (0, "a3"), (7, "b1"), (7, "b2")]);
        let order: Vec<_> = std::iter::from_fn(|| pop(&mut waiting)).collect();
        assert_eq!(order, ["a1", "b1", "a2", "b2", "a3"]);
        assert_eq!(waiting.len(), 0);
    }

    #[test]
    fn who_looks_says_which_of_a_link_goes_and_whether_the_link_keeps_its_turn() {
        let mut waiting = waiting([(0, "a1"), (0, "a2"), (7, "b1"), (7, "b2")]);
        let second = waiting.next(|item| if *item == "a1" { Look::Skip } else { Look::Take(5) });
        assert_eq!(second, Some(("a2", 5)));
        assert_eq!(waiting.next(|_| Look::<()>::Wait), None, "the turn of the second link is over");
        assert_eq!(waiting.next(|_| Look::<()>::Stay), None);
        assert_eq!(pop(&mut waiting), Some("a1"), "the first link has kept its turn");
        assert_eq!(waiting.next(|_| Look::TakeAndStay(6)), Some(("b1", 6)));
        waiting.push(0, "a3");
        assert_eq!((pop(&mut waiting), pop(&mut waiting)), (Some("b2"), Some("a3")));
        assert_eq!((waiting.links(), waiting.len()), (0, 0));
    }

    #[test]
    fn what_is_taken_out_of_turn_leaves_the_turns_of_the_others() {
        let mut waiting = waiting([(0, 1), (1, 2), (0, 3), (2, 4)]);
        assert!(waiting.take(1, |item| *item == 3).is_empty(), "of another link");
        assert_eq!(waiting.take(1, |item| *item == 2), [2]);
        assert_eq!(waiting.take(0, |item| *item == 3), [3]);
        assert_eq!((waiting.links(), waiting.len()), (2, 2));
        assert_eq!(waiting.iter().copied().collect::<Vec<_>>(), [1, 4]);
        assert_eq!(waiting.take_all(|item| *item == 4), [4]);
        assert_eq!((pop(&mut waiting), pop(&mut waiting), waiting.len()), (Some(1), None, 0));
    }

    #[test]
    fn a_link_that_is_gone_leaves_nothing_behind() {
        let mut waiting = waiting([(0, 1), (1, 2), (0, 3)]);
        assert_eq!(waiting.take(0, |_| true), [1, 3]);
        assert!(waiting.take(9, |_| true).is_empty());
        assert_eq!((pop(&mut waiting), pop(&mut waiting), waiting.len()), (Some(2), None, 0));
        waiting.push(0, 4);
        assert_eq!(pop(&mut waiting), Some(4));
    }
}

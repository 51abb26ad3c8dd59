//! What deletes and clears leave for later, done step by step between the changes of others.

use super::state::StoreCore;

/// Pages of the map that steps let be kept as they were for the checkpoint under way: groups of
/// others may add as many again.
const SAVED_PAGES_MAX: usize = super::SAVED_PAGES_MAX / 2;

impl<W> StoreCore<W> {
    /// Whether blocks and pages are still to be freed that deletes and clears left. A store that
    /// takes no changes keeps them.
    pub(super) fn has_steps(&self) -> bool {
        self.map.has_steps() && self.health.failed.is_none()
    }

    /// Whether some of them can be freed now.
    pub(super) fn can_step(&self) -> bool {
        self.has_steps() && self.map.saved_pages() < SAVED_PAGES_MAX
    }
}

impl<W: AsRef<[u8]>> StoreCore<W> {
    /// Frees some blocks and pages that deletes and clears left.
    pub(super) fn go_on_with_steps(&mut self) {
        if !self.can_step() {
            return;
        }
        let Self { map, space, away, .. } = self;
        map.step(&mut |page| {
            away.remove(page);
            space.pages.retire_late(page);
        });
        space.pages.recycle();
        space.look();
        self.held.wake();
    }
}

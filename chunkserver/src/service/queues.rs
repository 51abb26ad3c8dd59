//! Requests that wait for the store, tenant by tenant, and within a tenant link by link.

use std::collections::VecDeque;

use towpath_transport::LinkId;

use super::waiting::Waiting;
use crate::qos::TenantId;

/// The queues of all tenants. Where nobody has reserved anything there is one tenant.
#[derive(Debug)]
pub(super) struct Queues<T> {
    tenants: Vec<Waiting<T>>,
}

impl<T> Default for Queues<T> {
    fn default() -> Self {
        Self { tenants: vec![Waiting::default()] }
    }
}

impl<T> Queues<T> {
    pub(super) fn push(&mut self, tenant: TenantId, link: LinkId, item: T) {
        if self.tenants.len() <= tenant.index() {
            self.tenants.resize_with(tenant.index() + 1, Waiting::default);
        }
        self.tenants[tenant.index()].push(link, item);
    }

    /// The first wanted item of the link of a tenant whose turn it is.
    pub(super) fn pop(&mut self, tenant: TenantId, wanted: impl Fn(&T) -> bool) -> Option<T> {
        self.tenants.get_mut(tenant.index())?.pop(wanted)
    }

    /// Puts back, in front of its link's others, what could not be served yet.
    pub(super) fn put_back(&mut self, tenant: TenantId, link: LinkId, item: T) {
        self.tenants[tenant.index()].put_back(link, item);
    }

    /// The next item of a tenant is one of that link.
    pub(super) fn stay_first(&mut self, tenant: TenantId, link: LinkId) {
        self.tenants[tenant.index()].stay_first(link);
    }

    /// Links of a tenant with something waiting.
    pub(super) fn links(&self, tenant: TenantId) -> usize {
        self.tenants.get(tenant.index()).map_or(0, Waiting::links)
    }

    /// Puts the tenants with something waiting into a list, in no order.
    pub(super) fn list_into(&self, list: &mut Vec<TenantId>) {
        list.clear();
        let waiting = self.tenants.iter().enumerate().filter(|(_, queue)| queue.len() > 0);
        list.extend(waiting.map(|(index, _)| TenantId::of_index(index)));
    }

    /// Takes away everything of a link.
    pub(super) fn clear(&mut self, link: LinkId) -> VecDeque<T> {
        let mut gone = VecDeque::new();
        for queue in &mut self.tenants {
            gone.append(&mut queue.clear(link));
        }
        gone
    }

    /// Takes the first item of a link that is wanted.
    pub(super) fn take(&mut self, link: LinkId, wanted: impl Fn(&T) -> bool) -> Option<T> {
        self.tenants.iter_mut().find_map(|queue| queue.take(link, &wanted))
    }

    /// Takes every item that is wanted.
    pub(super) fn take_all(&mut self, wanted: impl Fn(&T) -> bool) -> Vec<T> {
        self.tenants.iter_mut().flat_map(|queue| queue.take_all(&wanted)).collect()
    }

    /// All items.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.tenants.iter().flat_map(Waiting::iter)
    }

    pub(super) fn len(&self) -> usize {
        self.tenants.iter().map(Waiting::len).sum()
    }
}

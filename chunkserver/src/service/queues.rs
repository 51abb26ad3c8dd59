//! Requests that wait for the store, tenant by tenant, then class by class, then link by link.

use std::collections::VecDeque;

use towpath_transport::{Class, LinkId};

use super::waiting::Waiting;
use crate::qos::TenantId;

/// Whose requests, and of which class.
pub(super) type Of = (TenantId, Class);

/// The queues of all tenants. Where nobody has reserved anything there is one tenant.
#[derive(Debug)]
pub(super) struct Queues<T> {
    tenants: Vec<[Waiting<T>; Class::COUNT]>,
}

impl<T> Default for Queues<T> {
    fn default() -> Self {
        Self { tenants: vec![Default::default()] }
    }
}

impl<T> Queues<T> {
    pub(super) fn push(&mut self, (tenant, class): Of, link: LinkId, item: T) {
        if self.tenants.len() <= tenant.index() {
            self.tenants.resize_with(tenant.index() + 1, Default::default);
        }
        self.tenants[tenant.index()][class.index()].push(link, item);
    }

    /// The first wanted item of the link of a tenant's class whose turn it is.
    pub(super) fn pop(&mut self, (tenant, class): Of, wanted: impl Fn(&T) -> bool) -> Option<T> {
        self.tenants.get_mut(tenant.index())?[class.index()].pop(wanted)
    }

    /// Puts back, in front of its link's others, what could not be served yet.
    pub(super) fn put_back(&mut self, (tenant, class): Of, link: LinkId, item: T) {
        self.tenants[tenant.index()][class.index()].put_back(link, item);
    }

    /// The next item of a tenant's class is one of that link.
    pub(super) fn stay_first(&mut self, (tenant, class): Of, link: LinkId) {
        self.tenants[tenant.index()][class.index()].stay_first(link);
    }

    /// Links of a tenant with something of a class waiting.
    pub(super) fn links(&self, (tenant, class): Of) -> usize {
        self.tenants.get(tenant.index()).map_or(0, |classes| classes[class.index()].links())
    }

    fn all(&self) -> impl Iterator<Item = &Waiting<T>> {
        self.tenants.iter().flatten()
    }

    /// Puts the tenants with something waiting into a list, in no order.
    pub(super) fn list_into(&self, list: &mut Vec<TenantId>) {
        list.clear();
        let waiting = self.tenants.iter().enumerate();
        let waiting = waiting.filter(|(_, classes)| classes.iter().any(|queue| queue.len() > 0));
        list.extend(waiting.map(|(index, _)| TenantId::of_index(index)));
    }

    /// Takes away everything of a link.
    pub(super) fn clear(&mut self, link: LinkId) -> VecDeque<T> {
        let mut gone = VecDeque::new();
        for queue in self.tenants.iter_mut().flatten() {
            gone.append(&mut queue.clear(link));
        }
        gone
    }

    /// Takes the first item of a link that is wanted.
    pub(super) fn take(&mut self, link: LinkId, wanted: impl Fn(&T) -> bool) -> Option<T> {
        self.tenants.iter_mut().flatten().find_map(|queue| queue.take(link, &wanted))
    }

    /// Takes every item that is wanted.
    pub(super) fn take_all(&mut self, wanted: impl Fn(&T) -> bool) -> Vec<T> {
        self.tenants.iter_mut().flatten().flat_map(|queue| queue.take_all(&wanted)).collect()
    }

    /// The items of a tenant.
    pub(super) fn of_tenant(&mut self, tenant: TenantId) -> impl Iterator<Item = &mut T> {
        let classes = self.tenants.get_mut(tenant.index());
        classes.into_iter().flatten().flat_map(Waiting::iter_mut)
    }

    /// All items.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.all().flat_map(Waiting::iter)
    }

    pub(super) fn len(&self) -> usize {
        self.all().map(Waiting::len).sum()
    }
}

//! The tenants of a server, and how they change while it runs.

use towpath_qos::{AdmissionError, Share};

use super::config::{OTHERS, SCRUB, Shares};
use super::node::{Mail, Node};
use super::tenant::{Tenant, TenantId};

/// A tenant that was wanted and cannot have what it was to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Which.
    pub tenant: String,
    /// Why.
    pub error: AdmissionError,
}

impl Node {
    /// The tenant of that name.
    pub(crate) fn find(&self, name: &str) -> Option<TenantId> {
        let is_it = |tenant: &Tenant| tenant.name == name && !tenant.is_removed;
        self.tenants.iter().position(is_it).map(TenantId::of_index)
    }

    /// Where the tenant of a link is; that of all others when it is in the file no more.
    pub(super) fn resolve(&self, id: TenantId) -> usize {
        match self.tenants.get(id.index()) {
            Some(tenant) if !tenant.is_removed => id.index(),
            _ => TenantId::OTHERS.index(),
        }
    }

    pub(super) fn tenant_mut(&mut self, id: TenantId) -> &mut Tenant {
        let index = self.resolve(id);
        &mut self.tenants[index]
    }

    /// The file of tenants has changed, and cannot be used.
    pub(crate) fn set_file_error(&mut self, error: String) {
        self.file_error = Some(error);
    }

    /// Why the file of tenants was not taken over when it last changed.
    pub(crate) fn file_error(&self) -> Option<&str> {
        self.file_error.as_deref()
    }

    /// Those of the file that could not be admitted as it says.
    pub(crate) fn refused(&self) -> &[Refused] {
        &self.refused
    }

    /// Changes who has what: from the next period on. What is refused leaves that tenant as it was.
    pub(crate) fn set_tenants(&mut self, tenants: &Shares) {
        let mut wanted = tenants.clone();
        for always in [OTHERS, SCRUB] {
            wanted.entry(always.into()).or_insert(Share::reserved(0));
        }
        self.refused.clear();
        self.file_error = None;
        let mut order: Vec<(&String, &Share)> = wanted.iter().collect();
        // The two that are always there have the first places.
        order.sort_by_key(|(name, _)| (name.as_str() != OTHERS, name.as_str() != SCRUB));
        for index in 0..self.tenants.len() {
            if !wanted.contains_key(&self.tenants[index].name) {
                self.remove(index);
            }
        }
        // Who gives up comes before who wants more.
        let (less, more): (Vec<_>, Vec<_>) = order.into_iter().partition(|(name, share)| {
            let is_it = |tenant: &&Tenant| tenant.name == **name && !tenant.is_removed;
            let found = self.tenants.iter().find(is_it);
            found.is_some_and(|tenant| share.reservation <= tenant.share.reservation)
        });
        for (name, share) in less.into_iter().chain(more) {
            self.set_tenant(name, *share);
        }
    }

    fn remove(&mut self, index: usize) {
        let tenant = &mut self.tenants[index];
        if tenant.is_removed {
            return;
        }
        self.monitor.leave(tenant.slot);
        tenant.is_removed = true;
        self.mail.extend(tenant.seat().map(Mail::CutOff));
        tenant.take_over(&self.config);
    }

    fn set_tenant(&mut self, name: &str, share: Share) {
        let of_period = self.config.share_of_period(share);
        let found = self.tenants.iter().position(|tenant| tenant.name == name);
        let result = match found {
            Some(index) if !self.tenants[index].is_removed => {
                self.monitor.change(self.tenants[index].slot, of_period).map(|()| index)
            }
            _ => self.monitor.join(of_period).map(|slot| {
                // What the slot's last owner said is not this one's.
                self.table.write_report(slot, 0);
                self.ledger.clear(slot);
                self.ledger.limit(slot, u64::MAX);
                let tenant = Tenant::new(name.into(), slot, &self.config);
                match found {
                    Some(index) => {
                        let Tenant { stats, links, .. } = self.tenants[index];
                        self.tenants[index] = Tenant { stats, links, ..tenant };
                        index
                    }
                    None => {
                        self.tenants.push(tenant);
                        self.tenants.len() - 1
                    }
                }
            }),
        };
        match result {
            Ok(index) => {
                let tenant = &mut self.tenants[index];
                (tenant.share, tenant.of_period) = (share, of_period);
            }
            Err(error) => {
                tracing::warn!(tenant = name, %error, "a reservation is refused");
                self.refused.push(Refused { tenant: name.into(), error });
                let is_known = found.is_some_and(|index| !self.tenants[index].is_removed);
                if !is_known && share.reservation > 0 {
                    // It is known, and has what others leave.
                    self.set_tenant(name, Share { reservation: 0, limit: None, ..share });
                }
            }
        }
    }
}

//! What one worker counts of requests: phase by phase, by class and tenant.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use towpath_fastpath::health::{OpKind, Phase};
use towpath_fastpath::proof::PROVED;
use towpath_transport::Class;

use super::histogram::{Counts, Histogram, add};
use crate::qos::TenantId;

/// Tenants with figures of their own on each worker: those that asked first, so that what is told
/// of one never falls. All later ones are counted together; 11 tenants by 3 classes and 6 phases
/// are 5,000 lines at most.
pub(crate) const TENANTS_SHOWN: usize = 10;

/// Names of the methods of the storage protocol, each at the place of its number, and at place 0
/// that of whatever is none.
pub(crate) const METHODS: [&str; 24] = [
    "unknown", "create", "write", "read", "stat", "list", "delete", "scrub", "info", "health",
    "session", "finish", "join", "locate", "qos", "trim", "zero", "truncate", "revoke", "digest",
    "sketch", "forward", "chain", "rebuild",
];

/// The name of a method.
pub(crate) fn method_name(method: u16) -> &'static str {
    METHODS.get(usize::from(method)).unwrap_or(&METHODS[0])
}

/// Stands for no tenant.
const NOBODY: u64 = u64::MAX;

/// Written by its worker alone, and read by whoever tells of it.
#[derive(Debug)]
pub(crate) struct Meter {
    /// Which tenant has each place.
    tenants: [AtomicU64; TENANTS_SHOWN],
    /// By tenant, class, kind and phase; the last place is that of all other tenants.
    phases: Box<[Histogram]>,
    /// Requests by method, those that got what they asked for and the others.
    requests: [[AtomicU64; 2]; METHODS.len()],
    slow: AtomicU64,
}

impl Default for Meter {
    fn default() -> Self {
        let count = (TENANTS_SHOWN + 1) * Class::COUNT * OpKind::ALL.len() * Phase::ALL.len();
        Self {
            tenants: std::array::from_fn(|_| AtomicU64::new(NOBODY)),
            phases: (0..count).map(|_| Histogram::default()).collect(),
            requests: Default::default(),
            slow: AtomicU64::new(0),
        }
    }
}

/// Where the phases of requests begin.
fn place(tenant: usize, class: Class, kind: OpKind) -> usize {
    let place = (tenant * Class::COUNT + class as usize) * OpKind::ALL.len() + kind as usize;
    place * Phase::ALL.len()
}

impl Meter {
    /// The place of a tenant, which gets one if there is one left.
    fn place_of(&self, tenant: TenantId) -> usize {
        let wanted = tenant.index() as u64;
        for (place, holder) in self.tenants.iter().enumerate() {
            match holder.load(Relaxed) {
                found if found == wanted => return place,
                NOBODY => {
                    holder.store(wanted, Relaxed);
                    return place;
                }
                _ => {}
            }
        }
        TENANTS_SHOWN
    }

    /// Takes in how long each phase of a request took, nanoseconds.
    pub(crate) fn record(
        &self,
        tenant: TenantId,
        class: Class,
        kind: OpKind,
        spans: [u64; Phase::ALL.len()],
    ) {
        let first = place(self.place_of(tenant), class, kind);
        for (histogram, ns) in self.phases[first..].iter().zip(spans) {
            histogram.record(ns);
        }
    }

    /// What a phase of the requests of one kind took, those of all tenants and classes.
    pub(crate) fn of_kind(&self, kind: OpKind, phase: Phase) -> Counts {
        let mut counts = Counts::default();
        for tenant in 0..=TENANTS_SHOWN {
            for class in Class::ALL {
                self.phases[place(tenant, class, kind) + phase as usize].add_to(&mut counts);
            }
        }
        counts
    }

    pub(crate) fn count(&self, method: u16, is_good: bool) {
        // The bit says that it was proved, not what was asked for.
        let method = Some(usize::from(method & !PROVED)).filter(|method| *method < METHODS.len());
        add(&self.requests[method.unwrap_or(0)][usize::from(!is_good)], 1);
    }

    pub(crate) fn count_slow(&self) {
        add(&self.slow, 1);
    }

    pub(crate) fn slow(&self) -> u64 {
        self.slow.load(Relaxed)
    }

    /// Requests of a method: those that got what they asked for, and the others.
    pub(crate) fn requests(&self, method: usize) -> [u64; 2] {
        self.requests
            .get(method)
            .map_or([0; 2], |counts| [&counts[0], &counts[1]].map(|c| c.load(Relaxed)))
    }

    /// Gives each histogram that has something to `take`: the tenant, none for all that have no
    /// place of their own, class, phase, and what it holds.
    pub(crate) fn each(&self, mut take: impl FnMut(Option<usize>, Class, Phase, Counts)) {
        for tenant in 0..=TENANTS_SHOWN {
            let id = self.tenants.get(tenant).map(|id| id.load(Relaxed) as usize);
            for class in Class::ALL {
                for phase in Phase::ALL {
                    let mut counts = Counts::default();
                    for kind in OpKind::ALL {
                        self.phases[place(tenant, class, kind) + phase as usize]
                            .add_to(&mut counts);
                    }
                    if counts.total() > 0 {
                        take(id, class, phase, counts);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use towpath_fastpath::wire::Method;

    use super::*;

    fn found(meter: &Meter) -> Vec<(Option<usize>, Class, Phase, u64, u64)> {
        let mut found = Vec::new();
        meter.each(|tenant, class, phase, counts| {
            found.push((tenant, class, phase, counts.total(), counts.sum_ns));
        });
        found
    }

    #[test]
    fn each_phase_is_told_by_class_and_tenant_and_nothing_of_what_was_never_asked() {
        let meter = Meter::default();
        assert!(found(&meter).is_empty());
        let spans = [1, 2, 3, 4, 5, 6];
        meter.record(TenantId::of_index(4), Class::Gold, OpKind::Read, spans);
        meter.record(TenantId::of_index(4), Class::Gold, OpKind::Write, spans);
        let all = found(&meter);
        assert_eq!(all.len(), 6);
        for (index, (tenant, class, phase, total, sum)) in all.into_iter().enumerate() {
            assert_eq!((tenant, class, phase), (Some(4), Class::Gold, Phase::ALL[index]));
            assert_eq!((total, sum), (2, 2 * (index as u64 + 1)));
        }
    }

    #[test]
    fn tenants_without_a_place_of_their_own_are_counted_together_and_none_loses_its_place() {
        let meter = Meter::default();
        for index in 0..TENANTS_SHOWN + 5 {
            meter.record(TenantId::of_index(index), Class::Copper, OpKind::Other, [1; 6]);
        }
        meter.record(TenantId::of_index(0), Class::Copper, OpKind::Other, [1; 6]);
        let all = found(&meter);
        let of = |tenant| all.iter().find(|found| found.0 == tenant).map(|found| found.3);
        assert_eq!(all.len(), (TENANTS_SHOWN + 1) * 6);
        assert_eq!((of(Some(0)), of(Some(9)), of(None)), (Some(2), Some(1), Some(5)));
    }

    #[test]
    fn what_a_kind_took_is_that_of_all_tenants_and_classes() {
        let meter = Meter::default();
        for (index, class) in [(0, Class::Gold), (3, Class::Silver), (70, Class::Silver)] {
            meter.record(TenantId::of_index(index), class, OpKind::Write, [1, 2, 3, 4, 5, 6]);
        }
        meter.record(TenantId::of_index(0), Class::Gold, OpKind::Read, [100; 6]);
        let disk = meter.of_kind(OpKind::Write, Phase::Disk);
        assert_eq!((disk.total(), disk.sum_ns), (3, 12));
        assert_eq!(meter.of_kind(OpKind::Other, Phase::Disk).total(), 0);
    }

    #[test]
    fn each_method_of_the_protocol_has_its_name() {
        for method in Method::ALL {
            let name = format!("{method:?}").to_lowercase();
            assert_eq!(method_name(method as u16), name);
        }
        let numbers = Method::ALL.map(|method| method as usize);
        let last = numbers.into_iter().max();
        assert_eq!((last, method_name(999)), (Some(METHODS.len() - 1), "unknown"));
    }

    #[test]
    fn what_is_no_method_is_counted_in_one_place() {
        let meter = Meter::default();
        meter.count(3, true);
        meter.count(60_000, false);
        meter.count(METHODS.len() as u16, false);
        assert_eq!((meter.requests(3), meter.requests(0)), ([1, 0], [0, 2]));
        assert_eq!(meter.requests(99), [0, 0]);
    }
}

//! What can change while a world runs.

use super::ids::{LinkId, SwitchId, WireId};
use crate::fault::FaultPlan;

/// How well a cable or a switch is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// It does what it should.
    #[default]
    Up,
    /// It loses everything, and nobody notices: a black hole. A switch loses what waits in it too.
    Silent,
    /// It loses everything as when silent, and the switches choose among the ways that are left.
    Down,
}

/// Something that changes, now or at a time.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// What befalls packets at the far end of a wire.
    Faults(WireId, FaultPlan),
    /// How well a cable is, in both directions.
    Cable(LinkId, Health),
    /// How well a switch is.
    Switch(SwitchId, Health),
}

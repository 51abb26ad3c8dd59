//! Congestion controllers as parameters of studies.

use super::{Kind, Param};
use towpath_cc::ControllerConfig;

/// One controller.
pub const CONTROLLER: Param = Param {
    name: "controller",
    what: "Congestion controller: default, or one with its settings as in fixed:1MiB",
    unit: "",
    kind: Kind::Word(check_controller),
    many: false,
    defaults: ["default", "default", "default"],
};

/// Several controllers, to be compared.
pub(super) const fn controllers(defaults: [&'static str; 3]) -> Param {
    Param {
        name: "controllers",
        what: "Congestion controllers, by name; the first one is held to the targets",
        unit: "",
        kind: Kind::Word(check_controller),
        many: true,
        defaults,
    }
}

fn check_controller(word: &str) -> Result<(), &'static str> {
    match controller_of(word) {
        Some(_) => Ok(()),
        None => Err("default, or a controller with its settings, as in fixed:1MiB"),
    }
}

/// The controller that a word names.
#[must_use]
pub fn controller_of(word: &str) -> Option<ControllerConfig> {
    if word == "default" { Some(ControllerConfig::default()) } else { word.parse().ok() }
}

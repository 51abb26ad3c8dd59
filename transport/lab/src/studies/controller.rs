//! Congestion controllers as parameters of studies.

use super::Param;
use towpath_cc::ControllerConfig;

/// One controller.
pub const CONTROLLER: Param = Param::word("controller", check_controller, ["default"; 3])
    .what("Congestion controller: default, or one with its settings as in fixed:1MiB");

/// Several controllers, to be compared.
pub(super) const fn controllers(defaults: [&'static str; 3]) -> Param {
    Param::words("controllers", check_controller, defaults)
        .what("Congestion controllers, by name; the first one is held to the targets")
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

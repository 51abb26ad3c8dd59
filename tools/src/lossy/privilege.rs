//! Root's rights over networks: had already, or within a user namespace of our own.

use std::fs;
use std::io;

use nix::sched::{CloneFlags, unshare};
use rustix::process::{getegid, geteuid};
use rustix::thread::{CapabilitySet, capabilities};

use super::error::LossyError;

/// Makes sure that namespaces and interfaces can be made: where this process has no right to it, it
/// enters a user namespace, in which it is root, and the answer is true. To be called before there
/// is a second thread.
///
/// # Errors
/// [`LossyError::Namespaces`].
pub(super) fn acquire() -> Result<bool, LossyError> {
    if has_rights() {
        return Ok(false);
    }
    enter_user_namespace().map(|()| true).map_err(LossyError::Namespaces)
}

fn has_rights() -> bool {
    let wanted = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    capabilities(None).is_ok_and(|had| had.effective.contains(wanted))
}

fn enter_user_namespace() -> io::Result<()> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    unshare(CloneFlags::CLONE_NEWUSER)?;
    // The kernel wants this before it lets a user map a group.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1"))
}

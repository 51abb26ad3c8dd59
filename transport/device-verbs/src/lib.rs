//! Real RDMA devices, through libibverbs.
//!
//! `VerbsDevice` is a [`towpath_verbs::Device`] on a NIC, or on the kernel's rxe. It comes with
//! the feature `verbs`, which needs libibverbs, librdmacm and libclang to build; without it the
//! type has no value and opening only says so, in [`OpenError::NotBuilt`], so that a default build
//! needs no library and callers need not ask how they were built.
//!
//! | room | what is in it |
//! |---|---|
//! | `target` | which device, port and address is meant |
//! | `error` | why a device could not be opened |
//! | `absent` | the device of a build without the feature |
//! | `survey` | what a driver says of a device, for people |
//! | `sys` | libibverbs: owned objects, each of which keeps those alive that it rests on |
//! | `device` | the verbs |
//! | `caps` | what the driver says, as capabilities |
//! | `completions`, `wr` | work completions and work requests, from and to the driver's words |
//! | `queue`, `qps`, `cqs` | what is posted, queue pairs, completion queues |
//! | `regions`, `gid`, `clock` | registered memory, addresses, the time of the device |
//! | `limits` | numbers |
//!
//! # What is promised beyond the driver
//! Drivers differ in what becomes of posted work when a queue pair goes. Here every work request
//! that was accepted ends in exactly one of: a completion, the silence of an unsignaled send that
//! a later completion covers, or a RESET. So what was posted is remembered, `destroy_qp` makes the
//! flush completions that the driver does not, and a receive that the driver has consumed without
//! a word (UC, after a lost packet) completes as flushed when the next one tells.
//!
//! # What is not promised
//! Which of its queue pairs survives what differs between drivers. rxe's UC responder drops
//! everything after a lost packet of a WRITE of many packets, and of a SEND with a shared receive
//! queue; so `uc_srq_survives_loss` is never claimed here.

#![deny(unsafe_code)]

mod error;
mod survey;
mod target;

pub use error::OpenError;
pub use survey::{DeviceClock, Gid, Limits, Port, Survey, survey};
pub use target::Target;

#[cfg(not(feature = "verbs"))]
mod absent;
#[cfg(feature = "verbs")]
mod caps;
#[cfg(feature = "verbs")]
mod clock;
#[cfg(feature = "verbs")]
mod completions;
#[cfg(feature = "verbs")]
mod cqs;
#[cfg(feature = "verbs")]
mod device;
#[cfg(feature = "verbs")]
mod gid;
#[cfg(feature = "verbs")]
mod limits;
#[cfg(feature = "verbs")]
mod qps;
#[cfg(feature = "verbs")]
mod queue;
#[cfg(feature = "verbs")]
mod regions;
#[cfg(feature = "verbs")]
mod sys;
#[cfg(feature = "verbs")]
mod wr;

#[cfg(not(feature = "verbs"))]
pub use absent::VerbsDevice;
#[cfg(feature = "verbs")]
pub use device::VerbsDevice;

/// The names of the RDMA devices of this host, as `ibv_devices` lists them.
///
/// # Errors
/// [`OpenError::NotBuilt`] without the feature `verbs`; [`OpenError::List`].
pub fn device_names() -> Result<Vec<String>, OpenError> {
    #[cfg(feature = "verbs")]
    return sys::device_names();
    #[cfg(not(feature = "verbs"))]
    return Err(OpenError::NotBuilt);
}

#[cfg(all(test, not(feature = "verbs")))]
mod tests {
    #[test]
    fn without_the_feature_the_error_says_how_to_get_it() {
        let listed = crate::device_names().unwrap_err();
        let opened = crate::VerbsDevice::open(&crate::Target::new()).unwrap_err();
        for error in [listed, opened] {
            assert!(error.to_string().contains("--features verbs"), "{error}");
        }
    }
}

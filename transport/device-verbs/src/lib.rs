//! RDMA devices of the system (NICs, and the kernel's rxe), used through libibverbs.
//!
//! `VerbsDevice` implements [`towpath_verbs::Device`]. It needs the feature `verbs`, which needs
//! libibverbs, librdmacm and libclang to build. Without the feature the type still exists, but
//! opening a device always returns [`OpenError::NotBuilt`]. A default build therefore needs none of
//! these libraries, and callers compile in either build.
//!
//! | module or file | contents |
//! |---|---|
//! | `target` | the choice of device, port and address |
//! | `error` | why a device could not be opened |
//! | `absent` | the device of a build without the feature |
//! | `survey` | what a driver reports about a device, for people |
//! | `sys` | libibverbs objects; each keeps alive the objects that it depends on |
//! | `device` | the verbs |
//! | `caps` | capabilities, from what the driver reports |
//! | `completions`, `wr` | conversion of work completions and work requests |
//! | `queue`, `qps`, `cqs` | posted work requests, queue pairs, completion queues |
//! | `regions`, `gid`, `clock` | registered memory, addresses, the time of the device |
//! | `limits` | numbers |
//!
//! # Guaranteed on every driver
//! Drivers differ in what happens to posted work requests when a queue pair is destroyed. Here
//! every accepted work request ends in exactly one of three ways: a completion, no completion of
//! its own (an unsignaled send that a later completion covers), or a RESET. For this the device
//! remembers what was posted, and `destroy_qp` creates the flush completions that the driver does
//! not create. A receive that the driver consumed without a completion (UC, after a lost packet)
//! completes as flushed when the next receive completes.
//!
//! # Not guaranteed
//! Which faults a queue pair survives differs between drivers. rxe's UC responder drops
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

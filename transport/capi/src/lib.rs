//! Towpath for programs in C and C++: the functions of `include/towpath.h`.
//!
//! `cargo xtask install-c --prefix DIR` builds the library and installs it as `libtowpath`, with
//! its header, its pkg-config file and its man page; `docs/c.md` says how to link it. The header is
//! made of this crate by a test (`tests/header.rs`), which fails when it is stale.
//!
//! **Names.** An endpoint, a configuration and shared memory are opaque pointers, which the caller
//! frees. All else that an endpoint has (links, messages, buffers, sends) is named by numbers that
//! are never used again while anyone could still hold them: a stale number is an error and not a
//! wild pointer.
//!
//! **Panics.** Every function runs within `ffi::guard`: a panic comes back as `TOW_E_PANIC`, and
//! the endpoint that it was in answers nothing else from then on.
//!
//! **Threads.** An endpoint belongs to one thread, and each call compares it with its own:
//! `TOW_E_THREAD`. What may be called from elsewhere says so: `tow_wake`, `tow_endpoint_adopt`,
//! everything of shared memory.
//!
//! | file | contents |
//! |---|---|
//! | `ffi` | the functions, and the types of C that they take and give |
//! | `table` | numbers for what an endpoint has |
//! | `fault` | why a call failed: its code and its text |
//! | `names` | what the caller of an endpoint holds, by number; events as C has them |
//! | `inner` | an endpoint with its names |
//!

#![deny(unsafe_code)]

mod fault;
pub mod ffi;
mod inner;
mod names;
mod table;

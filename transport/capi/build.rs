//! The name by which programs that were linked to the library look for it.

#![forbid(unsafe_code)]

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // As long as the version begins with 0, so does what is promised of the binary interface.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtowpath.so.0");
}

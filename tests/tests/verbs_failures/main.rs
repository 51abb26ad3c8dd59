//! What goes wrong on real verbs ends in a typed error, and leaves nothing behind: neither in the
//! kernel nor here. Run in the virtual machine.

mod census;
mod exhausted;
mod killed;
mod lacking;
mod released;
mod talker;
mod unloaded;

use towpath_device_verbs::{Target, VerbsDevice};

/// The names of the two joined devices that `TOWPATH_VERBS_PAIR` names, as `rxe0,rxe1`.
fn pair() -> [String; 2] {
    let pair = std::env::var("TOWPATH_VERBS_PAIR").expect("TOWPATH_VERBS_PAIR names two devices");
    let (near, far) = pair.split_once(',').expect("two names with a comma between them");
    [near.to_owned(), far.to_owned()]
}

fn open(name: &str) -> VerbsDevice {
    VerbsDevice::open(&Target::new().device(name)).expect("it opens")
}

//! A port that goes down and comes back, and what cannot be opened.

use std::process::Command;
use std::time::Duration;
use towpath_device_verbs::{OpenError, Target, VerbsDevice};
use towpath_verbs::{AsyncEvent, Device};

/// How often a change is looked for before the test gives up, 10 ms apart.
const LOOKS_MAX: u32 = 6_000;

fn look_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..LOOKS_MAX {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what} never came");
}

fn interface_of(device: &str) -> String {
    let file = format!("/sys/class/infiniband/{device}/ports/1/gid_attrs/ndevs/0");
    std::fs::read_to_string(file).expect("it has an interface").trim().to_owned()
}

fn set_link(interface: &str, state: &str) {
    let status = Command::new("ip").args(["link", "set", interface, state]).status();
    assert!(status.expect("ip is there").success());
}

/// By a name of its own, so that it can run when no other test does.
mod unplugged {
    use super::*;

    #[test]
    #[ignore = "needs an RDMA device whose port may go down: cargo xtask vm-test"]
    fn a_port_that_goes_down_is_told_of_and_does_not_open() {
        let pair = std::env::var("TOWPATH_VERBS_PAIR").expect("it names two devices");
        let (name, _) = pair.split_once(',').expect("two names with a comma between them");
        let target = Target::new().device(name);
        let mut device = VerbsDevice::open(&target).expect("it opens");
        assert_eq!(device.poll_async_event(), None);
        let interface = interface_of(name);
        set_link(&interface, "down");
        let event = look_for("an event", || device.poll_async_event());
        assert_eq!(event, AsyncEvent::PortDown);
        let refused = VerbsDevice::open(&target).err();
        assert_eq!(refused, Some(OpenError::PortDown { name: name.to_owned(), port: 1 }));
        set_link(&interface, "up");
        look_for("the port", || VerbsDevice::open(&target).ok());
    }

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm-test"]
    fn what_is_not_there_is_refused_by_name() {
        let pair = std::env::var("TOWPATH_VERBS_PAIR").expect("it names two devices");
        let names: Vec<String> = pair.split(',').map(str::to_owned).collect();
        let error = VerbsDevice::open(&Target::new().device("none")).err().expect("no such");
        let OpenError::NoSuchDevice { name, known } = error else { panic!("{error}") };
        assert_eq!(name, "none");
        assert!(names.iter().all(|each| known.contains(each)), "{known:?}");
        let target = Target::new().device(&names[0]);
        let error = VerbsDevice::open(&target.clone().gid_index(200)).err();
        let (name, port, gid_index) = (names[0].clone(), 1, Some(200));
        assert_eq!(error, Some(OpenError::NoAddress { name, port, gid_index }));
        let error = VerbsDevice::open(&target.port(9)).err();
        assert!(matches!(error, Some(OpenError::Query { port: 9, .. })), "{error:?}");
    }
}

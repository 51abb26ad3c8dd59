//! What the thesis has: figures that its text and its tables tell.

use crate::model::{Transport, Waiting};

/// A figure of the thesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    /// The most operations a second up to 33 clients.
    Most,
    /// What a client brings, up to 15.
    Change,
    /// The 95th percentile with so many clients.
    P95(u32),
    /// Context switches of the server with so many clients.
    Switches(u32),
}

/// Whether a parameter of the model was fitted to this figure (docs/studies.md, `kv`): what the
/// model says of it is no result, and no target is made of it.
pub(super) fn is_fitted(figure: Figure, transport: Transport, waiting: Waiting) -> bool {
    use Transport::{Rc, Tcp, Uc};
    match (figure, transport, waiting) {
        (Figure::Most, Tcp | Uc, _) => true,
        (Figure::Most, Rc, waiting) => waiting == Waiting::Polling,
        (Figure::Change | Figure::P95(32) | Figure::Switches(60), Uc, waiting) => {
            waiting == Waiting::Polling
        }
        _ => false,
    }
}

/// The most operations a second up to 33 clients, of each way of waiting. It could not measure UD
/// by events.
pub(super) fn per_s(transport: Transport, waiting: Waiting) -> Option<f64> {
    use Transport::{Rc, Tcp, Uc, Ud};
    match (transport, waiting) {
        // TCP sleeps in the kernel in either case.
        (Tcp, _) => Some(206_750.0),
        (Rc, Waiting::Polling) => Some(247_782.0),
        (Uc, Waiting::Polling) => Some(370_185.0),
        (Ud, Waiting::Polling) => Some(357_019.0),
        (Rc, Waiting::Blocking) => Some(239_600.0),
        (Uc, Waiting::Blocking) => Some(285_395.0),
        _ => None,
    }
}

/// Table 4.1: operations a second more than with one client less. By clients: TCP, RC, UC, UD.
pub(super) const CHANGES: [(u32, [f64; 4]); 10] = [
    (2, [6_531.57, 24_686.53, 24_638.92, 26_502.61]),
    (3, [13_594.19, 23_770.88, 24_785.06, 28_301.23]),
    (4, [4_297.08, 24_568.10, 27_795.82, 23_489.22]),
    (5, [7_363.60, 17_665.62, 19_850.78, 22_090.11]),
    (6, [6_521.77, 16_064.32, 20_579.03, 24_167.81]),
    (7, [11_672.15, 13_975.28, 21_439.07, 16_246.35]),
    (8, [18_989.11, 14_401.89, 17_510.51, 14_201.32]),
    (9, [12_033.20, 4_957.15, 17_930.69, 21_432.35]),
    (10, [11_858.04, 18_916.31, 20_129.91, 17_827.71]),
    (15, [9_603.18, 8_252.11, 19_962.03, 16_410.47]),
];

/// And the mean of those up to 15 clients: polling, then blocking (TCP, RC, UC).
pub(super) fn change(transport: Transport, waiting: Waiting) -> Option<f64> {
    use Transport::{Rc, Tcp, Uc, Ud};
    match (transport, waiting) {
        (Tcp, Waiting::Polling) => Some(10_246.0),
        (Rc, Waiting::Polling) => Some(16_726.0),
        (Uc, Waiting::Polling) => Some(21_462.0),
        (Ud, Waiting::Polling) => Some(21_067.0),
        (Tcp, Waiting::Blocking) => Some(11_065.0),
        (Rc, Waiting::Blocking) => Some(13_339.0),
        (Uc, Waiting::Blocking) => Some(15_770.0),
        _ => None,
    }
}

/// Tables 4.2 and 4.3, in microseconds: median, range between the quartiles, 95th and 99th
/// percentile, standard deviation.
pub(super) fn latency(transport: Transport, waiting: Waiting, clients: u32) -> Option<[f64; 5]> {
    use Transport::{Rc, Tcp, Uc, Ud};
    let polls = waiting == Waiting::Polling;
    let found = match (transport, polls, clients) {
        (Tcp, true, 5) => [62.0, 55.0, 126.0, 152.0, 33.50],
        (Tcp, true, 32) => [129.0, 40.0, 192.0, 233.0, 268.86],
        (Tcp, true, 60) => [238.0, 65.0, 318.0, 368.0, 275.85],
        (Rc, true, 5) => [31.0, 43.0, 88.0, 99.0, 29.33],
        (Rc, true, 32) => [112.0, 149.0, 227.0, 231.0, 83.10],
        (Rc, true, 60) => [48.0, 56.0, 120.0, 7_852.41, 1_662.83],
        (Uc, true, 5) => [29.0, 49.0, 84.0, 95.0, 29.26],
        (Uc, true, 32) => [39.0, 70.0, 110.0, 122.0, 46.59],
        (Uc, true, 60) => [35.0, 56.0, 110.0, 1_296.0, 1_629.16],
        (Ud, true, 5) => [29.0, 46.0, 84.0, 95.0, 30.45],
        (Ud, true, 32) => [57.0, 64.0, 126.0, 146.0, 65.59],
        (Ud, true, 60) => [54.0, 65.0, 143.0, 9_036.0, 1_693.72],
        (Tcp, false, 5) => [64.0, 53.0, 131.0, 155.0, 34.42],
        (Tcp, false, 32) => [130.0, 38.0, 193.0, 241.0, 266.65],
        (Tcp, false, 60) => [245.0, 66.0, 326.0, 379.0, 273.75],
        (Rc, false, 5) => [43.0, 47.0, 101.0, 120.0, 31.93],
        (Rc, false, 32) => [111.0, 118.0, 219.0, 231.0, 109.48],
        (Rc, false, 60) => [152.0, 303.0, 430.0, 441.0, 200.03],
        (Uc, false, 5) => [41.0, 47.0, 98.0, 112.0, 31.64],
        (Uc, false, 32) => [90.0, 35.0, 152.0, 245.0, 150.74],
        (Uc, false, 60) => [158.0, 55.0, 249.0, 325.0, 326.77],
        _ => return None,
    };
    Some(found)
}

/// The means that its text has, in microseconds.
pub(super) fn mean_us(transport: Transport, waiting: Waiting, clients: u32) -> Option<f64> {
    use Transport::{Rc, Tcp, Uc, Ud};
    match (transport, waiting, clients) {
        (Tcp, Waiting::Polling, 32) => Some(138.0),
        (Rc, Waiting::Polling, 32) => Some(115.1),
        (Uc, Waiting::Polling, 32) => Some(49.24),
        (Ud, Waiting::Polling, 32) => Some(65.5),
        (Uc, Waiting::Polling, 60) => Some(179.7),
        (Uc, Waiting::Blocking, 32) => Some(99.3),
        (Uc, Waiting::Blocking, 60) => Some(158.3),
        _ => None,
    }
}

/// Table 4.4, of UC: at the server, at the clients.
pub(super) fn switches(waiting: Waiting, clients: u32) -> Option<[u64; 2]> {
    match (waiting, clients) {
        (Waiting::Polling, 5) => Some([1_453, 47_120]),
        (Waiting::Polling, 32) => Some([7_208, 716_238]),
        (Waiting::Polling, 60) => Some([191_667, 574_049]),
        (Waiting::Blocking, 5) => Some([19_547_566, 19_813_183]),
        (Waiting::Blocking, 32) => Some([20_055_568, 19_972_089]),
        (Waiting::Blocking, 60) => Some([20_077_619, 19_980_293]),
        _ => None,
    }
}

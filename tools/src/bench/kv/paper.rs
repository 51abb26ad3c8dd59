//! What the study that asked first measured: J. E. Troost, *Scalability of RDMA transportation
//! types in a Key Value store application* (VU Amsterdam, 2021), on 32 hardware threads and a
//! network of 56 Gb/s, with a worker thread for each client.

use super::way::Way;
use super::world::Point;

/// Clients at which the ratios are its peaks.
pub(super) const PEAK_CLIENTS: usize = 32;

/// The most of its clients.
pub(super) const MOST_CLIENTS: usize = 70;

/// Operations of each of its runs.
const OPERATIONS: f64 = 10e6;

/// What the transports of the study are here. Its UC and UD are those without Towpath.
const fn name(way: Way) -> Option<&'static str> {
    match way {
        Way::Tcp => Some("tcp"),
        Way::Rc => Some("rc"),
        Way::Uc => Some("uc"),
        Way::Ud => Some("ud"),
        _ => None,
    }
}

/// Operations a second over those of TCP at 32 clients (section 4.1).
pub(super) fn of_tcp(point: &Point) -> Option<f64> {
    if point.clients != PEAK_CLIENTS {
        return None;
    }
    match (name(point.way)?, point.polls) {
        ("tcp", _) => Some(1.0),
        ("uc", true) => Some(1.79),
        ("ud", true) => Some(1.73),
        ("rc", true) => Some(1.20),
        ("uc", false) => Some(1.38),
        ("rc", false) => Some(1.16),
        _ => None,
    }
}

/// A row of tables 4.2 and 4.3, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Latency {
    pub(super) median: f64,
    /// Between the quartiles.
    pub(super) spread: f64,
    pub(super) p95: f64,
    pub(super) p99: f64,
    pub(super) deviation: f64,
}

/// Transport, polling, clients; median, spread, 95th, 99th, deviation.
type Row = (&'static str, bool, usize, [f64; 5]);

const LATENCY: [Row; 21] = [
    ("tcp", true, 5, [62.0, 55.0, 126.0, 152.0, 33.50]),
    ("tcp", true, 32, [129.0, 40.0, 192.0, 233.0, 268.86]),
    ("tcp", true, 60, [238.0, 65.0, 318.0, 368.0, 275.85]),
    ("rc", true, 5, [31.0, 43.0, 88.0, 99.0, 29.33]),
    ("rc", true, 32, [112.0, 149.0, 227.0, 231.0, 83.10]),
    ("rc", true, 60, [48.0, 56.0, 120.0, 7852.41, 1662.83]),
    ("uc", true, 5, [29.0, 49.0, 84.0, 95.0, 29.26]),
    ("uc", true, 32, [39.0, 70.0, 110.0, 122.0, 46.59]),
    ("uc", true, 60, [35.0, 56.0, 110.0, 1296.0, 1629.16]),
    ("ud", true, 5, [29.0, 46.0, 84.0, 95.0, 30.45]),
    ("ud", true, 32, [57.0, 64.0, 126.0, 146.0, 65.59]),
    ("ud", true, 60, [54.0, 65.0, 143.0, 9036.0, 1693.72]),
    ("tcp", false, 5, [64.0, 53.0, 131.0, 155.0, 34.42]),
    ("tcp", false, 32, [130.0, 38.0, 193.0, 241.0, 266.65]),
    ("tcp", false, 60, [245.0, 66.0, 326.0, 379.0, 273.75]),
    ("rc", false, 5, [43.0, 47.0, 101.0, 120.0, 31.93]),
    ("rc", false, 32, [111.0, 118.0, 219.0, 231.0, 109.48]),
    ("rc", false, 60, [152.0, 303.0, 430.0, 441.0, 200.03]),
    ("uc", false, 5, [41.0, 47.0, 98.0, 112.0, 31.64]),
    ("uc", false, 32, [90.0, 35.0, 152.0, 245.0, 150.74]),
    ("uc", false, 60, [158.0, 55.0, 249.0, 325.0, 326.77]),
];

/// Of one point.
pub(super) fn latency(point: &Point) -> Option<Latency> {
    let of = (name(point.way)?, point.polls, point.clients);
    let row = LATENCY.iter().find(|row| (row.0, row.1, row.2) == of)?;
    let [median, spread, p95, p99, deviation] = row.3;
    Some(Latency { median, spread, p95, p99, deviation })
}

/// Context switches of each operation, at the server and at its clients (table 4.4, UC).
pub(super) fn switches(point: &Point) -> Option<[f64; 2]> {
    let counts: [f64; 2] = match (name(point.way)?, point.polls, point.clients) {
        ("uc", true, 5) => [1_453.0, 47_120.0],
        ("uc", true, 32) => [7_208.0, 716_238.0],
        ("uc", true, 60) => [191_667.0, 574_049.0],
        ("uc", false, 5) => [19_547_566.0, 19_813_183.0],
        ("uc", false, 32) => [20_055_568.0, 19_972_089.0],
        ("uc", false, 60) => [20_077_619.0, 19_980_293.0],
        _ => return None,
    };
    Some(counts.map(|count| count / OPERATIONS))
}

//! What one measurement brought.

use crate::failure::Failure;
use serde_json::Value;

/// The values of a measurement, each with its name: `iops`, `mb_per_s`, `p50_us` and others.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::bench) struct Seen(pub(in crate::bench) Vec<(&'static str, f64)>);

impl Seen {
    /// From one direction of fio's JSON, or of that of `towpath bench store`.
    pub(in crate::bench) fn of(
        command: &str,
        output: &str,
        path: &[&str],
    ) -> Result<Self, Failure> {
        let failed = |metric: String| Failure::NoMetric {
            command: command.to_owned(),
            metric,
            output: output.to_owned(),
        };
        // fio may write notes before its object.
        let start = output.find('{').unwrap_or(0);
        let whole: Value =
            serde_json::from_str(&output[start..]).map_err(|_| failed(path.join(".")))?;
        let number = |keys: &[&str]| {
            let all = [path, keys].concat();
            let found = all.iter().try_fold(&whole, |value, key| match value {
                Value::Array(list) => list.get(key.parse::<usize>().ok()?),
                other => other.get(key),
            });
            found.and_then(Value::as_f64).ok_or_else(|| failed(all.join(".")))
        };
        let percentile = |key| Ok::<_, Failure>(number(&["lat_ns", "percentile", key])? / 1e3);
        Ok(Self(vec![
            ("iops", number(&["iops"])?),
            ("mb_per_s", number(&["bw_bytes"])? / 1e6),
            ("p50_us", percentile("50.000000")?),
            ("p99_us", percentile("99.000000")?),
            ("mean_us", number(&["lat_ns", "mean"])? / 1e3),
        ]))
    }

    /// The value of a name.
    pub(in crate::bench) fn value(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(known, _)| *known == name).map(|&(_, value)| value)
    }

    /// For those who watch.
    pub(in crate::bench) fn line(&self) -> String {
        let shown = self.0.iter().map(|(name, value)| format!("{name} {value:.1}"));
        shown.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIO: &str = r#"note: both iodepth >= 1 and synchronous I/O engine are selected
{"jobs": [{"write": {"iops": 250.5, "bw_bytes": 1026048, "lat_ns": {"mean": 3000.0,
 "percentile": {"50.000000": 2000, "99.000000": 9000}}}}]}"#;

    #[test]
    fn fio_and_the_load_generator_are_read_alike() {
        let seen = Seen::of("fio", FIO, &["jobs", "0", "write"]).unwrap();
        assert_eq!(seen.value("iops"), Some(250.5));
        assert_eq!(seen.value("mb_per_s"), Some(1.026_048));
        assert_eq!((seen.value("p50_us"), seen.value("p99_us")), (Some(2.0), Some(9.0)));
        let ours = FIO.split_once("[{").unwrap().1.rsplit_once("]}").unwrap().0;
        let ours = Seen::of("towpath", &format!("{{{ours}"), &["write"]).unwrap();
        assert_eq!(ours, seen);
    }

    #[test]
    fn output_without_a_figure_is_refused_with_the_name_of_the_figure() {
        let failure = Seen::of("fio", FIO, &["jobs", "0", "read"]).unwrap_err().to_string();
        assert!(failure.contains("`jobs.0.read.iops`"), "{failure}");
        assert!(Seen::of("fio", "nothing", &["jobs"]).is_err());
    }
}

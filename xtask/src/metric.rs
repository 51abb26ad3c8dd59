//! Numbers in what benchmarks print.

use crate::failure::Failure;
use serde_json::Value;

/// The number `metric` of what `command` printed, which the failure names.
pub(crate) fn of(command: &str, output: &str, metric: &str) -> Result<f64, Failure> {
    number(output, metric).ok_or_else(|| Failure::NoMetric {
        command: command.to_owned(),
        metric: metric.to_owned(),
        output: output.to_owned(),
    })
}

/// The number `metric` in the JSON object that the output is, or that its last such line is: `a.b`
/// for one further in, `a.0` for one in a list.
fn number(output: &str, metric: &str) -> Option<f64> {
    let whole = serde_json::from_str::<Value>(output).ok();
    let mut lines = output.lines().rev().filter_map(|line| serde_json::from_str(line).ok());
    let object = whole.or_else(|| lines.find(Value::is_object))?;
    within(&object, metric)
}

/// The number `metric` of the object.
pub(crate) fn within(object: &Value, metric: &str) -> Option<f64> {
    let found = metric.split('.').try_fold(object, |value, key| match value {
        Value::Array(list) => list.get(key.parse::<usize>().ok()?),
        other => other.get(key),
    })?;
    found.as_f64().filter(|number| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metric_is_found_in_the_last_object_and_further_in() {
        let output = "warming up\n{\"gbps\": 1}\n{\"gbps\": 2.5, \"lat\": {\"p50\": 3}}\n";
        assert_eq!(number(output, "gbps"), Some(2.5));
        assert_eq!(number(output, "lat.p50"), Some(3.0));
        assert_eq!(number("{\n \"gbps\": 4\n}\n", "gbps"), Some(4.0));
        let list = "{\"results\": [{\"gbps\": 5}, {\"gbps\": 6}]}";
        assert_eq!(number(list, "results.1.gbps"), Some(6.0));
        assert_eq!(number(list, "results.2.gbps"), None);
    }

    #[test]
    fn output_without_the_number_is_refused() {
        for output in ["", "gbps 3", "{\"gbps\": \"3\"}", "{\"mbps\": 3}"] {
            assert_eq!(number(output, "gbps"), None, "{output}");
        }
    }
}

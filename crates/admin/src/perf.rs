//! Performance counters as `perf dump` and `perf schema` show them (`common/perf_counters.cc`).

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// What a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterKind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A sum of time.
    Time,
    /// A sum of time and how often it was added to.
    AvgTime,
    /// A sum of numbers and how often it was added to.
    Avg,
}

/// What a counter is about.
#[derive(Clone, Copy, Debug)]
pub struct CounterDef {
    /// Its name.
    pub name: &'static str,
    /// What it counts.
    pub kind: CounterKind,
    /// For people.
    pub description: &'static str,
    /// Whether it counts bytes.
    pub bytes: bool,
}

impl CounterDef {
    /// A counter of something other than bytes.
    pub const fn new(name: &'static str, kind: CounterKind, description: &'static str) -> Self {
        CounterDef { name, kind, description, bytes: false }
    }

    /// A counter of bytes.
    pub const fn bytes(name: &'static str, kind: CounterKind, description: &'static str) -> Self {
        CounterDef { name, kind, description, bytes: true }
    }

    fn schema(&self) -> Value {
        const TIME: u32 = 1;
        const U64: u32 = 2;
        const AVERAGE: u32 = 4;
        const COUNTER: u32 = 8;
        let (bits, metric, value) = match self.kind {
            CounterKind::Counter => (U64 | COUNTER, "counter", "integer"),
            CounterKind::Gauge => (U64, "gauge", "integer"),
            CounterKind::Time => (TIME, "gauge", "real"),
            CounterKind::AvgTime => (TIME | AVERAGE, "gauge", "real-integer-pair"),
            CounterKind::Avg => (U64 | AVERAGE, "gauge", "integer-integer-pair"),
        };
        json!({
            "type": bits, "metric_type": metric, "value_type": value,
            "description": self.description, "nick": "", "priority": 0,
            "units": if self.bytes { "bytes" } else { "none" },
        })
    }
}

/// What a counter stands at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterValue {
    /// A number.
    Int(u64),
    /// A time.
    Time(Duration),
    /// How often, and the sum.
    AvgTime(u64, Duration),
    /// How often, and the sum.
    Avg(u64, u64),
}

impl CounterValue {
    /// What was added since it stood at `before`.
    fn since(self, before: CounterValue) -> Self {
        use CounterValue as V;
        match (self, before) {
            (V::Int(n), V::Int(b)) => V::Int(n.saturating_sub(b)),
            (V::Time(t), V::Time(b)) => V::Time(t.saturating_sub(b)),
            (V::AvgTime(n, t), V::AvgTime(m, b)) => {
                V::AvgTime(n.saturating_sub(m), t.saturating_sub(b))
            }
            (V::Avg(n, s), V::Avg(m, b)) => V::Avg(n.saturating_sub(m), s.saturating_sub(b)),
            _ => self,
        }
    }

    fn show(self) -> Value {
        match self {
            CounterValue::Int(n) => n.into(),
            CounterValue::Time(t) => t.as_secs_f64().into(),
            CounterValue::Avg(count, sum) => json!({"avgcount": count, "sum": sum}),
            CounterValue::AvgTime(count, sum) => {
                let sum = sum.as_secs_f64();
                let mean = if count > 0 { sum / count as f64 } else { 0.0 };
                json!({"avgcount": count, "sum": sum, "avgtime": mean})
            }
        }
    }
}

/// A group of counters with their values.
#[derive(Clone, Debug)]
pub struct Logger {
    /// Its name: `osd`, `mon`.
    pub name: String,
    /// What it holds.
    pub counters: Vec<(CounterDef, CounterValue)>,
}

/// Where counters stood when they were reset (`perf reset`): what is shown is what was added since. Gauges are
/// never reset.
#[derive(Clone, Debug, Default)]
pub struct Resets(BTreeMap<String, BTreeMap<&'static str, CounterValue>>);

impl Resets {
    /// Resets the counters of a logger, or of `all`. `false` when there is none of that name.
    pub fn reset(&mut self, loggers: &[Logger], which: &str) -> bool {
        let mut found = false;
        for l in loggers.iter().filter(|l| which == "all" || l.name == which) {
            let grows = l.counters.iter().filter(|(def, _)| def.kind != CounterKind::Gauge);
            let values = grows.map(|(def, value)| (def.name, *value)).collect();
            self.0.insert(l.name.clone(), values);
            found = true;
        }
        found
    }

    /// What was added to each counter since it was reset.
    #[must_use]
    pub fn apply(&self, mut loggers: Vec<Logger>) -> Vec<Logger> {
        for l in &mut loggers {
            let Some(before) = self.0.get(&l.name) else { continue };
            for (def, value) in &mut l.counters {
                if let Some(before) = before.get(def.name) {
                    *value = value.since(*before);
                }
            }
        }
        loggers
    }
}

/// The answer to `perf dump [logger [counter]]`.
pub fn dump(loggers: &[Logger], logger: Option<&str>, counter: Option<&str>) -> Value {
    shape(loggers, logger, counter, |_, value| value.show())
}

/// The answer to `perf schema`.
pub fn schema(loggers: &[Logger]) -> Value {
    shape(loggers, None, None, |def, _| def.schema())
}

fn shape(
    loggers: &[Logger],
    logger: Option<&str>,
    counter: Option<&str>,
    show: impl Fn(&CounterDef, CounterValue) -> Value,
) -> Value {
    let mut all = Map::new();
    for l in loggers.iter().filter(|l| logger.is_none_or(|name| l.name == name)) {
        let wanted = |def: &CounterDef| counter.is_none_or(|name| def.name == name);
        let counters = l.counters.iter().filter(|(def, _)| wanted(def));
        let shown = counters.map(|(def, value)| (def.name.to_owned(), show(def, *value)));
        all.insert(l.name.clone(), Value::Object(shown.collect()));
    }
    Value::Object(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_the_shapes_of_ceph() {
        let op = CounterDef::new("op_latency", CounterKind::AvgTime, "time of an op");
        let loggers = [Logger {
            name: "osd".into(),
            counters: vec![
                (op, CounterValue::AvgTime(2, Duration::from_millis(3))),
                (
                    CounterDef::bytes("op_in_bytes", CounterKind::Counter, "written"),
                    CounterValue::Int(7),
                ),
            ],
        }];
        assert_eq!(
            dump(&loggers, None, None),
            json!({"osd": {
                "op_latency": {"avgcount": 2, "sum": 0.003, "avgtime": 0.0015}, "op_in_bytes": 7}})
        );
        assert_eq!(
            dump(&loggers, Some("osd"), Some("op_in_bytes")),
            json!({"osd": {"op_in_bytes": 7}})
        );
        assert_eq!(dump(&loggers, Some("x"), None), json!({}));
        let schema = schema(&loggers);
        assert_eq!(schema["osd"]["op_latency"]["value_type"], "real-integer-pair");
        assert_eq!(schema["osd"]["op_in_bytes"]["units"], "bytes");
    }

    #[test]
    fn counters_that_were_reset_begin_at_zero_and_gauges_stay() {
        let at = |ops: u64, ms: u64, wip: u64| {
            let counters = vec![
                (CounterDef::new("op", CounterKind::Counter, ""), CounterValue::Int(ops)),
                (
                    CounterDef::new("op_latency", CounterKind::AvgTime, ""),
                    CounterValue::AvgTime(ops, Duration::from_millis(ms)),
                ),
                (CounterDef::new("op_wip", CounterKind::Gauge, ""), CounterValue::Int(wip)),
            ];
            let other =
                vec![(CounterDef::new("n", CounterKind::Counter, ""), CounterValue::Int(ops))];
            let logger = |name: &str, counters| Logger { name: name.into(), counters };
            vec![logger("osd", counters), logger("store", other)]
        };
        let mut resets = Resets::default();
        assert!(!resets.reset(&at(2, 6, 1), "nobody"));
        assert!(resets.reset(&at(2, 6, 1), "osd"));
        let shown = dump(&resets.apply(at(5, 12, 3)), None, None);
        let latency = json!({"avgcount": 3, "sum": 0.006, "avgtime": 0.002});
        assert_eq!(
            shown,
            json!({"osd": {"op": 3, "op_latency": latency, "op_wip": 3}, "store": {"n": 5}})
        );
        assert!(resets.reset(&at(5, 12, 3), "all"));
        let shown = dump(&resets.apply(at(6, 13, 2)), None, None);
        assert_eq!((&shown["osd"]["op"], &shown["store"]["n"]), (&json!(1), &json!(1)));
    }
}

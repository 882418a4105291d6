//! Numbers as Prometheus reads them: OpenMetrics text.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// What tells one number of a name from another.
pub type Labels = Vec<(&'static str, String)>;

/// Where numbers are written when somebody asks for them.
pub struct Sheet<'a>(DescriptorEncoder<'a>);

impl Sheet<'_> {
    /// Numbers that go up and down.
    pub fn gauge(
        &mut self,
        name: &str,
        help: &str,
        numbers: impl IntoIterator<Item = (Labels, f64)>,
    ) -> fmt::Result {
        self.write(name, help, numbers.into_iter().map(|(labels, number)| (labels, ConstGauge::new(number))))
    }

    /// Numbers that only grow. Their name is written with `_total` behind it.
    pub fn counter(
        &mut self,
        name: &str,
        help: &str,
        numbers: impl IntoIterator<Item = (Labels, u64)>,
    ) -> fmt::Result {
        self.write(
            name,
            help,
            numbers.into_iter().map(|(labels, number)| (labels, ConstCounter::new(number))),
        )
    }

    fn write<M: EncodeMetric>(
        &mut self,
        name: &str,
        help: &str,
        numbers: impl Iterator<Item = (Labels, M)>,
    ) -> fmt::Result {
        let mut numbers = numbers.peekable();
        let Some((_, first)) = numbers.peek() else { return Ok(()) };
        let kind = first.metric_type();
        let mut family = self.0.encode_descriptor(name, help, None, kind)?;
        for (labels, number) in numbers {
            if labels.is_empty() {
                return number.encode(family);
            }
            number.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// A distribution of seconds for each value of one label.
#[derive(Clone, Debug)]
pub struct Durations {
    label: &'static str,
    family: Family<[(&'static str, String); 1], Histogram, Buckets>,
}

/// Up to how many seconds each of them goes.
#[derive(Clone, Debug)]
struct Buckets(&'static [f64]);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

impl Durations {
    pub fn new(label: &'static str, buckets: &'static [f64]) -> Self {
        Self { label, family: Family::new_with_constructor(Buckets(buckets)) }
    }

    /// Takes one that happened into account.
    pub fn observe(&self, value: &str, seconds: f64) {
        self.family.get_or_create(&[(self.label, value.to_owned())]).observe(seconds);
    }
}

/// All numbers of a part.
#[derive(Debug, Default)]
pub struct Numbers(Registry);

impl Numbers {
    /// These too, written whenever somebody asks.
    #[must_use]
    pub fn with(mut self, write: impl Fn(&mut Sheet<'_>) -> fmt::Result + Send + Sync + 'static) -> Self {
        self.0.register_collector(Box::new(Written(write)));
        self
    }

    /// And this distribution.
    #[must_use]
    pub fn with_durations(mut self, name: &str, help: &str, durations: &Durations) -> Self {
        self.0.register(name, help, durations.family.clone());
        self
    }

    /// As they are now.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.0)?;
        Ok(text)
    }
}

struct Written<F>(F);

impl<F> fmt::Debug for Written<F> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Written")
    }
}

impl<F: Fn(&mut Sheet<'_>) -> fmt::Result + Send + Sync + 'static> Collector for Written<F> {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        (self.0)(&mut Sheet(encoder))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn numbers_are_those_of_the_moment_in_which_somebody_asks() {
        let count = Arc::new(AtomicU64::new(1));
        let seen = Arc::clone(&count);
        let durations = Durations::new("phase", &[1.0, 5.0]);
        let numbers = Numbers::default()
            .with(move |sheet| {
                let now = seen.load(Ordering::Relaxed);
                sheet.counter("calls", "Calls so far.", [(vec![("reason", "a \"b\"\n".to_owned())], now)])?;
                sheet.gauge("nothing", "Not here.", [])?;
                sheet.gauge("alone", "Without labels.", [(Labels::new(), 0.5)])
            })
            .with_durations("wait_seconds", "Waits", &durations);
        let before = numbers.text().unwrap();
        assert!(before.contains("calls_total{reason=\"a \\\"b\\\"\\n\"} 1\n"), "{before}");
        assert!(before.contains("# TYPE alone gauge\nalone 0.5\n"), "{before}");
        assert!(!before.contains("nothing"), "{before}");
        count.store(7, Ordering::Relaxed);
        durations.observe("Running", 3.0);
        let after = numbers.text().unwrap();
        assert!(after.contains("calls_total{reason=\"a \\\"b\\\"\\n\"} 7\n"), "{after}");
        assert!(after.contains("wait_seconds_bucket{le=\"5.0\",phase=\"Running\"} 1\n"), "{after}");
        assert!(after.ends_with("# EOF\n"), "{after}");
    }
}

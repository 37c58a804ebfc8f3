//! The page of the metrics, the alerts and the dashboard speak of metrics that there are.

use crate::docs::{keep_part, top};
use std::collections::BTreeSet;
use std::fs;
use supervise::render::metrics::{FAMILIES, MetricType};

#[test]
fn every_metric_is_on_the_page() {
    let mut text = String::from("| metric | kind | labels | |\n| --- | --- | --- | --- |\n");
    for f in FAMILIES {
        let kind = match f.kind {
            MetricType::Gauge => "gauge",
            MetricType::Counter => "counter",
        };
        let labels = match f.labels {
            "" => String::new(),
            labels => format!("`{}`", labels.replace(", ", "`, `")),
        };
        text.push_str(&format!("| `{}` | {kind} | {labels} | {} |\n", f.name, f.help));
    }
    keep_part("docs/metrics.md", "metrics", &text);
}

#[test]
fn alerts_and_dashboard_name_metrics_that_there_are() {
    let known: BTreeSet<&str> = FAMILIES.iter().map(|f| f.name).collect();
    for file in [
        "prometheus/alerts.yaml",
        "prometheus/alerts_test.yaml",
        "grafana/supervise.json",
    ] {
        let text = fs::read_to_string(top().join("contrib").join(file)).unwrap();
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let named: BTreeSet<&str> = words.filter(|w| w.starts_with("supervise_")).collect();
        assert!(named.len() > 3, "{file}");
        let unknown: Vec<_> = named.difference(&known).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
    }
    let text = fs::read_to_string(top().join("contrib/grafana/supervise.json")).unwrap();
    let _: serde_json::Value = serde_json::from_str(&text).unwrap();
}

#[test]
fn every_alert_is_tried() {
    let read = |name: &str| fs::read_to_string(top().join("contrib/prometheus").join(name)).unwrap();
    let (rules, tests) = (read("alerts.yaml"), read("alerts_test.yaml"));
    let alerts: BTreeSet<&str> = rules
        .lines()
        .filter_map(|l| l.trim().strip_prefix("- alert: "))
        .collect();
    assert!(alerts.len() > 3, "{alerts:?}");
    let fires = |alert: &&&str| {
        tests
            .lines()
            .any(|l| l.trim().strip_prefix("alertname: ") == Some(**alert))
    };
    let untried: Vec<_> = alerts.iter().filter(|alert| !fires(alert)).collect();
    assert!(untried.is_empty(), "no test lets them fire: {untried:?}");
}

//! Durations, bytes, CPU time and status ranges as texts.

use crate::manifest::{Bytes, Cpus, StatusRange, Timespan};

#[test]
fn durations_are_read_and_written_in_their_shortest_form() {
    for (text, millis, written) in [
        ("500ms", 500, "500ms"),
        ("10s", 10_000, "10s"),
        ("90s", 90_000, "1m30s"),
        ("1m30s", 90_000, "1m30s"),
        ("2h", 7_200_000, "2h"),
        ("1h1m1s1ms", 3_661_001, "1h1m1s1ms"),
        ("0s", 0, "0s"),
        ("0ms", 0, "0s"),
    ] {
        let span: Timespan = text.parse().unwrap();
        assert_eq!(
            (span, span.to_string().as_str()),
            (Timespan::from_millis(millis), written)
        );
    }
}

#[test]
fn other_texts_are_no_durations() {
    for text in [
        "",
        "10",
        "s",
        "1.5s",
        "-1s",
        "+1s",
        "1 s",
        "1s1m",
        "1s1s",
        "1d",
        "1S",
        "99999999999999999999s",
        "9999999999999999h",
        "1sé",
    ] {
        assert!(text.parse::<Timespan>().is_err(), "{text:?}");
    }
}

#[test]
fn bytes_are_read_and_written_in_their_shortest_form() {
    for (text, bytes, written) in [
        ("0", 0, "0"),
        ("1023", 1_023, "1023"),
        ("1024", 1_024, "1Ki"),
        ("64Mi", 64 << 20, "64Mi"),
        ("1Gi", 1 << 30, "1Gi"),
        ("2Ti", 2 << 40, "2Ti"),
        ("1k", 1_000, "1000"),
        ("1M", 1_000_000, "1000000"),
        ("3G", 3_000_000_000, "3000000000"),
    ] {
        let size: Bytes = text.parse().unwrap();
        assert_eq!((size.get(), size.to_string().as_str()), (bytes, written));
    }
    assert_eq!(
        serde_json::from_str::<Bytes>("1048576").unwrap(),
        Bytes::new(1 << 20)
    );
}

#[test]
fn other_texts_are_no_bytes() {
    for text in [
        "",
        "Mi",
        "1.5Gi",
        "-1",
        "+1",
        "1MB",
        "1K",
        "1 Mi",
        "99999999999999999999",
        "17000000Ti",
    ] {
        assert!(text.parse::<Bytes>().is_err(), "{text:?}");
    }
    assert!(serde_json::from_str::<Bytes>("1.5").is_err());
}

#[test]
fn cpu_time_is_read_from_cores_and_thousandths() {
    for (text, millis, written) in [
        ("\"0.5\"", 500, "0.5"),
        ("0.5", 500, "0.5"),
        ("2", 2_000, "2"),
        ("\"2.0\"", 2_000, "2"),
        ("\"500m\"", 500, "0.5"),
        ("0.125", 125, "0.125"),
        ("\"1m\"", 1, "0.001"),
    ] {
        let cpus: Cpus = serde_json::from_str(text).unwrap();
        assert_eq!(
            (cpus.millis(), cpus.to_string().as_str()),
            (millis, written)
        );
    }
}

#[test]
fn other_texts_are_no_cpu_time() {
    for text in [
        "", "m", ".", "1.", ".5x", "1.0001", "-1", "1e3", "0.5m", "5000000", "all",
    ] {
        assert!(text.parse::<Cpus>().is_err(), "{text:?}");
    }
    assert!(serde_json::from_str::<Cpus>("0.0001").is_err());
    assert!(serde_json::from_str::<Cpus>("1e300").is_err());
}

#[test]
fn status_ranges_are_one_code_or_two() {
    let range: StatusRange = "200-399".parse().unwrap();
    assert_eq!(
        (range.from, range.to, range.to_string().as_str()),
        (200, 399, "200-399")
    );
    assert!(range.contains(200) && range.contains(399) && !range.contains(400));
    let one: StatusRange = serde_json::from_str("204").unwrap();
    assert_eq!(
        (one.from, one.to, one.to_string().as_str()),
        (204, 204, "204")
    );
}

#[test]
fn other_texts_are_no_status_ranges() {
    for text in [
        "",
        "2xx",
        "99",
        "600",
        "399-200",
        "200-",
        "-200",
        "200-300-400",
        "0200",
        "+20",
    ] {
        assert!(text.parse::<StatusRange>().is_err(), "{text:?}");
    }
}

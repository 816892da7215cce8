//! How long ago something was, and how long it took, in as few characters as say it.

use std::time::Duration;

use jiff::Timestamp;

/// How long ago that was.
pub(super) fn age(now: Timestamp, then: Timestamp) -> String {
    let seconds = now.duration_since(then).as_secs().max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{minutes}m"),
        7_200..172_800 => format!("{hours}h"),
        _ => format!("{days}d"),
    }
}

/// How long it took.
pub(super) fn took(from: Timestamp, to: Timestamp) -> String {
    let span = to.duration_since(from);
    let span = Duration::try_from(span).unwrap_or_default();
    match span.as_secs() {
        0 => format!("{}ms", span.as_millis()),
        1..120 => format!("{:.1}s", span.as_secs_f64()),
        seconds => format!("{}m{}s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan as _;

    use super::*;

    #[test]
    fn a_span_is_said_in_the_unit_that_fits() {
        let then = Timestamp::UNIX_EPOCH;
        let at = |seconds: i64| then + seconds.seconds();
        let ages = [5, 300, 10_800, 864_000].map(|seconds| age(at(seconds), then));
        assert_eq!(ages, ["5s", "5m", "3h", "10d"]);
        assert_eq!(age(then, at(5)), "0s", "a clock that was set back");
        assert_eq!(took(then, then + 120.milliseconds()), "120ms");
        assert_eq!(took(then, then + 2_500.milliseconds()), "2.5s");
        assert_eq!(took(then, at(150)), "2m30s");
    }
}

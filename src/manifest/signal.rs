//! Linux's signals by name.

/// The signals without the real-time ones, by their names without `SIG`, from number 1
/// on, as on x86-64 and arm64 (`signal(7)`).
const SIGNALS: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];
/// The first real-time signal that a program may use; the C library keeps two.
const RTMIN: i64 = 34;
/// The last one.
const RTMAX: i64 = 64;

/// The number of a signal: `SIGTERM`, `TERM`, `SIGRTMIN+3`, `RTMAX-1`.
pub fn signal_number(signal: &str) -> Option<i64> {
    let name = signal.strip_prefix("SIG").unwrap_or(signal);
    if let Some(more) = name.strip_prefix("RTMIN") {
        return real_time(RTMIN, more, '+', 1);
    }
    if let Some(less) = name.strip_prefix("RTMAX") {
        return real_time(RTMAX, less, '-', -1);
    }
    let at = SIGNALS.iter().position(|known| *known == name)?;
    i64::try_from(at + 1).ok()
}

fn real_time(from: i64, steps: &str, sign: char, direction: i64) -> Option<i64> {
    if steps.is_empty() {
        return Some(from);
    }
    let digits = steps.strip_prefix(sign)?;
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    let steps: i64 = plain.then(|| digits.parse().ok())??;
    let number = from + direction * i64::from(u8::try_from(steps).ok()?);
    (RTMIN..=RTMAX).contains(&number).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::signal_number;

    #[test]
    fn every_spelling_has_a_number() {
        for (signal, number) in [
            ("SIGHUP", 1),
            ("KILL", 9),
            ("SIGTERM", 15),
            ("SYS", 31),
            ("RTMIN", 34),
            ("SIGRTMIN+3", 37),
            ("RTMAX", 64),
            ("RTMAX-30", 34),
        ] {
            assert_eq!(signal_number(signal), Some(number), "{signal}");
        }
    }

    #[test]
    fn what_is_no_signal_has_none() {
        for signal in [
            "",
            "SIG",
            "15",
            "term",
            "SIGSIGTERM",
            "RTMIN-1",
            "RTMIN+31",
            "RTMIN+",
            "RTMAX+1",
            "RTMAX-31",
            "RTMIN++1",
            "RTMIN+999999999999999999999",
        ] {
            assert_eq!(signal_number(signal), None, "{signal}");
        }
    }
}

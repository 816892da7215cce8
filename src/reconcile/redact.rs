//! Takes secrets out of what a container printed, before it is kept.
//!
//! Nobody can know every secret that a program prints. Taken out is what is known (the
//! values of environment variables whose names speak of secrets) and what looks like
//! one: `password=…`, `Authorization: …`, `Bearer …`, `scheme://user:password@host`.

/// What stands in a secret's place.
const PLACE: &str = "[redacted]";
/// Shorter values are no secrets, and taking them out would leave nothing to read.
const SHORTEST: usize = 4;
/// Parts of names that speak of secrets, in lower case.
const SPEAKING: [&str; 10] = [
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "credential",
    "apikey",
    "privatekey",
    "accesskey",
];
/// Names of headers whose whole value is a secret, in lower case.
const HEADERS: [&str; 3] = ["authorization", "cookie", "setcookie"];
/// The word before a token.
const SCHEME: &str = "bearer";

/// What may not be shown.
#[derive(Debug, Default)]
pub(super) struct Redaction {
    /// Longest first, so that none is a part of one that is still to come.
    values: Vec<String>,
}

impl Redaction {
    /// Knows the values of these environment variables that are secret by their names.
    pub fn of<'e>(env: impl IntoIterator<Item = (&'e String, &'e String)>) -> Self {
        let secret = env.into_iter().filter(|(name, _)| speaks_of_secrets(name));
        // Logs come line by line, and so does a key of several lines.
        let lines = secret.flat_map(|(_, value)| value.lines().map(str::trim));
        let long = lines.filter(|line| line.len() >= SHORTEST);
        let mut values: Vec<String> = long.map(str::to_owned).collect();
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        values.dedup();
        Self { values }
    }

    /// The line without what may not be shown.
    pub fn apply(&self, line: &str) -> String {
        let mut line = line.to_owned();
        for value in &self.values {
            line = line.replace(value, PLACE);
        }
        without_assignments(&without_logins(&line))
    }
}

/// Whether a name is one of a secret: `DB_PASSWORD`, `api-key`.
fn speaks_of_secrets(name: &str) -> bool {
    let last = name.rsplit(|c: char| !c.is_ascii_alphanumeric()).next();
    let last = last.unwrap_or(name).to_ascii_lowercase();
    let name = plain(name);
    matches!(last.as_str(), "key" | "pass" | "auth")
        || SPEAKING.iter().any(|part| name.contains(part))
}

/// A name in lower case, without what joins its words.
fn plain(name: &str) -> String {
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    letters.map(|letter| letter.to_ascii_lowercase()).collect()
}

/// Takes `user:password` out of each `scheme://user:password@host`.
fn without_logins(line: &str) -> String {
    let mut result = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find("://") {
        let (head, tail) = rest.split_at(at + 3);
        result.push_str(head);
        let end = tail.find(is_border).unwrap_or(tail.len());
        // A password may hold a slash where nobody wrote it as %2F.
        rest = match tail[..end].rfind('@') {
            Some(login) => {
                result.push_str(PLACE);
                &tail[login..]
            }
            None => tail,
        };
    }
    result.push_str(rest);
    result
}

/// Takes out what is assigned to a name that speaks of secrets, and what follows
/// `Bearer`.
fn without_assignments(line: &str) -> String {
    let mut result = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(start) = rest.find(is_of_name) {
        let (head, tail) = rest.split_at(start);
        result.push_str(head);
        let (name, after) = tail.split_at(tail.find(|c| !is_of_name(c)).unwrap_or(tail.len()));
        result.push_str(name);
        rest = match secret_after(name, after) {
            Some((joint, secret)) => {
                result.push_str(&after[..joint]);
                result.push_str(PLACE);
                &after[joint + secret..]
            }
            None => after,
        };
    }
    result.push_str(rest);
    result
}

/// How long the joint after a name is, and then the secret, if it is one.
fn secret_after(name: &str, after: &str) -> Option<(usize, usize)> {
    let assigns = |c: char| c == '=' || c == ':';
    let is_joint = |c: char| assigns(c) || c == ' ' || is_quote(c) || c == '\\';
    let joint = after.find(|c| !is_joint(c)).unwrap_or(after.len());
    let value = &after[joint..];
    let until = |end: Option<usize>| Some((joint, end.unwrap_or(value.len())));
    let assigned = after[..joint].contains(assigns);
    let name = plain(name);
    if value.is_empty() || value.starts_with(PLACE) {
        None
    } else if assigned && HEADERS.contains(&name.as_str()) {
        until(value.find(is_quote))
    } else if assigned && speaks_of_secrets(&name) {
        // What is in quotes may have spaces in it.
        match after[..joint].chars().next_back().filter(|c| is_quote(*c)) {
            Some(quote) => until(value.find(quote)),
            None => until(value.find(is_border)),
        }
    } else if !assigned && joint > 0 && name == SCHEME {
        until(value.find(is_border))
    } else {
        None
    }
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

fn is_quote(c: char) -> bool {
    c == '"' || c == '\''
}

/// Whether a value without quotes ends here.
fn is_border(c: char) -> bool {
    c.is_whitespace() || is_quote(c) || matches!(c, ',' | ';' | '&' | ')' | '}' | ']' | '<' | '>')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(line: &str) -> String {
        Redaction::default().apply(line)
    }

    #[test]
    fn values_of_secret_variables_are_taken_out_wherever_they_stand() {
        let env = [
            ("DB_PASSWORD", "hunter2"),
            ("DB_PASSWORD_OLD", "hunter2-old"),
            ("api-key", "k-123"),
            ("SIGNING_SECRET", "x"),
            ("SMTP_PASS", "open-sesame"),
            ("TLS_KEY", "-----BEGIN-----\nMIIEvQ\n-----END-----"),
            ("PORT", "8080"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let redaction = Redaction::of(env.iter().map(|(name, value)| (name, value)));
        assert_eq!(
            redaction.apply("login(hunter2-old) hunter2 k-123 x on 8080"),
            "login([redacted]) [redacted] [redacted] x on 8080"
        );
        assert_eq!(
            redaction.apply("auth open-sesame: MIIEvQ"),
            "auth [redacted]: [redacted]"
        );
    }

    #[test]
    fn what_looks_like_a_secret_is_taken_out() {
        for (line, shown) in [
            ("password=hunter2", "password=[redacted]"),
            ("PGPASSWORD=a b", "PGPASSWORD=[redacted] b"),
            ("db.password: 'a b', x=1", "db.password: '[redacted]', x=1"),
            (
                r#"{"token":"ab.cd","user":"me"}"#,
                r#"{"token":"[redacted]","user":"me"}"#,
            ),
            (r#"{\"secret\":\"ab\"}"#, r#"{\"secret\":\"[redacted]"}"#),
            ("?api_key=1234&x=2", "?api_key=[redacted]&x=2"),
            (
                "Authorization: Basic dTpw and more",
                "Authorization: [redacted]",
            ),
            ("sent Bearer abc.def to it", "sent Bearer [redacted] to it"),
            (
                "postgres://blog:hunter2@db:5432/blog?x=1",
                "postgres://[redacted]@db:5432/blog?x=1",
            ),
            (
                "amqp://a:b/c@q and http://u:p@h",
                "amqp://[redacted]@q and http://[redacted]@h",
            ),
        ] {
            assert_eq!(apply(line), shown);
        }
    }

    #[test]
    fn what_is_no_secret_stays() {
        for line in [
            "",
            "listening on http://0.0.0.0:8080/a?b=c, mail to a@b.test",
            "basic auth is off; the token bucket is full",
            "password must not be empty",
            "panic: secret",
            "größe=1 keyboard: de monkey=2",
        ] {
            assert_eq!(apply(line), line);
        }
    }
}

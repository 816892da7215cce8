//! What a proxy must change in the headers that pass through it (RFC 9110,
//! section 7.6), and what it tells the backend about the client. Pure.

use std::net::IpAddr;

use http::header::{
    CONNECTION, COOKIE, Entry, FORWARDED, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
    TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
/// The name under which the proxy appears in `Via`.
const PSEUDONYM: &str = "podherd";

/// What a request is for: its one host, as it was sent. `None` when it has
/// none, more than one, or a malformed one.
pub(super) fn authority(parts: &Parts) -> Option<Authority> {
    let sent = if let Some(authority) = parts.uri.authority() {
        // The absolute form and HTTP/2 name the host before the header does.
        authority.clone()
    } else {
        let mut hosts = parts.headers.get_all(HOST).iter();
        let host = hosts.next()?;
        if hosts.next().is_some() {
            return None;
        }
        Authority::try_from(host.as_bytes()).ok()?
    };
    (!sent.as_str().contains('@')).then_some(sent)
}

/// The protocol that a request asks to switch to. HTTP/2 is never switched to:
/// a tunnel of it would carry requests past the routing table.
pub(super) fn wanted_upgrade(parts: &Parts) -> Option<HeaderValue> {
    let asked = parts.version == Version::HTTP_11
        && parts.method != Method::CONNECT
        && tokens(&parts.headers, &CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade"));
    let mut protocols = parts.headers.get_all(UPGRADE).iter();
    let protocol = protocols.next().filter(|_| asked)?;
    let http2 =
        tokens(&parts.headers, &UPGRADE).any(|token| token.to_ascii_lowercase().starts_with("h2"));
    (protocols.next().is_none() && !http2).then(|| protocol.clone())
}

/// Takes out what concerns one connection only.
pub(super) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let listed: Vec<HeaderName> = tokens(headers, &CONNECTION)
        .filter_map(|token| token.parse().ok())
        .collect();
    for name in &listed {
        headers.remove(name);
    }
    for name in [
        CONNECTION,
        KEEP_ALIVE,
        PROXY_CONNECTION,
        PROXY_AUTHENTICATE,
        PROXY_AUTHORIZATION,
        TE,
        TRANSFER_ENCODING,
        UPGRADE,
        HTTP2_SETTINGS,
    ] {
        headers.remove(name);
    }
}

/// Makes a client's request one of the proxy's: hop-by-hop headers out, the
/// client's address, host and scheme in. What a client says about the last two is
/// replaced, since nothing tells a trusted proxy in front from anybody else.
pub(super) fn to_backend(
    parts: &mut Parts,
    authority: &Authority,
    client: IpAddr,
    upgrade: Option<&HeaderValue>,
) {
    let trailers = tokens(&parts.headers, &TE).any(|token| token.eq_ignore_ascii_case("trailers"));
    let via = format!("{:?} {PSEUDONYM}", parts.version).replace("HTTP/", "");
    let headers = &mut parts.headers;
    strip_hop_by_hop(headers);
    headers.remove(FORWARDED);
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    if let Some(protocol) = upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, protocol.clone());
    }
    append(headers, X_FORWARDED_FOR, &client.to_canonical().to_string());
    append(headers, VIA, &via);
    headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static("http"));
    if let Ok(host) = HeaderValue::from_str(authority.as_str()) {
        headers.insert(X_FORWARDED_HOST, host.clone());
        headers.insert(HOST, host);
    }
}

/// Shapes the request for an HTTP/1.1 backend.
pub(super) fn for_http1(parts: &mut Parts, authority: &Authority) {
    join_cookies(&mut parts.headers);
    if let Ok(host) = HeaderValue::from_str(authority.as_str()) {
        parts.headers.insert(HOST, host);
    }
    let target = parts.uri.path_and_query().cloned();
    parts.uri = target.map_or_else(|| Uri::from_static("/"), Uri::from);
    parts.version = Version::HTTP_11;
    if trailers_wanted(&parts.headers) {
        // TE concerns the connection, so it must be listed.
        append(&mut parts.headers, CONNECTION, "te");
    }
}

/// Shapes the request for an HTTP/2 backend.
pub(super) fn for_http2(parts: &mut Parts, authority: &Authority) {
    for name in [CONNECTION, UPGRADE, HOST] {
        parts.headers.remove(name);
    }
    let target = parts
        .uri
        .path_and_query()
        .map_or("/", |target| target.as_str());
    let uri = Uri::builder()
        .scheme("http")
        .authority(authority.clone())
        .path_and_query(target)
        .build();
    if let Ok(uri) = uri {
        parts.uri = uri;
    }
    parts.version = Version::HTTP_2;
}

fn trailers_wanted(headers: &HeaderMap) -> bool {
    headers.contains_key(TE) && !tokens(headers, &CONNECTION).any(|token| token == "te")
}

/// HTTP/2 may send a cookie a header; HTTP/1.1 knows one header only (RFC 9113,
/// section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(COOKIE).iter().nth(1).is_none() {
        return;
    }
    let cookies: Vec<&[u8]> = headers
        .get_all(COOKIE)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    if let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..])) {
        headers.insert(COOKIE, joined);
    }
}

/// Adds to the end of a list, which stays one header.
fn append(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    let mut list: Vec<u8> = Vec::new();
    for sent in headers.get_all(&name) {
        list.extend_from_slice(sent.as_bytes());
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(value.as_bytes());
    let Ok(joined) = HeaderValue::from_bytes(&list) else {
        return;
    };
    match headers.entry(name) {
        Entry::Occupied(mut entry) => {
            entry.insert(joined);
        }
        Entry::Vacant(entry) => {
            entry.insert(joined);
        }
    }
}

fn tokens<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h str> {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn parts(headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::get("/path?q=1");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn passed(headers: &[(&str, &str)]) -> Parts {
        let mut parts = parts(headers);
        let authority = authority(&parts).unwrap();
        let upgrade = wanted_upgrade(&parts);
        let client = IpAddr::from([192, 0, 2, 7]);
        to_backend(&mut parts, &authority, client, upgrade.as_ref());
        for_http1(&mut parts, &authority);
        parts
    }

    fn value<'p>(parts: &'p Parts, name: &str) -> Option<&'p str> {
        parts.headers.get(name).map(|value| value.to_str().unwrap())
    }

    #[test]
    fn what_concerns_one_connection_stays_there() {
        let parts = passed(&[
            ("host", "a.test"),
            ("connection", "keep-alive, X-Mine"),
            ("connection", "x-other"),
            ("x-mine", "1"),
            ("x-other", "1"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("proxy-authorization", "Basic eA=="),
            ("te", "gzip"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("http2-settings", "x"),
            ("x-kept", "1"),
        ]);
        let mut names: Vec<_> = parts.headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        let expected = [
            "host",
            "via",
            "x-forwarded-for",
            "x-forwarded-host",
            "x-forwarded-proto",
            "x-kept",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn the_clients_address_is_appended_and_its_other_claims_are_replaced() {
        let parts = passed(&[
            ("host", "a.test:8080"),
            ("x-forwarded-for", "198.51.100.1"),
            ("x-forwarded-for", "198.51.100.2"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "evil.test"),
            ("forwarded", "for=198.51.100.9"),
            ("via", "1.1 front"),
        ]);
        let list = "198.51.100.1, 198.51.100.2, 192.0.2.7";
        assert_eq!(value(&parts, "x-forwarded-for"), Some(list));
        assert_eq!(value(&parts, "x-forwarded-proto"), Some("http"));
        assert_eq!(value(&parts, "x-forwarded-host"), Some("a.test:8080"));
        assert_eq!(value(&parts, "host"), Some("a.test:8080"));
        assert_eq!(value(&parts, "forwarded"), None);
        assert_eq!(value(&parts, "via"), Some("1.1 front, 1.1 podherd"));
    }

    #[test]
    fn a_client_cannot_strip_what_the_proxy_adds() {
        let parts = passed(&[
            ("host", "a.test"),
            ("connection", "x-forwarded-for, host, x-forwarded-proto"),
        ]);
        assert_eq!(value(&parts, "x-forwarded-for"), Some("192.0.2.7"));
        assert_eq!(value(&parts, "host"), Some("a.test"));
    }

    #[test]
    fn an_upgrade_is_passed_on_unless_it_is_to_http2() {
        let websocket = [
            ("host", "a.test"),
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
        ];
        let parts = passed(&websocket);
        assert_eq!(value(&parts, "upgrade"), Some("websocket"));
        assert_eq!(value(&parts, "connection"), Some("upgrade"));
        for protocols in ["h2c", "websocket, h2c", "H2C"] {
            let sent = parts_with_upgrade(protocols);
            assert!(wanted_upgrade(&sent).is_none(), "{protocols}");
        }
    }

    fn parts_with_upgrade(protocols: &str) -> Parts {
        parts(&[("connection", "upgrade"), ("upgrade", protocols)])
    }

    #[test]
    fn trailers_are_asked_for_on_every_hop_that_the_client_asked_them_on() {
        let mut parts = passed(&[("host", "a.test"), ("te", "trailers, deflate")]);
        assert_eq!(value(&parts, "te"), Some("trailers"));
        assert_eq!(value(&parts, "connection"), Some("te"));
        for_http2(&mut parts, &Authority::from_static("a.test"));
        assert_eq!(value(&parts, "te"), Some("trailers"));
        assert_eq!(value(&parts, "connection"), None);
        assert_eq!(parts.uri, "http://a.test/path?q=1");
    }

    #[test]
    fn cookies_of_http2_become_one_header() {
        let parts = passed(&[("host", "a.test"), ("cookie", "a=1"), ("cookie", "b=2")]);
        assert_eq!(value(&parts, "cookie"), Some("a=1; b=2"));
        assert_eq!(parts.headers.get_all("cookie").iter().count(), 1);
    }

    #[test]
    fn a_request_has_exactly_one_well_formed_host() {
        assert!(authority(&parts(&[])).is_none());
        assert!(authority(&parts(&[("host", "a.test"), ("host", "b.test")])).is_none());
        assert!(authority(&parts(&[("host", "user@a.test")])).is_none());
        assert!(authority(&parts(&[("host", "a b")])).is_none());
        let six = authority(&parts(&[("host", "[::1]:80")])).unwrap();
        assert_eq!(six.host(), "[::1]");
    }
}

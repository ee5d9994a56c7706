//! The requests and their expected statuses.

use super::raw::{get, request};

/// Stores requests that are sent one after the other, and the status of each.
pub(super) struct Row {
    pub(super) input: String,
    pub(super) requests: Vec<Vec<u8>>,
    pub(super) expected: Vec<u16>,
}

/// Marks a value that a response must not contain.
pub(super) const SECRET: &str = "secret-of-the-client";

/// The statuses of two requests with the same key, and with different keys.
const SAME: [u16; 2] = [200, 429];
const DIFFERENT: [u16; 2] = [200, 200];

fn row(
    input: impl Into<String>,
    requests: impl IntoIterator<Item = Vec<u8>>,
    expected: &[u16],
) -> Row {
    let row = Row {
        input: input.into(),
        requests: requests.into_iter().collect(),
        expected: expected.to_vec(),
    };
    assert_eq!(row.requests.len(), row.expected.len(), "{}", row.input);
    row
}

fn api_key(value: &[u8]) -> Vec<u8> {
    request("GET", "/header", &[("x-api-key", value)])
}

pub(super) fn all() -> Vec<Row> {
    [
        keys(),
        lengths(),
        parts(),
        targets(),
        forwarded_for(),
        forwarded(),
        addresses(),
        costs(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn keys() -> Vec<Row> {
    let twice: [(&str, &[u8]); 2] = [("x-api-key", b"a"), ("X-Api-Key", b"a")];
    let secret = |bytes: &[u8]| [SECRET.as_bytes(), bytes].concat();
    vec![
        row("no key", [get("/header", &[])], &[400]),
        row(
            "no key, the peer instead",
            [get("/or", &[]), get("/or", &[])],
            &SAME,
        ),
        row(
            "no key, exempt",
            [get("/exempt", &[]), get("/exempt", &[])],
            &DIFFERENT,
        ),
        row("an empty value", [api_key(b"")], &[400]),
        row("a blank value", [api_key(b" \t ")], &[400]),
        row(
            "an empty value is not the peer",
            [
                request("GET", "/or", &[("x-api-key", b"")]),
                get("/or", &[]),
            ],
            &SAME,
        ),
        row(
            "a value in two lines",
            [request("GET", "/header", &twice)],
            &[400],
        ),
        row(
            "two values in one line are one value",
            [api_key(b"a, b"), api_key(b"a")],
            &DIFFERENT,
        ),
        row(
            "blanks around a value",
            [api_key(b"  a\t"), api_key(b"a")],
            &SAME,
        ),
        row(
            "the name of a header in capitals",
            [
                request("GET", "/header", &[("X-API-KEY", b"a")]),
                api_key(b"a"),
            ],
            &SAME,
        ),
        row(
            "the value of a header in capitals",
            [api_key(b"a"), api_key(b"A")],
            &DIFFERENT,
        ),
        row(
            "invalid UTF-8",
            [
                api_key(&secret(b"\xff\xfe")),
                api_key(&secret(b"\xff\xfe")),
                api_key(&secret(b"\xff\xff")),
            ],
            &[200, 429, 200],
        ),
        row(
            "UTF-8",
            [api_key("ключ".as_bytes()), api_key("ключ".as_bytes())],
            &SAME,
        ),
        row("NUL", [api_key(&secret(b"\0"))], &[400]),
        row("a control byte", [api_key(&secret(b"\x01"))], &[400]),
        row("DEL", [api_key(&secret(b"\x7f"))], &[400]),
        row(
            "a tab inside",
            [api_key(b"a\tb"), api_key(b"a b")],
            &DIFFERENT,
        ),
        row(
            "CR and LF make another header",
            [
                api_key(&secret(b"\r\nx-other: b")),
                api_key(SECRET.as_bytes()),
            ],
            &SAME,
        ),
        row("CR alone", [api_key(&secret(b"\rb"))], &[400]),
        row("a folded line", [api_key(&secret(b"\r\n b"))], &[400]),
        row(
            "Lua and RESP",
            [
                api_key(b"'] = 1; redis.call('FLUSHALL')"),
                api_key(b"$3\\r\\nfoo"),
            ],
            &DIFFERENT,
        ),
        row(
            "braces",
            [
                api_key(b"{}"),
                api_key(b"{"),
                api_key(b"}"),
                api_key(b"}{"),
                api_key(b"{}"),
            ],
            &[200, 200, 200, 200, 429],
        ),
        row(
            "escaped braces",
            [api_key(b"{"), api_key(b"%7b"), api_key(b"%7B")],
            &[200, 200, 200],
        ),
        row(
            "a colon, a comma, a per cent",
            [api_key(b":"), api_key(b","), api_key(b"%"), api_key(b"%%")],
            &[200; 4],
        ),
        row(
            "the text of a number is not the number",
            [api_key(b"7"), api_key(b"#7")],
            &DIFFERENT,
        ),
    ]
}

fn lengths() -> Vec<Row> {
    let long =
        |bytes: usize, last: &str| api_key(format!("{}{last}", "x".repeat(bytes - 1)).as_bytes());
    let rows = [63, 64, 65, 8 << 10, 64 << 10].map(|bytes| {
        let requests = [long(bytes, "a"), long(bytes, "a"), long(bytes, "b")];
        row(format!("{bytes} bytes"), requests, &[200, 429, 200])
    });
    // hyper accepts no head above 400 KB.
    let mut rows = Vec::from(rows);
    rows.push(row("1 MiB", [long(1 << 20, "a")], &[431]));
    rows
}

fn parts() -> Vec<Row> {
    let pair = |a: &str, b: &str| get("/pair", &[("a", a), ("b", b)]);
    let long = "x".repeat(70);
    vec![
        row(
            "a delimiter in a part",
            [pair("a", "b:c"), pair("a:b", "c")],
            &DIFFERENT,
        ),
        row(
            "a comma in a part",
            [pair("a", "b,c"), pair("a,b", "c")],
            &DIFFERENT,
        ),
        row(
            "parentheses in a part",
            [pair("(a", "b)"), pair("a", "b"), pair("(a,b)", "c")],
            &[200; 3],
        ),
        row(
            "letters that move to the other part",
            [pair("ab", "c"), pair("a", "bc"), pair("ab", "c")],
            &[200, 200, 429],
        ),
        row(
            "swapped parts",
            [pair("a", "b"), pair("b", "a")],
            &DIFFERENT,
        ),
        row(
            "a long part",
            [pair(&long, "a"), pair(&long, "b"), pair(&long, "a")],
            &[200, 200, 429],
        ),
        row("one part of two", [get("/pair", &[("a", "a")])], &[400]),
        row("an empty part", [pair("a", "")], &[400]),
    ]
}

fn targets() -> Vec<Row> {
    let to = |target: &str| get(target, &[]);
    let path = |other: &str| [to("/path/a"), to(other)];
    let method = |method: &str| request(method, "/method", &[]);
    let mut rows: Vec<Row> = [
        "/path/%61",
        "/path//a",
        "/path/./a",
        "/path/a/",
        "/path/A",
        "/path/a;p",
        "/path/a%2f",
        "/path/x/../a",
    ]
    .map(|other| row(format!("{other} is another path"), path(other), &DIFFERENT))
    .into();
    rows.extend([
        row(
            "a query is not part of the path",
            path("/path/a?b=c"),
            &SAME,
        ),
        row(
            "an absolute target",
            path("http://other.example/path/a"),
            &SAME,
        ),
        row(
            "an absolute target without a path",
            [to("http://other.example")],
            &[404],
        ),
        row(
            "HEAD of a path",
            [to("/path/a"), request("HEAD", "/path/a", &[])],
            &SAME,
        ),
        row("a fragment", [to("/path/a#b"), to("/path/a")], &SAME),
        row(
            "a path that is not ASCII",
            [request("GET", "/path/\u{e9}", &[]), to("/path/%C3%A9")],
            &DIFFERENT,
        ),
        row(
            "one route, other parameters",
            [to("/matched/a"), to("/matched/b")],
            &SAME,
        ),
        row(
            "one route, escaped",
            [to("/matched/a"), to("/matched/%2e%2e")],
            &SAME,
        ),
        row(
            "one route, HEAD",
            [to("/matched/a"), request("HEAD", "/matched/b", &[])],
            &SAME,
        ),
        row(
            "one route, absolute",
            [to("/matched/a"), to("http://other.example/matched/b")],
            &SAME,
        ),
        row(
            "one route, an overridden method",
            [
                to("/matched/a"),
                get("/matched/b", &[("x-http-method-override", "PUT")]),
            ],
            &SAME,
        ),
        row("no route", [to("/nowhere")], &[404]),
        row("no route, by `//`", [to("//matched/a")], &[404]),
        row("HEAD is GET", [method("GET"), method("HEAD")], &SAME),
        row(
            "unknown methods share a key",
            [method("BREW"), method("PROPFIND")],
            &SAME,
        ),
        row(
            "a lower-case method is unknown",
            [method("get"), method("BREW"), method("GET")],
            &[200, 429, 200],
        ),
        row(
            "a header does not change the method",
            [
                method("GET"),
                get("/method", &[("x-http-method-override", "PUT")]),
            ],
            &SAME,
        ),
    ]);
    rows
}

fn forwarded_for() -> Vec<Row> {
    let through = |lines: &[&str]| {
        let lines: Vec<_> = lines
            .iter()
            .map(|line| ("x-forwarded-for", *line))
            .collect();
        get("/forwarded-for", &lines)
    };
    let client = || through(&["203.0.113.7"]);
    let proxy = || through(&[]);
    let many = |item: &str| vec![item; 10_000].join(",");
    let untrusted = |line: &str| get("/untrusted", &[("x-forwarded-for", line)]);
    let of_client = [
        "198.51.100.1, 203.0.113.7",
        "junk, 203.0.113.7",
        "203.0.113.7, 10.0.0.2",
        "203.0.113.7:4711",
        "203.0.113.7,",
        ",,203.0.113.7,,",
        "::ffff:203.0.113.7",
        "[::ffff:203.0.113.7]:80",
        "203.0.113.7, ::ffff:10.0.0.2",
    ];
    let of_proxy = [
        "",
        ",",
        "unknown",
        "_hidden",
        "203.0.113.7, unknown",
        "203.0.113.7, _hidden",
        "203.0.113.7 10.0.0.9",
        "\"203.0.113.7\"",
        "[2001:db8::1",
        "203.0.113.7.1",
        "for=203.0.113.7",
    ];
    let mut rows = Vec::new();
    rows.extend(of_client.map(|line| {
        row(
            format!("X-Forwarded-For: {line}"),
            [client(), through(&[line])],
            &SAME,
        )
    }));
    rows.extend(of_proxy.map(|line| {
        row(
            format!("X-Forwarded-For: {line}"),
            [proxy(), through(&[line])],
            &SAME,
        )
    }));
    rows.extend([
        row(
            "a chain over several lines",
            [
                client(),
                through(&["203.0.113.7", "10.0.0.2"]),
                through(&["198.51.100.1", "203.0.113.7"]),
            ],
            &[200, 429, 429],
        ),
        row(
            "an invented left end",
            [
                client(),
                through(&["1.1.1.1, 203.0.113.7"]),
                through(&["2.2.2.2, 203.0.113.7"]),
            ],
            &[200, 429, 429],
        ),
        row(
            "10 000 clients",
            [
                client(),
                through(&[&format!("{},203.0.113.7", many("198.51.100.1"))]),
            ],
            &SAME,
        ),
        row(
            "10 000 proxies",
            [
                through(&["10.0.0.9"]),
                through(&[&format!("203.0.113.7,{}", many("10.0.0.9"))]),
            ],
            &SAME,
        ),
        row(
            "invalid UTF-8 in the list",
            [
                proxy(),
                request(
                    "GET",
                    "/forwarded-for",
                    &[("x-forwarded-for", b"203.0.113.7, \xff")],
                ),
            ],
            &SAME,
        ),
        row(
            "another header",
            [
                proxy(),
                get(
                    "/forwarded-for",
                    &[
                        ("forwarded", "for=203.0.113.7"),
                        ("x-real-ip", "203.0.113.8"),
                    ],
                ),
            ],
            &SAME,
        ),
        row(
            "a peer that is not trusted",
            [untrusted("203.0.113.7"), untrusted("203.0.113.8")],
            &SAME,
        ),
    ]);
    rows
}

fn forwarded() -> Vec<Row> {
    let through = |line: &str| get("/forwarded", &[("forwarded", line)]);
    let client = || through("for=203.0.113.7");
    let proxy = || get("/forwarded", &[]);
    let of_client = [
        "For=\"203.0.113.7\"",
        "for=\"203.0.113.7:80\"",
        "for=\"[::ffff:203.0.113.7]:80\"",
        "proto=https;FOR=203.0.113.7;by=10.0.0.1",
        "for=198.51.100.1, for=203.0.113.7",
        "for=203.0.113.7, for=10.0.0.2",
        "for=\"\\2\\0\\3.0.113.7\"",
        "host=\"a,b;for=1.1.1.1\";for=203.0.113.7",
        ";;for=203.0.113.7;;,,",
    ];
    let of_proxy = [
        "for=unknown",
        "for=_hidden",
        "for=203.0.113.7, for=_hidden",
        "for=203.0.113.7;for=203.0.113.7",
        "for=\"203.0.113.7",
        "for=203.0.113.7;a=\", for=203.0.113.8",
        "for=\"203.0.113.7\"x",
        "for=203.0.113.7, by=10.0.0.2",
        "for=203.0.113.7, by=10.0.0.2;",
        "for",
        "203.0.113.7",
        "for=[2001:db8::1",
    ];
    let mut rows = Vec::new();
    rows.extend(of_client.map(|line| {
        row(
            format!("Forwarded: {line}"),
            [client(), through(line)],
            &SAME,
        )
    }));
    rows.extend(of_proxy.map(|line| {
        row(
            format!("Forwarded: {line}"),
            [proxy(), through(line)],
            &SAME,
        )
    }));
    rows.push(row(
        "only the header that is configured",
        [
            proxy(),
            get("/forwarded", &[("x-forwarded-for", "203.0.113.7")]),
        ],
        &SAME,
    ));
    rows
}

fn addresses() -> Vec<Row> {
    let from = |address: &str| get("/forwarded-for", &[("x-forwarded-for", address)]);
    let rows: [(&str, &str, &[u16]); 14] = [
        ("2001:db8::1", "2001:DB8:0:0:0:0:0:1", &SAME),
        ("2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff", &SAME),
        ("2001:db8::1", "2001:db8:0:1::1", &DIFFERENT),
        ("2001:db8::1", "2001:db8::2.0.2.1", &SAME),
        ("::ffff:1.2.3.4", "1.2.3.4", &SAME),
        ("::ffff:102:304", "1.2.3.4", &SAME),
        ("::ffff:1.2.3.4", "::ffff:1.2.3.5", &DIFFERENT),
        ("fe80::1%eth0", "fe80::1%eth1", &SAME),
        // These are not IPv4-mapped: each counts as IPv6, by its first 64 bits.
        ("64:ff9b::1.2.3.4", "1.2.3.4", &DIFFERENT),
        ("::1.2.3.4", "1.2.3.4", &DIFFERENT),
        ("2002:102:304::1", "2002:102:304::2", &SAME),
        ("2001:0:102:304::1", "2001:0:102:304::2", &SAME),
        ("1.2.3.4", "01.2.3.4", &DIFFERENT),
        ("1.2.3.4", "0x1020304", &DIFFERENT),
    ];
    rows.map(|(one, other, expected)| {
        row(
            format!("{one} and {other}"),
            [from(one), from(other)],
            expected,
        )
    })
    .into()
}

fn costs() -> Vec<Row> {
    let of = |cost: &str| get("/cost", &[("x-cost", cost)]);
    vec![
        row(
            "a cost of 0 spends nothing",
            [of("5"), of("0"), of("0"), of("1")],
            &[200, 200, 200, 429],
        ),
        row("the whole burst at once", [of("5"), of("1")], &SAME),
        row("a cost above the burst", [of("6"), of("5")], &[413, 200]),
        row("the largest cost", [of("18446744073709551615")], &[413]),
        row(
            "invalid costs",
            [
                of("18446744073709551616"),
                of("-1"),
                of("1e3"),
                of(""),
                of("nan"),
                of("1"),
            ],
            &[200, 200, 200, 200, 200, 429],
        ),
    ]
}

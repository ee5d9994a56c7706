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

/// Reads lines of the form `input | 200 429 | request | request`.
fn table(lines: &str, request: impl Fn(&str) -> Vec<u8>) -> Vec<Row> {
    let read = |line: &str| {
        let mut cells = line.trim().split(" | ");
        let input = cells.next().unwrap_or_default();
        let statuses = cells.next().unwrap_or_default().split(' ');
        let expected: Vec<u16> = statuses.map(|status| status.parse().unwrap()).collect();
        row(input, cells.map(&request), &expected)
    };
    lines.trim().lines().map(read).collect()
}

fn keys() -> Vec<Row> {
    let twice: [(&str, &[u8]); 2] = [("x-api-key", b"a"), ("X-Api-Key", b"a")];
    let capitals = request("GET", "/header", &[("X-API-KEY", b"a")]);
    let secret = |bytes: &[u8]| api_key(&[SECRET.as_bytes(), bytes].concat());
    let nothing = "
        no key | 400 | /header
        no key, the peer instead | 200 429 | /or | /or
        no key, exempt | 200 200 | /exempt | /exempt
    ";
    let values = "
        two values in one line are one value | 200 200 | a, b | a
        the value of a header in capitals | 200 200 | a | A
        UTF-8 | 200 429 | ключ | ключ
        a tab inside | 200 200 | a\tb | a b
        Lua and RESP | 200 200 | '] = 1; redis.call('FLUSHALL') | $3\\r\\nfoo
        braces | 200 200 200 200 429 | {} | { | } | }{ | {}
        escaped braces | 200 200 200 | { | %7b | %7B
        a colon, a comma, a per cent | 200 200 200 200 | : | , | % | %%
        the text of a number is not the number | 200 200 | 7 | #7
    ";
    let mut rows = table(nothing, |target| get(target, &[]));
    rows.extend(table(values, |value| api_key(value.as_bytes())));
    let or = [get("/or", &[("x-api-key", "")]), get("/or", &[])];
    let utf_8 = [b"\xff\xfe", b"\xff\xfe", b"\xff\xff"].map(|bytes| secret(bytes));
    let lines = [secret(b"\r\nx-other: b"), secret(b"")];
    rows.extend([
        row("an empty value", [api_key(b"")], &[400]),
        row("a blank value", [api_key(b" \t ")], &[400]),
        row("an empty value is not the peer", or, &SAME),
        row(
            "a value in two lines",
            [request("GET", "/header", &twice)],
            &[400],
        ),
        row(
            "blanks around a value",
            [api_key(b"  a\t"), api_key(b"a")],
            &SAME,
        ),
        row(
            "the name of a header in capitals",
            [capitals, api_key(b"a")],
            &SAME,
        ),
        row("invalid UTF-8", utf_8, &[200, 429, 200]),
        row("NUL", [secret(b"\0")], &[400]),
        row("a control byte", [secret(b"\x01")], &[400]),
        row("DEL", [secret(b"\x7f")], &[400]),
        row("CR and LF make another header", lines, &SAME),
        row("CR alone", [secret(b"\rb")], &[400]),
        row("a folded line", [secret(b"\r\n b")], &[400]),
    ]);
    rows
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

/// Each request has two parts, with a blank between.
fn parts() -> Vec<Row> {
    let pair = |parts: &str| match parts.split_once(' ') {
        Some((a, b)) => get("/pair", &[("a", a), ("b", b)]),
        None => get("/pair", &[("a", parts)]),
    };
    let long = "x".repeat(70);
    let lines = format!(
        "
        a delimiter in a part | 200 200 | a b:c | a:b c
        a comma in a part | 200 200 | a b,c | a,b c
        parentheses in a part | 200 200 200 | (a b) | a b | (a,b) c
        letters that move to the other part | 200 200 429 | ab c | a bc | ab c
        swapped parts | 200 200 | a b | b a
        a long part | 200 200 429 | {long} a | {long} b | {long} a
        one part of two | 400 | a
        "
    );
    let mut rows = table(&lines, pair);
    rows.push(row("an empty part", [pair("a ")], &[400]));
    rows
}

fn targets() -> Vec<Row> {
    let of_get = "
        one path | 200 429 | /path/a | /path/a
        an escaped letter | 200 200 | /path/a | /path/%61
        two slashes | 200 200 | /path/a | /path//a
        a dot | 200 200 | /path/a | /path/./a
        a slash at the end | 200 200 | /path/a | /path/a/
        a capital | 200 200 | /path/a | /path/A
        a parameter | 200 200 | /path/a | /path/a;p
        an escaped slash | 200 200 | /path/a | /path/a%2f
        two dots | 200 200 | /path/a | /path/x/../a
        a query is not part of the path | 200 429 | /path/a | /path/a?b=c
        an absolute target | 200 429 | /path/a | http://other.example/path/a
        an absolute target without a path | 404 | http://other.example
        a fragment | 200 429 | /path/a#b | /path/a
        one route, other parameters | 200 429 | /matched/a | /matched/b
        one route, escaped | 200 429 | /matched/a | /matched/%2e%2e
        one route, absolute | 200 429 | /matched/a | http://other.example/matched/b
        no route | 404 | /nowhere
        no route, by `//` | 404 | //matched/a
    ";
    let of_methods = "
        HEAD of a path | 200 429 | GET /path/a | HEAD /path/a
        a path that is not ASCII | 200 200 | GET /path/\u{e9} | GET /path/%C3%A9
        one route, HEAD | 200 429 | GET /matched/a | HEAD /matched/b
        HEAD is GET | 200 429 | GET /method | HEAD /method
        unknown methods share a key | 200 429 | BREW /method | PROPFIND /method
        a lower-case method is unknown | 200 429 200 | get /method | BREW /method | GET /method
    ";
    let mut rows = table(of_get, |target| get(target, &[]));
    rows.extend(table(of_methods, |of| {
        let (method, target) = of.split_once(' ').unwrap();
        request(method, target, &[])
    }));
    let overridden = |target| get(target, &[("x-http-method-override", "PUT")]);
    let of_route = [get("/matched/a", &[]), overridden("/matched/b")];
    let of_method = [get("/method", &[]), overridden("/method")];
    rows.extend([
        row("one route, an overridden method", of_route, &SAME),
        row("a header does not change the method", of_method, &SAME),
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
    rows.extend(of_client.map(|line| row(line, [client(), through(&[line])], &SAME)));
    rows.extend(of_proxy.map(|line| row(line, [proxy(), through(&[line])], &SAME)));
    let proxies = [
        through(&["10.0.0.9"]),
        through(&[&format!("203.0.113.7,{}", many("10.0.0.9"))]),
    ];
    let clients = [
        client(),
        through(&[&format!("{},203.0.113.7", many("198.51.100.1"))]),
    ];
    let invalid: &[u8] = b"203.0.113.7, \xff";
    let invalid = request("GET", "/forwarded-for", &[("x-forwarded-for", invalid)]);
    let others = [
        ("forwarded", "for=203.0.113.7"),
        ("x-real-ip", "203.0.113.8"),
    ];
    let lines = [
        client(),
        through(&["203.0.113.7", "10.0.0.2"]),
        through(&["198.51.100.1", "203.0.113.7"]),
    ];
    let invented = [
        client(),
        through(&["1.1.1.1, 203.0.113.7"]),
        through(&["2.2.2.2, 203.0.113.7"]),
    ];
    let untrusted = [untrusted("203.0.113.7"), untrusted("203.0.113.8")];
    rows.extend([
        row("a chain over several lines", lines, &[200, 429, 429]),
        row("an invented left end", invented, &[200, 429, 429]),
        row("10 000 clients", clients, &SAME),
        row("10 000 proxies", proxies, &SAME),
        row("invalid UTF-8 in the list", [proxy(), invalid], &SAME),
        row(
            "another header",
            [proxy(), get("/forwarded-for", &others)],
            &SAME,
        ),
        row("a peer that is not trusted", untrusted, &SAME),
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
    rows.extend(of_client.map(|line| row(line, [client(), through(line)], &SAME)));
    rows.extend(of_proxy.map(|line| row(line, [proxy(), through(line)], &SAME)));
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
    let costs = "
        a cost of 0 spends nothing | 200 200 200 429 | 5 | 0 | 0 | 1
        the whole burst at once | 200 429 | 5 | 1
        a cost above the burst | 413 200 | 6 | 5
        the largest cost | 413 | 18446744073709551615
        invalid costs | 200 200 200 200 200 429 | 18446744073709551616 | -1 | 1e3 |  | nan | 1
    ";
    table(costs, |cost| get("/cost", &[("x-cost", cost)]))
}

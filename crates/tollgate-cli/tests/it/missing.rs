//! `tollgate simulate` on a trace that lacks what the descriptors are made of.

use super::{
    File,
    simulate::{BY_IP, RULES, combined, simulate},
};

/// Returns the notes of a simulation.
fn notes(rules: &File, trace: &File, arguments: &[&str]) -> Vec<String> {
    let json = simulate(rules, trace, &[arguments, &["--format", "json"]].concat()).json();
    let notes = json["notes"].as_array().unwrap().iter();
    notes
        .map(|note| note.as_str().unwrap().to_owned())
        .collect()
}

fn csv(head: &str, line: &str) -> File {
    let lines: String = (0..100)
        .map(|at| format!("{},{line}\n", 1_700_000_040 + at / 3))
        .collect();
    File::new("a.csv", format!("time,{head}\n{lines}"))
}

#[test]
fn a_header_of_the_rules_that_no_request_has_is_named_with_the_option_that_reads_it() {
    let rules = File::new("rules.yaml", RULES);
    let log = File::new("access.log", combined("192.0.2.1", 25));
    let note = "no request has the header x-tenant, which rate_limits reads: name its column with --field \
                headers.x-tenant=COLUMN";
    assert_eq!(notes(&rules, &log, &[]), [note]);
    let text = simulate(&rules, &log, &[]).stdout;
    assert!(text.contains("25 requests match no descriptor"), "{text}");
    assert!(text.ends_with(&format!("note: {note}\n")), "{text}");

    // The option does what the note says.
    let trace = csv("tenant", "acme");
    let field = ["--field", "headers.x-tenant=tenant"];
    assert_eq!(notes(&rules, &trace, &[]), [note]);
    assert_eq!(notes(&rules, &trace, &field), [""; 0]);
    let json = simulate(
        &rules,
        &trace,
        &[&field[..], &["--format", "json"]].concat(),
    )
    .json();
    assert_eq!(json["denied"].as_u64(), Some(40), "{json}");
}

#[test]
fn a_header_that_some_requests_have_is_not_missing() {
    let rules = File::new("rules.yaml", RULES);
    let trace = "{\"ts\":1700000040}\n{\"ts\":1700000041,\"http_x_tenant\":\"acme\"}\n{\"ts\":1700000042}\n";
    assert_eq!(notes(&rules, &File::new("a.jsonl", trace), &[]), [""; 0]);
}

#[test]
fn each_other_part_that_no_request_has_is_named_with_what_was_taken_for_it() {
    let by_ip = File::new("rules.yaml", BY_IP);
    assert_eq!(
        notes(&by_ip, &csv("x-tenant", "acme"), &[]),
        [
            "100 requests have no descriptors: no address of the client",
            "no request has the address of the client, which rate_limits reads: name its column with --field ip=COLUMN",
        ]
    );
    let actions = "{remote_address: {}}";
    let rules = |more: &str| File::new("rules.yaml", BY_IP.replace(actions, more));
    let both = rules("{method: {descriptor_key: m}}, {path: {descriptor_key: p}}");
    let trace = csv("ip", "192.0.2.1");
    assert_eq!(
        notes(&both, &trace, &[]),
        [
            "no request has the method, which rate_limits reads, and GET is taken: name its column with --field \
             method=COLUMN",
            "no request has the path, which rate_limits reads, and / is taken: name its column with --field path=COLUMN",
        ]
    );
    assert_eq!(
        notes(&rules("{matched_path: {}}"), &trace, &[]),
        [
            "a log does not have the route, which rate_limits reads: make descriptors with --descriptor"
        ]
    );
    let template = ["--descriptor", "remote_address={ip},tenant={tenant}"];
    assert_eq!(
        notes(&by_ip, &trace, &template),
        [
            "no request has the field \"tenant\", which --descriptor reads: name its column with --field tenant=COLUMN"
        ]
    );
}

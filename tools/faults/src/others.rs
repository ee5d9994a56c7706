//! What other runs found, as their pages tell.

use std::{fs, path::Path};

const PAGES: [&str; 3] = ["reliability-redis8.md", "reliability-valkey8.md", "reliability-soak.md"];

/// A section with a line for each page there is: its server, its tally, and which figures missed.
pub(crate) fn told(docs: &Path) -> String {
    let lines: String = PAGES
        .into_iter()
        .filter_map(|name| fs::read_to_string(docs.join(name)).ok().map(|page| line(name, &page)))
        .collect();
    if lines.is_empty() {
        return "\n## Other runs\n\nNone was written down.\n".to_owned();
    }
    format!("\n## Other runs\n\n| page | server | result | missed there |\n|---|---|---|---|\n{lines}")
}

fn line(name: &str, page: &str) -> String {
    let head = page.lines().find(|line| line.starts_with("Written by")).unwrap_or_default();
    let server = head.split(", ").find(|part| part.contains(" server ")).unwrap_or_default();
    let server = server.split(". ").next().unwrap_or_default();
    let tally = head.split(". ").find(|part| part.contains(" rows, ")).unwrap_or_default().trim_end_matches('.');
    let quick = if head.contains("quick run") { ", quickly" } else { "" };
    let missed: Vec<String> = page.lines().filter(|line| line.contains("| **")).map(short).collect();
    let missed = if missed.is_empty() { "–".to_owned() } else { missed.join("; ") };
    format!("| [{name}]({name}) | {server} | {tally}{quick} | {missed} |\n")
}

/// `| N3 | … | figure | 58.5 ms | ≤ 55 ms | **missed** |` becomes `N3: figure, 58.5 ms`.
fn short(line: &str) -> String {
    let cells: Vec<&str> = line.split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect();
    match cells.as_slice() {
        [id, .., "**broken**"] => format!("{id}: broken"),
        [id, .., figure, measured, _, _] => format!("{id}: {figure}, {measured}"),
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_told_in_a_line() {
        let page = "# Reliability: redis8\n\nWritten by `x`. AMD, 2 cores, rustc 1.95.0, Redis server 8.0.2. Everything runs. This was a \
                    quick run: few repetitions. 33 rows, 0 broken; figures: 95 met, 1 missed; scoreboard: 1 met, 0 missed.\n\n\
                    | N1 | late | time | 1 ms | ≤ 2 ms | met |\n\
                    | M1 | many | growth | 38.9 MiB | ≤ 32 MiB | **missed** |\n\
                    | N2 | killed | – | – | – | **broken** |\n";
        assert_eq!(
            line("p.md", page),
            "| [p.md](p.md) | Redis server 8.0.2 | 33 rows, 0 broken; figures: 95 met, 1 missed; scoreboard: 1 met, 0 \
             missed, quickly | M1: growth, 38.9 MiB; N2: broken |\n"
        );
        assert!(told(Path::new("/nowhere")).contains("None was written down"));
    }
}

//! The table of `docs/contributors/reliability.md` that sums up runs on other servers, and the soak.

const HEAD: &str = "\n## Other runs\n\n<details><summary>Other servers, and twenty minutes of load</summary>\n\n\
                    | run | server | result | missed |\n|---|---|---|---|\n";
const END: &str = "\n</details>\n";

/// Returns the section with the lines that the page has so far.
pub(crate) fn kept(page: &str) -> String {
    section(lines(page))
}

/// Returns the page with the line of this run in the place of its last one.
pub(crate) fn with_run(page: &str, about: &str, its_page: &str) -> String {
    let before = section(lines(page));
    let run = run(about);
    let line = line(&run, its_page);
    let mut lines: Vec<&str> = lines(page).filter(|line| !line.starts_with(&format!("| {run} |"))).collect();
    lines.push(&line);
    lines.sort_unstable();
    page.replace(&before, &section(lines.into_iter()))
}

fn lines(page: &str) -> impl Iterator<Item = &str> {
    let table = page.split_once(HEAD).map_or("", |(_, table)| table);
    table.lines().take_while(|line| line.starts_with("| "))
}

fn section<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    lines.fold(HEAD.to_owned(), |section, line| section + line + "\n") + END
}

/// The first cell of a line: the command, or the page of the soak.
fn run(about: &str) -> String {
    if about == "soak" {
        "[20 minutes of load](reliability-soak.md)".to_owned()
    } else {
        format!("`cargo xtask faults --server {about}`")
    }
}

/// Sums a page up: its server, its tally, and the figures that missed their targets.
fn line(run: &str, page: &str) -> String {
    let head = page.lines().find(|line| line.starts_with("Written by")).unwrap_or_default();
    let server = head.split(", ").find(|part| part.contains(" server ")).unwrap_or_default();
    let server = server.split(". ").next().unwrap_or_default();
    let tally = head.split(". ").find(|part| part.contains(" rows, ")).unwrap_or_default().trim_end_matches('.');
    let quick = if head.contains("quick run") { ", quick" } else { "" };
    let missed: Vec<String> = page.lines().filter(|line| line.contains("| **")).map(short).collect();
    let missed = if missed.is_empty() { "–".to_owned() } else { missed.join("; ") };
    format!("| {run} | {server} | {tally}{quick} | {missed} |")
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

    const PAGE: &str = "# Reliability: redis8\n\nWritten by `x`. AMD, 2 cores, rustc 1.95.0, Redis server 8.0.2. Everything runs. This was a \
                        quick run: few repetitions. 33 rows, 0 broken; figures: 95 met, 1 missed; scoreboard: 1 met, 0 missed.\n\n\
                        | N1 | late | time | 1 ms | ≤ 2 ms | met |\n\
                        | M1 | many | growth | 38.9 MiB | ≤ 32 MiB | **missed** |\n\
                        | N2 | killed | – | – | – | **broken** |\n";
    const LINE: &str = "| `cargo xtask faults --server redis8` | Redis server 8.0.2 | 33 rows, 0 broken; figures: 95 met, 1 missed; \
                        scoreboard: 1 met, 0 missed, quick | M1: growth, 38.9 MiB; N2: broken |";

    #[test]
    fn a_page_is_summed_up_in_a_line() {
        assert_eq!(line(&run("redis8"), PAGE), LINE);
    }

    #[test]
    fn a_run_replaces_its_own_line_and_no_other() {
        let page =
            format!("# Reliability\n{HEAD}| `cargo xtask faults --server valkey8` | v | r | m |\n{END}\n## Next\n");
        let once = with_run(&page, "redis8", PAGE);
        assert!(
            once.contains(&format!("{HEAD}{LINE}\n| `cargo xtask faults --server valkey8` | v | r | m |\n{END}\n## N")),
            "{once}"
        );
        assert_eq!(with_run(&once, "redis8", PAGE), once);
        assert!(once.ends_with(&format!("{}\n## Next\n", kept(&once))), "{once}");
    }

    #[test]
    fn a_page_without_the_table_has_no_lines() {
        assert_eq!(kept("# Reliability\n"), format!("{HEAD}{END}"));
    }
}

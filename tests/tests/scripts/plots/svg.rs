//! One picture: what was asked and what passed in each tenth of a second, and what passed within the last second.

use std::fmt::Write;

use tollgate::Algorithm;

use super::traffic::{self, AMOUNT, END, SECOND};

const BIN: u64 = 100_000;

const WIDTH: u64 = 760;
const HEIGHT: u64 = 236;
const LEFT: u64 = 40;
const RIGHT: u64 = 16;
const TOP: u64 = 48;
const BOTTOM: u64 = 34;
/// The highest count on the axis.
const HIGHEST: u64 = 22;

/// Legible on white and on black; a page that is dark by preference gets brighter tones.
const STYLE: &str = "\
text{font:12px system-ui,sans-serif;fill:#57606a}
.title{font-size:15px;font-weight:600;fill:#1f2328}
.end{text-anchor:end}.mid{text-anchor:middle}
.grid{stroke:#8c959f;stroke-opacity:.3}
.limit{stroke:#cf222e;stroke-dasharray:5 4}
.asked{fill:#8c959f;fill-opacity:.35}
.passed{fill:#0969da}
.line{fill:none;stroke:#bc4c00;stroke-width:1.8}
.most{fill:#bc4c00}
@media(prefers-color-scheme:dark){
text{fill:#9198a1}.title{fill:#f0f6fc}
.limit{stroke:#ff7b72}.passed{fill:#4493f8}.line{stroke:#f0883e}.most{fill:#f0883e}
}
";

pub(super) fn draw(name: &str, algorithm: Algorithm, passed: &[u64]) -> String {
    let mut svg = String::new();
    let verb = if algorithm == Algorithm::LeakyBucket { "departing" } else { "admitted" };
    let most = traffic::most_in_a_second(passed);
    let title = name.replace('_', " ");
    let asked = traffic::arrivals();
    let mut line = |text: String| writeln!(svg, "{text}").expect("a string can grow");

    line(format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">"#
    ));
    line(format!(
        "<title>{title}, {AMOUNT} per second: of {} requests {} pass, at most {most} in any second</title>",
        asked.len(),
        passed.len()
    ));
    line(format!("<style>\n{STYLE}</style>"));
    line(format!(r#"<text class="title" x="{LEFT}" y="18">{title}</text>"#));
    line(format!(
        r#"<text class="most end" x="{}" y="18">at most {most} in any second · {} of {} pass</text>"#,
        WIDTH - RIGHT,
        passed.len(),
        asked.len()
    ));
    legend(verb).into_iter().for_each(&mut line);

    for count in (0..HIGHEST).step_by(5) {
        let y = y(count);
        line(format!(r#"<path class="grid" d="M{LEFT} {y}H{}"/>"#, WIDTH - RIGHT));
        line(format!(r#"<text class="end" x="{}" y="{}">{count}</text>"#, LEFT - 6, y.below(4)));
    }
    for at in (0..=END).step_by(to_size(SECOND)) {
        let x = x(at);
        line(format!(r#"<path class="grid" d="M{x} {TOP}V{}"/>"#, y(0)));
        line(format!(r#"<text class="mid" x="{x}" y="{}">{} s</text>"#, HEIGHT - BOTTOM + 18, at / SECOND));
    }
    for (class, times) in [("asked", &asked[..]), ("passed", passed)] {
        line(format!(r#"<path class="{class}" d="{}"/>"#, bars(times)));
    }
    line(format!(r#"<path class="limit" d="M{LEFT} {}H{}"/>"#, y(AMOUNT), WIDTH - RIGHT));
    line(format!(r#"<path class="line" d="{}"/>"#, steps(&traffic::last_second(passed))));
    line("</svg>".to_owned());
    svg
}

fn legend(verb: &str) -> Vec<String> {
    let y = 38;
    vec![
        format!(r#"<rect class="asked" x="{LEFT}" y="{}" width="10" height="10"/>"#, y - 9),
        format!(r#"<text x="{}" y="{y}">asked in each 100 ms</text>"#, LEFT + 16),
        format!(r#"<rect class="passed" x="{}" y="{}" width="10" height="10"/>"#, LEFT + 160, y - 9),
        format!(r#"<text x="{}" y="{y}">{verb} in each 100 ms</text>"#, LEFT + 176),
        format!(r#"<path class="line" d="M{} {}h18"/>"#, LEFT + 346, y - 4),
        format!(r#"<text x="{}" y="{y}">{verb} in the last second</text>"#, LEFT + 370),
        format!(r#"<path class="limit" d="M{} {}h18"/>"#, LEFT + 556, y - 4),
        format!(r#"<text x="{}" y="{y}">{AMOUNT} per second</text>"#, LEFT + 580),
    ]
}

/// A bar for each bin that is not empty, as one path.
fn bars(times: &[u64]) -> String {
    let mut path = String::new();
    for from in (0..END).step_by(to_size(BIN)) {
        let count = times.iter().filter(|&&at| (from..from + BIN).contains(&at)).count() as u64;
        if count > 0 {
            let (left, right) = (x(from + BIN / 12), x(from + BIN - BIN / 12));
            write!(path, "M{left} {}V{}H{right}V{}z", y(0), y(count), y(0)).expect("a string can grow");
        }
    }
    path
}

/// A curve that jumps.
fn steps(counts: &[(u64, u32)]) -> String {
    let mut path = format!("M{} {}", x(0), y(0));
    for &(at, count) in counts.iter().take_while(|&&(at, _)| at <= END) {
        write!(path, "H{}V{}", x(at), y(u64::from(count))).expect("a string can grow");
    }
    write!(path, "H{}", x(END)).expect("a string can grow");
    path
}

/// A place in tenths of a pixel: whole numbers, so that every machine draws the same bytes.
#[derive(Clone, Copy)]
struct Tenths(u64);

impl Tenths {
    fn below(self, pixels: u64) -> Self {
        Self(self.0 + 10 * pixels)
    }
}

impl std::fmt::Display for Tenths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.0 / 10, self.0 % 10) {
            (whole, 0) => write!(f, "{whole}"),
            (whole, tenth) => write!(f, "{whole}.{tenth}"),
        }
    }
}

fn x(at: u64) -> Tenths {
    Tenths(10 * LEFT + 10 * (WIDTH - LEFT - RIGHT) * at / END)
}

fn y(count: u64) -> Tenths {
    let height = HEIGHT - TOP - BOTTOM;
    Tenths(10 * (HEIGHT - BOTTOM) - 10 * height * count / HIGHEST)
}

fn to_size(number: u64) -> usize {
    usize::try_from(number).expect("a small number")
}

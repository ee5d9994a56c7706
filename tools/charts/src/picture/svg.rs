//! Writes a picture as SVG.

use std::fmt::Write as _;

use crate::{
    Panel, Picture,
    axis::{Scale, tick},
};

const WIDTH: f64 = 760.0;
const TOP: f64 = 58.0;
const PANEL: f64 = 176.0;
/// Room around the lines of a panel, for its title and its axes.
const LEFT: f64 = 48.0;
const RIGHT: f64 = 14.0;
const ABOVE: f64 = 20.0;
const BELOW: f64 = 42.0;

/// The width of a letter of the legend, about.
const LETTER: f64 = 6.6;

/// Legible on white and on black. A page that is dark by preference gets brighter tones.
const STYLE: &str = "\
text{font:12px system-ui,sans-serif;fill:#57606a}
.title{font-size:15px;font-weight:600;fill:#1f2328}
.panel{font-weight:600}
.end{text-anchor:end}.mid{text-anchor:middle}
.grid{stroke:#8c959f;stroke-opacity:.3}
.line,.key{fill:none;stroke-width:1.8;stroke-linejoin:round}
.s0{stroke:#0969da}.s1{stroke:#bc4c00}.s2{stroke:#8c959f;stroke-dasharray:5 4}.s3{stroke:#8250df}
.s4{stroke:#1a7f37}.s5{stroke:#bf3989}.s6{stroke:#9a6700}.s7{stroke:#cf222e}
@media(prefers-color-scheme:dark){
text{fill:#9198a1}.title{fill:#f0f6fc}
.s0{stroke:#4493f8}.s1{stroke:#f0883e}.s3{stroke:#ab7df8}.s4{stroke:#3fb950}.s5{stroke:#db61a2}.s6{stroke:#d29922}
.s7{stroke:#ff7b72}
}
";

pub(crate) fn draw(picture: &Picture) -> String {
    let columns = picture.columns.max(1);
    let rows = picture.panels.len().div_ceil(columns);
    let height = TOP + PANEL * rows as f64;
    let mut svg = String::new();
    let mut line = |text: String| svg.push_str(&(text + "\n"));
    line(format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">"#
    ));
    line(format!("<title>{}</title>", escaped(&picture.title)));
    line(format!("<style>\n{STYLE}</style>"));
    line(format!(
        r#"<text class="title" x="10" y="18">{}</text>"#,
        escaped(&picture.title)
    ));
    let mut x = 10.0;
    for (number, name) in picture.series.iter().enumerate() {
        line(format!(
            r#"<path class="key s{number}" d="M{} 36h18"/>"#,
            Place(x)
        ));
        line(format!(
            r#"<text x="{}" y="40">{}</text>"#,
            Place(x + 24.0),
            escaped(name)
        ));
        x += 44.0 + LETTER * name.chars().count() as f64;
    }
    let width = WIDTH / columns as f64;
    for (at, panel) in picture.panels.iter().enumerate() {
        let (column, row) = (at % columns, at / columns);
        frame(
            panel,
            (width * column as f64, TOP + PANEL * row as f64),
            width,
        )
        .into_iter()
        .for_each(&mut line);
    }
    line("</svg>".to_owned());
    svg
}

/// Draws one panel, with its upper left corner at `corner`.
fn frame(panel: &Panel, corner: (f64, f64), width: f64) -> Vec<String> {
    let (left, right) = (corner.0 + LEFT, corner.0 + width - RIGHT);
    let (top, bottom) = (corner.1 + ABOVE, corner.1 + PANEL - BELOW);
    let points = || {
        panel
            .lines
            .iter()
            .flat_map(|line| line.points.iter().copied())
    };
    let x_scale = panel.x.scale(points().map(|(x, _)| x));
    let y_scale = panel.y.scale(points().map(|(_, y)| y));
    let x = |value: f64| Place(left + (right - left) * x_scale.place(value));
    let y = |value: f64| Place(bottom - (bottom - top) * y_scale.place(value));
    let title = if panel.title.is_empty() {
        String::new()
    } else {
        format!("{} · ", panel.title)
    };

    let mut parts = vec![format!(
        r#"<text class="panel" x="{}" y="{}">{}</text>"#,
        Place(left),
        Place(corner.1 + 12.0),
        escaped(&format!("{title}{}", panel.y.label)),
    )];
    for &value in y_scale.ticks() {
        parts.push(format!(
            r#"<path class="grid" d="M{} {}H{}"/>"#,
            Place(left),
            y(value),
            Place(right)
        ));
        let (end, middle) = (Place(left - 6.0), Place(y(value).0 + 4.0));
        parts.push(format!(
            r#"<text class="end" x="{end}" y="{middle}">{}</text>"#,
            tick(value)
        ));
    }
    for value in shown(&x_scale) {
        let place = x(value);
        parts.push(format!(
            r#"<path class="grid" d="M{place} {}V{}"/>"#,
            Place(top),
            Place(bottom)
        ));
        parts.push(format!(
            r#"<text class="mid" x="{place}" y="{}">{}</text>"#,
            Place(bottom + 16.0),
            tick(value)
        ));
    }
    let middle = Place(f64::midpoint(left, right));
    let label = escaped(&panel.x.label);
    parts.push(format!(
        r#"<text class="mid" x="{middle}" y="{}">{label}</text>"#,
        Place(bottom + 32.0)
    ));
    for line in &panel.lines {
        let points: Vec<String> = line
            .points
            .iter()
            .map(|&(at, value)| format!("{} {}", x(at), y(value)))
            .collect();
        if !points.is_empty() {
            parts.push(format!(
                r#"<path class="line s{}" d="M{}"/>"#,
                line.series,
                points.join("L")
            ));
        }
    }
    parts
}

/// Returns the ticks of the horizontal axis, without those that have no room.
fn shown(scale: &Scale) -> impl Iterator<Item = f64> {
    const ROOM: f64 = 0.09;
    let mut last = f64::NEG_INFINITY;
    scale.ticks().iter().copied().filter(move |&tick| {
        let place = scale.place(tick);
        let has_room = place - last >= ROOM;
        if has_room {
            last = place;
        }
        has_room
    })
}

/// A place in the picture. It is written with one decimal place.
#[derive(Clone, Copy)]
struct Place(f64);

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tenths = (self.0 * 10.0).round() as i64;
        match (tenths / 10, tenths % 10) {
            (whole, 0) => write!(f, "{whole}"),
            (whole, tenth) => write!(f, "{whole}.{tenth}"),
        }
    }
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            _ => _ = escaped.write_char(letter),
        }
    }
    escaped
}

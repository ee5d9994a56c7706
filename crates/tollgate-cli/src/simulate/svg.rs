//! Draws line charts as SVG. The text is legible on white and on black pages.
//! What the lines mean is decided in `plot.rs`.

use std::fmt::Write as _;

const WIDTH: f64 = 760.0;
const TOP: f64 = 58.0;
const PANEL: f64 = 176.0;
/// The edges of the lines within a panel, which leave room for its title and its axes.
const LEFT: f64 = 48.0;
const RIGHT: f64 = WIDTH - 14.0;
const ABOVE: f64 = 20.0;
const BELOW: f64 = PANEL - 42.0;

/// The width of a letter of the legend, about.
const LETTER: f64 = 6.6;

/// A page that is dark by preference gets brighter tones.
const STYLE: &str = "\
text{font:12px system-ui,sans-serif;fill:#57606a}
.title{font-size:15px;font-weight:600;fill:#1f2328}
.panel{font-weight:600}
.end{text-anchor:end}.mid{text-anchor:middle}
.grid{stroke:#8c959f;stroke-opacity:.3}
.line,.key{fill:none;stroke-width:1.8;stroke-linejoin:round}
.s0{stroke:#0969da}.s1{stroke:#bc4c00}
@media(prefers-color-scheme:dark){
text{fill:#9198a1}.title{fill:#f0f6fc}
.s0{stroke:#4493f8}.s1{stroke:#f0883e}
}
";

/// The lines over one pair of axes, which begin at zero.
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) x_label: String,
    /// The points of each series.
    pub(super) lines: [Vec<(f64, f64)>; 2],
}

/// Returns a picture with one panel below another, and one legend.
pub(super) fn draw(title: &str, series: [&str; 2], panels: &[Panel]) -> String {
    let height = TOP + PANEL * panels.len() as f64;
    let title = escaped(title);
    let mut svg = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">
<title>{title}</title>
<style>
{STYLE}</style>
"#
    );
    text(&mut svg, "title", (10.0, 18.0), &title);
    let mut x = 10.0;
    for (number, name) in series.iter().enumerate() {
        path(
            &mut svg,
            &format!("key s{number}"),
            &format!("M{x:.1} 36h18"),
        );
        text(&mut svg, "", (x + 24.0, 40.0), &escaped(name));
        x += 44.0 + LETTER * name.chars().count() as f64;
    }
    for (at, panel) in panels.iter().enumerate() {
        panel.draw(&mut svg, TOP + PANEL * at as f64);
    }
    svg + "</svg>\n"
}

impl Panel {
    /// Draws the panel below the height `top`.
    fn draw(&self, svg: &mut String, top: f64) {
        let (above, below) = (top + ABOVE, top + BELOW);
        let points = || self.lines.iter().flatten();
        let x_ticks = ticks(points().map(|point| point.0));
        let y_ticks = ticks(points().map(|point| point.1));
        let x = |value: f64| LEFT + (RIGHT - LEFT) * value / x_ticks[x_ticks.len() - 1];
        let y = |value: f64| below - (below - above) * value / y_ticks[y_ticks.len() - 1];
        text(svg, "panel", (LEFT, top + 12.0), &escaped(&self.title));
        for &value in &y_ticks {
            let height = y(value);
            path(svg, "grid", &format!("M{LEFT:.1} {height:.1}H{RIGHT:.1}"));
            text(svg, "end", (LEFT - 6.0, height + 4.0), &tick(value));
        }
        for &value in &x_ticks {
            let place = x(value);
            path(svg, "grid", &format!("M{place:.1} {above:.1}V{below:.1}"));
            text(svg, "mid", (place, below + 16.0), &tick(value));
        }
        let middle = f64::midpoint(LEFT, RIGHT);
        text(svg, "mid", (middle, below + 32.0), &escaped(&self.x_label));
        for (number, points) in self.lines.iter().enumerate() {
            let points = points.iter().map(|&(at, value)| (x(at), y(value)));
            let points: Vec<_> = points.map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
            if !points.is_empty() {
                path(
                    svg,
                    &format!("line s{number}"),
                    &format!("M{}", points.join("L")),
                );
            }
        }
    }
}

fn text(svg: &mut String, class: &str, (x, y): (f64, f64), escaped: &str) {
    let _ = writeln!(
        svg,
        r#"<text class="{class}" x="{x:.1}" y="{y:.1}">{escaped}</text>"#
    );
}

fn path(svg: &mut String, class: &str, d: &str) {
    let _ = writeln!(svg, r#"<path class="{class}" d="{d}"/>"#);
}

/// Returns round values from zero on, of which the last one is not below these.
fn ticks(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let highest = values.fold(0.0, f64::max);
    let highest = if highest > 0.0 { highest } else { 1.0 };
    let step = round_step(highest / 4.0);
    let steps = (highest / step).ceil();
    (0..=steps as u32).map(|at| f64::from(at) * step).collect()
}

/// Rounds up to 1, 2, 2.5 or 5 times a power of ten.
fn round_step(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    let mut rounds = [1.0, 2.0, 2.5, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter();
    // The tolerance keeps a step of exactly 1, 2 or 5 although the power of ten is rounded.
    rounds
        .find(|round| *round >= step * 0.999_999)
        .unwrap_or(step)
}

/// Formats the value of a tick: `64`, `1.5`, `300 k`, `2 M`.
fn tick(value: f64) -> String {
    let (value, unit) = match value {
        it if it >= 1e6 => (value / 1e6, " M"),
        it if it >= 1e4 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let text = format!("{value:.2}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_short_and_round_and_reach_the_highest_value() {
        for (highest, expected) in [
            (330e3, "0 100 k 200 k 300 k 400 k"),
            (0.9, "0 0.25 0.5 0.75 1"),
            (50.0, "0 20 40 60"),
            (2.5e6, "0 1 M 2 M 3 M"),
            (0.0, "0 0.25 0.5 0.75 1"),
        ] {
            let ticks = ticks([0.0, highest].into_iter()).into_iter().map(tick);
            assert_eq!(ticks.collect::<Vec<_>>().join(" "), expected, "{highest}");
        }
    }

    #[test]
    fn a_line_has_a_point_for_each_value_and_a_higher_one_is_further_up() {
        let panel = Panel {
            title: "near & far".to_owned(),
            x_label: "seconds".to_owned(),
            lines: [Vec::new(), vec![(0.0, 1.0), (1.0, 3.0), (2.0, 2.0)]],
        };
        let svg = draw("a title", ["one", "two"], &[panel]);
        // SVG counts downwards.
        let line = r#"<path class="line s1" d="M48.0 154.0L397.0 78.0L746.0 116.0"/>"#;
        assert!(
            svg.contains(line) && svg.contains("near &amp; far"),
            "{svg}"
        );
        assert!(
            svg.ends_with("</svg>\n") && !svg.contains("line s0"),
            "{svg}"
        );
    }
}

mod svg;

use crate::Axis;

/// Holds panels with the same series.
#[derive(Clone, Debug)]
pub struct Picture {
    title: String,
    series: Vec<String>,
    panels: Vec<Panel>,
    columns: usize,
}

/// Holds the lines over one pair of axes.
#[derive(Clone, Debug)]
pub struct Panel {
    title: String,
    x: Axis,
    y: Axis,
    lines: Vec<Line>,
}

/// Holds the points of one series.
#[derive(Clone, Debug)]
struct Line {
    series: usize,
    points: Vec<(f64, f64)>,
}

impl Picture {
    /// Creates a picture with its panels side by side.
    #[must_use]
    pub fn new<'a>(
        title: impl Into<String>,
        series: impl IntoIterator<Item = &'a str>,
        panels: Vec<Panel>,
    ) -> Self {
        let columns = panels.len();
        Self {
            title: title.into(),
            series: series.into_iter().map(str::to_owned).collect(),
            panels,
            columns,
        }
    }

    /// Sets how many panels stand side by side. The next ones form the next row.
    #[must_use]
    pub fn columns(self, columns: usize) -> Self {
        Self { columns, ..self }
    }

    /// Returns the picture as SVG.
    #[must_use]
    pub fn svg(&self) -> String {
        svg::draw(self)
    }
}

impl Panel {
    /// Creates a panel without lines.
    #[must_use]
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self {
            title: title.into(),
            x,
            y,
            lines: Vec::new(),
        }
    }

    /// Adds the points of the series with that number. Points that are not finite are left out.
    ///
    /// On a logarithmic axis a point has to be above zero. Other points are left out too.
    pub fn line(&mut self, series: usize, points: impl IntoIterator<Item = (f64, f64)>) {
        let can_be_drawn = |&(x, y): &(f64, f64)| self.x.takes(x) && self.y.takes(y);
        let points = points.into_iter().filter(can_be_drawn).collect();
        self.lines.push(Line { series, points });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(points: &[(f64, f64)]) -> String {
        let mut panel = Panel::new("near & far", Axis::linear("seconds"), Axis::linear("ms"));
        panel.line(1, points.iter().copied());
        Picture::new("a title", ["one", "two"], vec![panel]).svg()
    }

    #[test]
    fn a_line_has_a_point_for_each_value() {
        let svg = picture(&[(0.0, 0.0), (1.0, 2.0), (2.0, 1.0)]);
        let line = svg
            .lines()
            .find(|line| line.contains("class=\"line s1\""))
            .expect("the line of the second series");
        assert_eq!(line.matches('L').count(), 2, "{line}");
        assert!(
            svg.contains("near &amp; far") && svg.ends_with("</svg>\n"),
            "{svg}"
        );
    }

    #[test]
    fn a_value_that_is_no_number_is_left_out() {
        let svg = picture(&[(0.0, 1.0), (1.0, f64::NAN), (2.0, 1.0)]);
        assert!(!svg.contains("NaN"), "{svg}");
        assert_eq!(picture(&[(f64::INFINITY, 1.0)]).matches("NaN").count(), 0);
    }

    #[test]
    fn a_higher_value_is_drawn_further_up() {
        let svg = picture(&[(0.0, 1.0), (1.0, 3.0)]);
        let path = svg.split("class=\"line s1\" d=\"M").nth(1).expect("a path");
        let heights: Vec<f64> = path
            .split('"')
            .next()
            .unwrap_or_default()
            .split('L')
            .filter_map(|point| point.split(' ').nth(1)?.parse().ok())
            .collect();
        assert!(heights[0] > heights[1], "SVG counts downwards: {heights:?}");
    }
}

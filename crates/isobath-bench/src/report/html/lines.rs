//! Lines over a number: batch size, value size, threads, a swept parameter, time.

use super::palette::{FAINT, FONT, INK, engine_color};
use anyhow::{Result, anyhow};
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

/// A line: an engine, a qualifier of its name, its points.
pub(super) struct Line {
    pub(super) engine: String,
    pub(super) qualifier: String,
    pub(super) points: Vec<(f64, f64)>,
}

pub(super) struct LineFigure<'a> {
    pub(super) title: &'a str,
    pub(super) x_name: &'a str,
    pub(super) y_name: &'a str,
    pub(super) lines: &'a [Line],
    /// Both axes; time is drawn linearly.
    pub(super) logarithmic: bool,
    pub(super) format: fn(f64) -> String,
}

const SIZE: (u32, u32) = (900, 340);

impl LineFigure<'_> {
    /// The figure as an SVG element.
    pub(super) fn draw(&self) -> Result<String> {
        let points = || self.lines.iter().flat_map(|line| line.points.iter());
        let max = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(0.0, f64::max).max(1e-9);
        let min = |of: fn(&(f64, f64)) -> f64| {
            points().map(of).filter(|value| *value > 0.0).fold(f64::MAX, f64::min)
        };
        let (x_max, y_max) = (max(|point| point.0), max(|point| point.1));
        let mut svg = String::new();
        let outcome = if self.logarithmic {
            let (x_min, y_min) =
                (min(|point| point.0).min(x_max / 2.0), min(|point| point.1).min(y_max / 2.0));
            self.chart(
                &mut svg,
                (x_min..x_max * 1.1).log_scale(),
                (y_min * 0.7..y_max * 1.4).log_scale(),
            )
        } else {
            self.chart(&mut svg, 0.0..x_max, 0.0..y_max * 1.1)
        };
        outcome.map_err(|error| anyhow!("drawing {}: {error}", self.title))?;
        Ok(svg)
    }

    fn chart<X, Y>(&self, svg: &mut String, x: X, y: Y) -> Result<(), Box<dyn std::error::Error>>
    where
        X: AsRangedCoord<Value = f64>,
        Y: AsRangedCoord<Value = f64>,
        X::CoordDescType: ValueFormatter<f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(self.title, (FONT, 17).into_font().color(&INK))
            .margin(10)
            .x_label_area_size(38)
            .y_label_area_size(72)
            .build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .x_desc(self.x_name)
            .y_desc(self.y_name)
            .light_line_style(WHITE.mix(0.0))
            .bold_line_style(FAINT)
            .label_style((FONT, 12).into_font().color(&INK))
            .x_label_formatter(&|value| plain(*value))
            .y_label_formatter(&|value| (self.format)(*value))
            .draw()?;
        for (place, line) in self.lines.iter().enumerate() {
            let color = engine_color(&line.engine).mix(if line.qualifier.is_empty() {
                1.0
            } else {
                fade(place)
            });
            let points =
                || line.points.iter().copied().filter(|(_, y)| !self.logarithmic || *y > 0.0);
            let name = format!("{} {}", line.engine, line.qualifier);
            chart
                .draw_series(LineSeries::new(points(), color.stroke_width(2)))?
                .label(name.trim_end())
                .legend(move |(x, y)| {
                    PathElement::new(vec![(x, y), (x + 16, y)], color.stroke_width(3))
                });
            if self.lines.iter().all(|line| line.points.len() < 40) {
                chart.draw_series(points().map(|point| Circle::new(point, 3, color.filled())))?;
            }
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .border_style(FAINT)
            .label_font((FONT, 12).into_font().color(&INK))
            .draw()?;
        area.present()?;
        Ok(())
    }
}

/// Lines of one engine differ in strength.
fn fade(place: usize) -> f64 {
    1.0 - 0.18 * (place % 5) as f64
}

fn plain(value: f64) -> String {
    if value.fract().abs() < 1e-9 { format!("{value:.0}") } else { format!("{value:.1}") }
}

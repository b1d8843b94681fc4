//! SVG output.

use std::fmt::{Display, Write};

/// An SVG image under construction.
#[derive(Debug)]
pub(super) struct Svg {
    pub(super) width: f64,
    pub(super) height: f64,
    label: String,
    body: String,
}

/// The shape of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Circle,
    Square,
    Triangle,
    Diamond,
}

/// The alignment of a text.
#[derive(Clone, Copy, Debug)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    pub(super) fn new(width: f64, height: f64, label: impl Into<String>) -> Svg {
        Svg { width, height, label: label.into(), body: String::new() }
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.body.write_fmt(text);
    }

    pub(super) fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        self.push(format_args!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        ));
    }

    /// Draws a line through points.
    pub(super) fn path(&mut self, class: &str, points: &[(f64, f64)], title: &str) {
        let mut data = String::new();
        for (index, (x, y)) in points.iter().enumerate() {
            let _ = write!(data, "{}{x:.1} {y:.1}", if index == 0 { "M" } else { "L" });
        }
        let title = escaped(title);
        self.push(format_args!(
            "<path class=\"{class}\" d=\"{data}\"><title>{title}</title></path>"
        ));
    }

    /// Draws a point of a line.
    pub(super) fn point(&mut self, class: &str, shape: Shape, (x, y): (f64, f64), title: &str) {
        let (title, class) = (escaped(title), format!("point {class}"));
        if shape == Shape::Circle {
            return self.push(format_args!(
                "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\"><title>{title}\
                 </title></circle>"
            ));
        }
        let corners = match shape {
            Shape::Circle => "",
            Shape::Square => "m-4.5 -4.5h9v9h-9z",
            Shape::Triangle => "m0 -6.5l6 11h-12z",
            Shape::Diamond => "m0 -6l6 6l-6 6l-6 -6z",
        };
        self.push(format_args!(
            "<path class=\"{class}\" d=\"M{x:.1} {y:.1}{corners}\"><title>{title}</title></path>"
        ));
    }

    /// Draws a bar with a flat start and a round end.
    pub(super) fn bar(&mut self, class: &str, (x, y): (f64, f64), (w, h): (f64, f64), title: &str) {
        let (title, r) = (escaped(title), (h / 4.0).min(w));
        self.push(format_args!(
            "<path class=\"{class}\" d=\"M{x:.1} {y:.1}h{:.1}q{r:.1} 0 {r:.1} {r:.1}v{:.1}\
             q0 {r:.1} -{r:.1} {r:.1}h-{:.1}z\"><title>{title}</title></path>",
            w - r,
            h - 2.0 * r,
            w - r,
        ));
    }

    pub(super) fn text(
        &mut self,
        class: &str,
        (x, y): (f64, f64),
        anchor: Anchor,
        text: impl Display,
    ) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escaped(&text.to_string());
        self.push(format_args!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        ));
    }

    /// Draws a rectangle with an opacity.
    pub(super) fn cell(
        &mut self,
        class: &str,
        (x, y): (f64, f64),
        (w, h): (f64, f64),
        opacity: f64,
        title: &str,
    ) {
        let title = escaped(title);
        self.push(format_args!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" \
             fill-opacity=\"{opacity:.2}\"><title>{title}</title></rect>"
        ));
    }

    /// Writes a text upwards to the right, from a point.
    pub(super) fn slanted(&mut self, class: &str, (x, y): (f64, f64), text: &str) {
        let text = escaped(text);
        self.push(format_args!(
            "<text class=\"{class}\" transform=\"translate({x:.1} {y:.1}) rotate(-52)\">{text}</text>"
        ));
    }

    /// Returns an element for a page that has the styles.
    pub(super) fn element(&self) -> String {
        let Svg { width, height, label, body } = self;
        let label = escaped(label);
        format!(
            "<svg viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"{label}\">{body}\
             </svg>"
        )
    }

    /// Returns a separate file with its styles.
    pub(super) fn file(&self) -> String {
        let (Svg { width, height, label, body }, style) = (self, super::STYLE);
        let label = escaped(label);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\"><title>{label}</title>\
             <style>{style}</style><rect class=\"paper\" width=\"100%\" height=\"100%\" rx=\"8\"/>\
             {body}</svg>\n"
        )
    }
}

/// Escapes markup.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A logarithmic axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogAxis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl LogAxis {
    /// An axis from `from` to `to` that contains all values.
    pub(super) fn holding(values: impl Iterator<Item = f64>, from: f64, to: f64) -> LogAxis {
        let values = values.filter(|value| *value > 0.0);
        let (low, high) = values
            .fold((f64::MAX, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) = if low > high { (1.0, 10.0) } else { (low * 0.8, high * 1.25) };
        LogAxis { low: low.ln(), high: high.ln(), from, to }
    }

    /// The position of a value.
    pub(super) fn at(&self, value: f64) -> f64 {
        let share = (value.ln() - self.low) / (self.high - self.low);
        self.from + share * (self.to - self.from)
    }

    /// Ticks at powers of ten; if those are few, at their multiples by 2 and 5 too.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let powers =
            (self.low / 10_f64.ln()).floor() as i32..=(self.high / 10_f64.ln()).ceil() as i32;
        let within = |value: &f64| (self.low..=self.high).contains(&value.ln());
        let tens: Vec<f64> =
            powers.clone().map(|power| 10_f64.powi(power)).filter(within).collect();
        if tens.len() > 2 {
            return tens;
        }
        let fine = powers.flat_map(|power| [1.0, 2.0, 5.0].map(|step| step * 10_f64.powi(power)));
        fine.filter(within).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_goes_from_end_to_end() {
        let axis = LogAxis::holding([10.0, 1_000.0].into_iter(), 0.0, 100.0);
        assert!(axis.at(10.0) > 0.0 && axis.at(1_000.0) < 100.0);
        assert!((axis.at(100.0) - 50.0).abs() < 1.0);
        assert_eq!(axis.ticks(), [10.0, 100.0, 1_000.0]);
    }

    #[test]
    fn names_cannot_break_the_page() {
        let mut svg = Svg::new(10.0, 10.0, "a \"b\"");
        svg.text("", (0.0, 0.0), Anchor::Start, "<b> & c");
        assert!(svg.element().contains("&lt;b&gt; &amp; c"));
        assert!(svg.element().contains("a &quot;b&quot;"));
    }
}

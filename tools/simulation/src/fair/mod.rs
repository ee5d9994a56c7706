//! Fair shares of a limit that all customers share: `docs/contributors/fair_shares.md` describes them, and has this table.

mod ideal;
mod meter;
mod scene;
mod scenes;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use crate::page::percent;
use scene::{Figures, Meters, Scene};

/// Returns the figures of each scene: without fair shares, with a meter in each replica, and with one meter for all.
fn figures() -> Vec<(Scene, [Figures; 3])> {
    let run = |scene: Scene| {
        let figures = [Meters::None, Meters::EachReplica, Meters::One].map(|meters| scene.run(meters));
        (scene, figures)
    };
    scenes::all().into_iter().map(run).collect()
}

/// Returns the table of the page.
pub(crate) fn table() -> String {
    let mut table = String::from(
        "| scene | customers | ideal/s | without | a meter in each replica | one meter | limit used |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for (scene, figures) in figures() {
        for (at, class) in scene.classes.iter().enumerate() {
            let of = |figures: &Figures| {
                let class = &figures.classes[at];
                format!("{} ({})", percent(class.admitted / class.ideal), percent(class.least))
            };
            let used = figures.iter().map(|figures| percent(figures.used)).collect::<Vec<_>>().join(", ");
            let (title, used) = if at == 0 { (scene.title, used) } else { ("", String::new()) };
            let ideal = figures[0].classes[at].ideal;
            let [without, each, one] = figures.each_ref().map(of);
            let _ = writeln!(table, "| {title} | {} | {ideal:.0} | {without} | {each} | {one} | {used} |", class.title);
        }
    }
    table
}

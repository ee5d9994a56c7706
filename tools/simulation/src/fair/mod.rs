//! Fair shares of a limit that all customers share: `docs/contributors/fair_shares.md` has the
//! figures. It runs the limiter of production, on a clock of its own.

mod ideal;
mod scene;
mod scenes;
#[cfg(test)]
mod tests;

use scene::{Figures, Knows, Scene};

/// Returns the figures of each scene: without fair shares, with what each replica admitted itself,
/// and with what the replicas tell each other.
fn figures() -> Vec<(Scene, [Figures; 3])> {
    let run = |scene: Scene| {
        let figures = [Knows::Nothing, Knows::Own, Knows::Told].map(|knows| scene.run(knows));
        (scene, figures)
    };
    scenes::all().into_iter().map(run).collect()
}

/// Prints what customers got of their ideal, and in brackets the one of them that fared worst.
pub(crate) fn print() {
    println!("| scene | customers | ideal/s | without | alone | told | Jain | limit used |");
    for (scene, figures) in figures() {
        let [without, alone, told] = &figures;
        for (at, class) in scene.classes.iter().enumerate() {
            let of = |figures: &Figures| {
                let class = &figures.classes[at];
                let [all, least] =
                    [class.admitted / class.ideal, class.least].map(|part| part * 100.0);
                format!("{all:.1} % ({least:.1} %)")
            };
            println!(
                "| {} | {} | {:.0} | {} | {} | {} | {:.3} {:.3} {:.3} | {:.2} % |",
                scene.title,
                class.title,
                told.classes[at].ideal,
                of(without),
                of(alone),
                of(told),
                without.jain,
                alone.jain,
                told.jain,
                told.used * 100.0
            );
        }
    }
}

//! `vmio study compare NAME paper` for a terminal.

use vmio_model::paper::{Compared, Judged, Verdict};

use super::document::{Block, In, Name, Out, Pairs, Text, on_terminal};
use super::format;
use crate::fit::WIDTH;
use crate::term::Style;

/// Indentation of lines below a verdict.
const BELOW: &str = "              ";

/// The effects that a paper states, each with the verdict of a run.
pub fn effects(c: &Compared, style: Style) -> String {
    let mut out = Out::new(style, WIDTH);
    out.line(&style.bold(&format!("Run {} of {} against {}", c.run, c.study, c.paper)));
    out.paragraph("", 0, &c.citation);
    out.line("");
    out.line(&style.bold("Different here"));
    pairs(&mut out, c.circumstances.iter().map(|d| (d.what.as_str(), format!("{} -> {}", d.paper, d.here))));
    out.line("");
    if !c.readings.is_empty() {
        out.line(&style.bold("Our reading of the paper"));
        pairs(&mut out, c.readings.iter().map(|reading| (reading.word.as_str(), reading.taken_for.clone())));
        out.line("");
    }
    if let Some(statement) = &c.statement {
        out.paragraph(&style.yellow("! "), 2, statement);
        out.line("");
    }
    super::transfers::tables(&c.transfers, &mut out);
    c.series.iter().for_each(|table| on_terminal(&mut out, &super::series::section(table, false).blocks()));
    on_terminal(&mut out, &super::events::tables(&c.events, c.emulated).blocks);
    if !c.energy.is_empty() {
        on_terminal(&mut out, &super::energy::of_cells(&c.energy).blocks());
    }
    on_terminal(&mut out, &super::by_component::tables(&c.components).blocks);
    for judged in &c.effects {
        let word = format!("{:<14}", judged.verdict.to_string());
        let word = match judged.verdict {
            Verdict::Holds => style.cyan(&word),
            Verdict::Fails => style.red(&word),
            Verdict::NotDecidable => style.yellow(&word),
        };
        let e = &judged.effect;
        let published = match e.published() {
            Some((above, below)) => format!(
                "published: {above} against {below} {}, ratio {} ({})",
                e.unit,
                format::three(above / below),
                e.citation
            ),
            None => format!("published without a number ({})", e.citation),
        };
        out.paragraph(&word, 14, &style.bold(&format!("{} ({})", e.text, e.id)));
        out.paragraph(BELOW, 16, &published);
        if let (Some(ratio), Some((above, below))) = (&judged.ratio, &judged.cells) {
            let figure =
                format!("here: ratio {}, {} pairs from {} boots:", format::factor(ratio), ratio.pairs, ratio.boots);
            out.paragraph(BELOW, 16, &format!("{figure} {above} against {below}"));
        }
        if let Some(chance) = chance(judged) {
            out.paragraph(BELOW, 16, &chance);
        }
        if let Some(reading) = &e.reading {
            out.paragraph(BELOW, 16, &format!("our reading: {reading}"));
        }
        out.paragraph(BELOW, 16, &format!("why: {}", judged.reason));
    }
    for judged in &c.scores {
        let p = &judged.published;
        let guest = judged.guest.as_deref().unwrap_or("no guest");
        let word = style.yellow(&format!("{:<14}", judged.verdict.to_string()));
        out.paragraph(&word, 14, &style.bold(&format!("{} of {guest}", p.group)));
        let published = format!("published: {:.0} % ({})", p.ratio * 100.0, p.citation);
        out.paragraph(BELOW, 16, &published);
        if let Some(ratio) = &judged.ratio {
            out.paragraph(BELOW, 16, &format!("here: {}", format::share(ratio)));
        }
        out.paragraph(BELOW, 16, &format!("why: {}", judged.reason));
    }
    for of in &c.unmeasured {
        out.paragraph(&style.yellow("not measured  "), 14, &style.bold(&of.word));
        let printed: Vec<String> = of.printed.iter().map(|(word, figure)| format!("{word} {figure}")).collect();
        out.paragraph(BELOW, 16, &format!("published: {} {} ({})", printed.join(", "), of.unit, of.citation));
        out.paragraph(BELOW, 16, &format!("why: {}", of.why));
    }
    if c.effects.is_empty() {
        return out.text;
    }
    out.line("");
    let count = |v: Verdict| c.effects.iter().filter(|e| e.verdict == v).count();
    out.paragraph(
        "",
        0,
        &format!(
            "{} hold, {} fail, {} are not decidable here. Ratios are geometric means of pairs of one round with 95 % \
             intervals; an effect is decided only when the whole interval lies on one side of its bound, when p is \
             below 0.05 after Holm's correction for the {} effects judged together, and when it is further from its \
             bound than the run's noise: how far apart two equal native cells may be by the spread of the native \
             rounds (docs/statistics.md).",
            count(Verdict::Holds),
            count(Verdict::Fails),
            count(Verdict::NotDecidable),
            c.judged_together
        ),
    );
    out.text
}

fn pairs<'a>(out: &mut Out, all: impl Iterator<Item = (&'a str, String)>) {
    let pairs = all.map(|(name, text)| (In::TERMINAL, Text::from(name), text)).collect();
    on_terminal(out, &[(In::TERMINAL, Block::Pairs(Pairs { indent: 2, width: 12, long: Name::Above, pairs }))]);
}

/// How likely the ratio is by chance, and the noise that it must exceed.
fn chance(judged: &Judged) -> Option<String> {
    let p = |p: f64| if p < 0.0001 { "below 0.0001".to_owned() } else { format!("{p:.4}") };
    let corrected = judged.corrected_p_value?;
    let noise = judged.noise_ratio.map_or("not known".to_owned(), |noise| format!("a factor of {noise:.2}"));
    Some(format!("p {}, corrected {}; noise {noise}", p(judged.p_value?), p(corrected)))
}

//! The baseline of a run in words: the host itself, or that of the study.

use vmio_model::cell::{Baseline, Cell, Like};
use vmio_model::summary::{CellRow, Share, Summary};

use super::format;

/// The baseline of a run's cells, in words.
#[derive(Debug, Clone, PartialEq)]
pub struct Versus(Baseline);

impl Versus {
    /// That of a run.
    pub fn of(summary: &Summary) -> Self {
        Self(summary.baseline.clone())
    }

    /// Whether anything is compared.
    pub fn any(&self) -> bool {
        self.0 != Baseline::None
    }

    /// `share of native`, the name of a share.
    pub fn share(&self) -> &'static str {
        match self.0 {
            Baseline::Native => "share of native",
            Baseline::Like(_) => "share of baseline",
            Baseline::None => "",
        }
    }

    /// The same with a capital.
    pub fn title(&self) -> String {
        format::capital(self.share())
    }

    /// The same as the head of a narrow column of a terminal.
    pub fn narrow(&self) -> &'static str {
        match self.0 {
            Baseline::Like(_) => "of its baseline",
            _ => self.share(),
        }
    }

    /// The sides of a pair: `guest/native`.
    pub fn pairs(&self) -> &'static str {
        match self.0 {
            Baseline::Native => "guest/native pairs",
            _ => "pairs of a cell and its baseline",
        }
    }

    /// The meaning of a share of 100 %.
    pub fn whole(&self) -> &'static str {
        match self.0 {
            Baseline::Native => "100 % = native",
            _ => "100 % = baseline",
        }
    }

    /// The baseline in a sentence; `None` where it is the host itself.
    pub fn explanation(&self) -> Option<String> {
        match &self.0 {
            Baseline::Native => None,
            Baseline::Like(like) => Some(format!("The baseline of a cell is {}.", in_words(like))),
            Baseline::None => Some("Nothing is compared: the study has no baseline.".to_owned()),
        }
    }

    /// The cell that a cell is compared with; `None` where there is none, or it is the cell itself.
    pub fn base(&self, cell: &Cell) -> Option<Cell> {
        self.0.of(cell).filter(|base| base != cell)
    }

    /// Why a cell that is compared has no share.
    pub fn lacks(&self, row: &CellRow, share: Option<&Share>) -> Option<&'static str> {
        match (share, self.base(&row.cell), &self.0) {
            (Some(_), ..) | (_, None, _) => None,
            (.., Baseline::Native) => Some("no share: no round has both this cell and the native one"),
            _ => Some("no share: no round has both this cell and its baseline"),
        }
    }

    /// Whether a cell's baseline has as many actors as the cell.
    pub fn has_as_many(&self, cell: &Cell) -> bool {
        self.0.of(cell).is_none_or(|base| base.beside.len() == cell.beside.len())
    }

    /// The text in place of a headline, where there is none.
    pub fn no_headline(&self, summary: &Summary) -> String {
        let cells = || summary.cells.iter().map(|c| &c.cell).chain(summary.skipped.iter().map(|s| &s.cell));
        let on_disk = cells().next().is_none() || cells().any(|cell| cell.target().is_some());
        let no_share = match self.0 {
            Baseline::None => return self.explanation().unwrap_or_default(),
            Baseline::Like(_) => "no cell was measured together with its baseline.",
            Baseline::Native if summary.is_native_only() => {
                return "Only native cells: no guest was requested, so no share can be stated. The figures are of this \
                        host."
                    .to_owned();
            }
            Baseline::Native if on_disk => "no virtio-blk guest was measured together with native.",
            Baseline::Native => "no guest was measured together with native.",
        };
        format!("No share can be stated: {no_share}")
    }
}

/// `the same with side native, no settings`.
fn in_words(like: &Like) -> String {
    let Like { side, target, state, network, peer, workload, alone, settings } = like;
    let state = &state.map(|state| state.to_string());
    let named = [
        ("side", side),
        ("target", target),
        ("state", state),
        ("network", network),
        ("peer", peer),
        ("workload", workload),
    ];
    let mut words: Vec<String> = named.iter().filter_map(|(key, v)| Some(format!("{key} {}", v.as_ref()?))).collect();
    words.extend(settings.as_ref().map(|settings| {
        if settings.is_empty() {
            "no settings".to_owned()
        } else {
            settings.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
        }
    }));
    words.extend(alone.then(|| "nobody beside".to_owned()));
    format!("the same with {}", words.join(", "))
}

/// The baseline of a study in a line of its plan; `None` where it is the host itself.
pub fn planned(baseline: &Baseline) -> Option<String> {
    match baseline {
        Baseline::Native => None,
        Baseline::Like(like) => Some(in_words(like)),
        Baseline::None => Some("none: nothing is compared".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use vmio_model::cell::Settings;

    use super::*;

    #[test]
    fn a_baseline_is_told_as_the_study_has_it() {
        let like = |like: Like| planned(&Baseline::Like(like));
        let settings =
            Settings::from([("mtu".to_owned(), "9000".to_owned()), ("read-ahead".to_owned(), "0k".to_owned())]);
        let all = Like { side: Some("qemu".into()), settings: Some(settings), alone: true, ..Like::default() };
        assert_eq!(like(all).as_deref(), Some("the same with side qemu, mtu=9000 read-ahead=0k, nobody beside"));
        let none = Like { settings: Some(Settings::new()), ..Like::default() };
        assert_eq!(like(none).as_deref(), Some("the same with no settings"));
        assert_eq!(planned(&Baseline::Native), None);
        assert_eq!(planned(&Baseline::None).as_deref(), Some("none: nothing is compared"));
    }
}

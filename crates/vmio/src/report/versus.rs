//! What the cells of a run are compared with, in words: the host itself, or what the study says.

use vmio_model::cell::{Baseline, Cell, Like};
use vmio_model::summary::{CellRow, Share, Summary};

use super::format;

/// What a run's cells are compared with.
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

    /// Of what a share is one: `share of native`.
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

    /// The same at the head of a column of the terminal's report, which is as narrow as `share of native`.
    pub fn narrow(&self) -> &'static str {
        match self.0 {
            Baseline::Like(_) => "of its baseline",
            _ => self.share(),
        }
    }

    /// Of what the pairs are: `guest/native`.
    pub fn pairs(&self) -> &'static str {
        match self.0 {
            Baseline::Native => "guest/native pairs",
            _ => "pairs of a cell and its baseline",
        }
    }

    /// What all of a share is.
    pub fn whole(&self) -> &'static str {
        match self.0 {
            Baseline::Native => "100 % = native",
            _ => "100 % = baseline",
        }
    }

    /// The baseline in a sentence, where a reader does not take it for granted.
    pub fn told(&self) -> Option<String> {
        match &self.0 {
            Baseline::Native => None,
            Baseline::Like(like) => Some(format!("The baseline of a cell is {}.", in_words(like))),
            Baseline::None => Some("Nothing is compared: the study has no baseline.".to_owned()),
        }
    }

    /// What a cell is compared with; `None` where that is nothing, or the cell itself.
    pub fn base(&self, cell: &Cell) -> Option<Cell> {
        self.0.of(cell).filter(|base| base != cell)
    }

    /// Why a cell has no share, where it should have one.
    pub fn lacks(&self, row: &CellRow, share: Option<&Share>) -> Option<&'static str> {
        match (share, self.base(&row.cell), &self.0) {
            (Some(_), ..) | (_, None, _) => None,
            (.., Baseline::Native) => Some("no share: no round has both this cell and the native one"),
            _ => Some("no share: no round has both this cell and its baseline"),
        }
    }

    /// Whether as many actors work in a cell's baseline as in itself.
    pub fn has_as_many(&self, cell: &Cell) -> bool {
        self.0.of(cell).is_none_or(|base| base.beside.len() == cell.beside.len())
    }

    /// What stands where a headline would be.
    pub fn no_headline(&self, summary: &Summary) -> String {
        let cells = || summary.cells.iter().map(|c| &c.cell).chain(summary.skipped.iter().map(|s| &s.cell));
        let on_disk = cells().next().is_none() || cells().any(|cell| cell.target().is_some());
        let no_share = match self.0 {
            Baseline::None => return self.told().unwrap_or_default(),
            Baseline::Like(_) => "no cell was measured together with its baseline.",
            Baseline::Native if summary.is_native_only() => {
                return "Only native cells: no guest was requested, so no share can be stated. The figures are those of \
                    this host itself."
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

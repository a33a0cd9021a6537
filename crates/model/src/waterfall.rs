//! The time of one request, layer by layer: what `vmio explain` tells.
//!
//! A layer that times requests sees them from when they enter it until they are completed, so its time includes all
//! layers below it. A part is the difference of two neighbouring layers that were timed. The differences add up to what
//! the application saw (a telescoping sum), whatever was timed.

pub mod cells;
pub mod cost;
pub mod host;
pub mod hypervisor;
pub mod live;
pub mod paths;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A layer that a request of a disk passes, from the top.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// The program, and the kernel above the block layer: system calls, file system, page cache.
    Application,
    /// The queue of the guest's block layer.
    GuestBlock,
    /// The guest's driver and the virtual device: from the driver to the hypervisor's block layer, and back.
    Virtual,
    /// The hypervisor's block layer. Of a run also the host's file system.
    Hypervisor,
    /// The host's system calls, file system and page cache. Only of a running guest.
    HostFiles,
    /// The queue of the host's block layer.
    HostBlock,
    /// The disk.
    Device,
}

impl Layer {
    /// The layers of a guest's request.
    pub const GUEST: &[Layer] =
        &[Layer::Application, Layer::GuestBlock, Layer::Virtual, Layer::Hypervisor, Layer::HostBlock, Layer::Device];
    /// The layers of a request of the host itself, or of a container.
    pub const NATIVE: &[Layer] = &[Layer::Application, Layer::HostBlock, Layer::Device];

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Layer::Application => "application",
            Layer::GuestBlock => "guest's block layer",
            Layer::Virtual => "virtual I/O",
            Layer::Hypervisor => "hypervisor",
            Layer::HostFiles => "host's file system",
            Layer::HostBlock => "host's block layer",
            Layer::Device => "device",
        }
    }
}

/// The time of a request in one layer, or in several that were not timed apart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WaterfallPart")]
pub struct Part {
    /// The layers, from the top.
    pub layers: Vec<Layer>,
    /// Seconds. Slightly below zero where the clocks of the two layers differ by more than the time between them.
    pub seconds: f64,
}

impl Part {
    /// Whether it is one layer's.
    pub fn is_of_one(&self) -> bool {
        self.layers.len() == 1
    }

    /// `hypervisor`, `host's block layer + device`.
    pub fn words(&self) -> String {
        self.layers.iter().map(|layer| layer.words()).collect::<Vec<_>>().join(" + ")
    }
}

/// Where the time of one request went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Waterfall {
    /// What the application saw, in seconds: the sum of the parts.
    pub total_seconds: f64,
    /// The parts, from the top.
    pub parts: Vec<Part>,
}

impl Waterfall {
    /// From what the application saw and from the times, with all that is below, of those layers that were timed.
    /// `layers` are those that there are, from the top; the first is the application's. Seconds.
    pub fn of(layers: &[Layer], total_seconds: f64, timed: &BTreeMap<Layer, f64>) -> Self {
        let mut parts: Vec<Part> = Vec::new();
        let mut above = total_seconds;
        for (at, layer) in layers.iter().enumerate() {
            match timed.get(layer).filter(|_| at > 0) {
                Some(&own) => {
                    if let Some(last) = parts.last_mut() {
                        last.seconds = above - own;
                    }
                    above = own;
                    parts.push(Part { layers: vec![*layer], seconds: own });
                }
                None => match parts.last_mut() {
                    Some(last) => last.layers.push(*layer),
                    None => parts.push(Part { layers: vec![*layer], seconds: total_seconds }),
                },
            }
        }
        Self { total_seconds, parts }
    }

    /// The mean of those that tell the most parts, and their number: others would have to be cut in other places. `None`
    /// without any.
    pub fn mean(all: &[Waterfall]) -> Option<(Waterfall, usize)> {
        let form = |one: &Waterfall| one.parts.iter().map(|part| part.layers.clone()).collect::<Vec<_>>();
        let best = form(all.iter().max_by_key(|one| one.parts.len())?);
        let like: Vec<&Waterfall> = all.iter().filter(|one| form(one) == best).collect();
        let mean = |of: &dyn Fn(&Waterfall) -> f64| like.iter().map(|one| of(one)).sum::<f64>() / like.len() as f64;
        let parts = best.into_iter().enumerate();
        let parts = parts.map(|(at, layers)| Part { layers, seconds: mean(&|one| one.parts[at].seconds) }).collect();
        Some((Waterfall { total_seconds: mean(&|one| one.total_seconds), parts }, like.len()))
    }

    /// The remainder: the parts of several layers, which were not timed apart.
    pub fn remainder(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(|part| !part.is_of_one())
    }

    /// Seconds of the remainder.
    pub fn remainder_seconds(&self) -> f64 {
        self.remainder().map(|part| part.seconds).sum()
    }

    /// The part that takes longest.
    pub fn longest(&self) -> Option<&Part> {
        self.parts.iter().max_by(|a, b| a.seconds.total_cmp(&b.seconds))
    }

    /// The share of the whole that would be saved if this part took no time: what its change brings at most.
    pub fn most_ratio(&self, part: &Part) -> f64 {
        if self.total_seconds > 0.0 { (part.seconds / self.total_seconds).clamp(0.0, 1.0) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn timed(of: &[(Layer, f64)]) -> BTreeMap<Layer, f64> {
        of.iter().copied().collect()
    }

    #[test]
    fn each_part_is_the_difference_of_two_neighbours() {
        let times = timed(&[(Layer::GuestBlock, 80.0), (Layer::Hypervisor, 50.0), (Layer::HostBlock, 30.0)]);
        let whole = Waterfall::of(Layer::GUEST, 100.0, &times);
        let told: Vec<(String, f64)> = whole.parts.iter().map(|part| (part.words(), part.seconds)).collect();
        let expected = [
            ("application", 20.0),
            ("guest's block layer + virtual I/O", 30.0),
            ("hypervisor", 20.0),
            ("host's block layer + device", 30.0),
        ];
        assert_eq!(told, expected.map(|(name, seconds)| (name.to_owned(), seconds)));
        assert_eq!(whole.remainder_seconds(), 60.0);
        assert_eq!(whole.most_ratio(&whole.parts[3]), 0.3);
    }

    #[test]
    fn without_times_all_is_one_part() {
        let whole = Waterfall::of(Layer::NATIVE, 5.0, &BTreeMap::new());
        assert_eq!((whole.parts.len(), whole.remainder_seconds()), (1, 5.0));
    }

    #[test]
    fn the_mean_is_of_those_that_tell_most() {
        let two = |host: f64| Waterfall::of(Layer::NATIVE, 10.0, &timed(&[(Layer::HostBlock, host)]));
        let blind = Waterfall::of(Layer::NATIVE, 90.0, &BTreeMap::new());
        let (mean, samples) = Waterfall::mean(&[blind, two(4.0), two(6.0)]).unwrap();
        assert_eq!((mean.total_seconds, mean.parts[0].seconds, samples), (10.0, 5.0, 2));
        assert_eq!(Waterfall::mean(&[]), None);
    }

    fn known() -> impl Strategy<Value = BTreeMap<Layer, f64>> {
        prop::collection::btree_map(prop::sample::select(Layer::GUEST), 0.0..1.0f64, 0..6)
    }

    proptest! {
        /// Whatever was timed, in whatever order of size: nothing is lost, each layer is told once, and those of a side
        /// alone.
        #[test]
        fn parts_and_remainder_are_what_the_application_saw(total in 0.0..1.0f64, times in known(), native: bool) {
            let layers = if native { Layer::NATIVE } else { Layer::GUEST };
            let whole = Waterfall::of(layers, total, &times);
            let one: f64 = whole.parts.iter().filter(|part| part.is_of_one()).map(|part| part.seconds).sum();
            prop_assert!((one + whole.remainder_seconds() - total).abs() < 1e-9);
            let told: Vec<Layer> = whole.parts.iter().flat_map(|part| part.layers.clone()).collect();
            prop_assert_eq!(told.as_slice(), layers);
        }

        #[test]
        fn the_mean_adds_up_too(totals in prop::collection::vec((0.0..1.0f64, known()), 1..5)) {
            let all: Vec<Waterfall> =
                totals.iter().map(|(total, times)| Waterfall::of(Layer::GUEST, *total, times)).collect();
            let (mean, samples) = Waterfall::mean(&all).unwrap();
            let sum: f64 = mean.parts.iter().map(|part| part.seconds).sum();
            prop_assert!(samples >= 1 && (sum - mean.total_seconds).abs() < 1e-9);
        }
    }
}

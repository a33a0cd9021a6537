//! Vessels ordered by the level at which they are full, in blocks with known sums: inserting, removing and finding the
//! water level read one block and the sums of the others. With blocks of a few hundred this is simpler than a tree and
//! faster up to some 100,000 vessels.

use super::level::{Level, Sum, Want};
use crate::rate::BitRate;

/// A larger block is split in halves.
const BLOCK: usize = 256;

#[derive(Debug, Clone, Default)]
struct Block {
    wants: Vec<Want>,
    sum: Sum,
}

/// The vessels of one step.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ladder {
    /// No block is empty; the last vessel of each is not after the first of the next.
    blocks: Vec<Block>,
    sum: Sum,
}

impl Ladder {
    /// Builds it from all vessels.
    pub fn new(mut wants: Vec<Want>) -> Ladder {
        wants.sort_unstable_by(Want::by_level);
        let block =
            |part: &[Want]| Block { wants: part.to_vec(), sum: part.iter().fold(Sum::default(), |sum, w| sum.add(w)) };
        let blocks: Vec<Block> = wants.chunks(BLOCK / 2).map(block).collect();
        let sum = blocks.iter().fold(Sum::default(), |sum, b| sum.plus(b.sum));
        Ladder { blocks, sum }
    }

    /// The first block whose last vessel is not before `want`.
    fn block_of(&self, want: &Want) -> usize {
        self.blocks.partition_point(|b| b.wants.last().is_some_and(|last| last.by_level(want).is_lt()))
    }

    pub fn insert(&mut self, want: Want) {
        self.sum = self.sum.add(&want);
        let at = self.block_of(&want).min(self.blocks.len().saturating_sub(1));
        let Some(block) = self.blocks.get_mut(at) else {
            self.blocks.push(Block { wants: vec![want], sum: Sum::default().add(&want) });
            return;
        };
        let place = block.wants.partition_point(|w| w.by_level(&want).is_lt());
        block.wants.insert(place, want);
        block.sum = block.sum.add(&want);
        if block.wants.len() > BLOCK {
            let upper = block.wants.split_off(BLOCK / 2);
            let sum = upper.iter().fold(Sum::default(), |sum, w| sum.add(w));
            block.sum = Sum { bits: block.sum.bits - sum.bits, weight: block.sum.weight - sum.weight };
            self.blocks.insert(at + 1, Block { wants: upper, sum });
        }
    }

    /// Removes one vessel equal to `want`, which must exist.
    pub fn remove(&mut self, want: &Want) {
        let mut at = self.block_of(want);
        let mut place = self.blocks[at].wants.partition_point(|w| w.by_level(want).is_lt());
        // Vessels of other sizes may be full at the same level.
        while self.blocks[at].wants[place] != *want {
            place += 1;
            if place == self.blocks[at].wants.len() {
                (at, place) = (at + 1, 0);
            }
        }
        let block = &mut self.blocks[at];
        block.wants.remove(place);
        block.sum = block.sum.less(want);
        self.sum = self.sum.less(want);
        if block.wants.is_empty() {
            self.blocks.remove(at);
        }
    }

    /// The level to which `pool` fills the vessels, and the rest, as [`super::level::fill`].
    pub fn fill(&self, pool: BitRate) -> (Level, BitRate) {
        if let Some(left) = u128::from(pool).checked_sub(self.sum.bits) {
            return (Level::Full, BitRate::of_sum(left));
        }
        let mut full = Sum::default();
        for block in &self.blocks {
            let with = full.plus(block.sum);
            let Some(last) = block.wants.last() else { continue };
            if with.affords(last, self.sum.weight, pool) {
                full = with;
                continue;
            }
            // The sum of full vessels grows with each one, so the first that cannot be full ends the search.
            for want in &block.wants {
                let with = full.add(want);
                if !with.affords(want, self.sum.weight, pool) {
                    break;
                }
                full = with;
            }
            break;
        }
        (Level::above(full, self.sum.weight, pool), BitRate::ZERO)
    }
}

//! The columns of the table of cells, and what stands in them.

use vmio_model::waterfall::{Layer, Part};

/// The parts of the table: a column of layers each.
pub const COLUMNS: [(&str, &[Layer]); 4] = [
    ("program", &[Layer::Application]),
    ("virtual\nI/O", &[Layer::GuestBlock, Layer::Virtual]),
    ("hyper-\nvisor", &[Layer::Hypervisor]),
    ("host and\ndevice", &[Layer::HostBlock, Layer::Device]),
];

/// Places of the columns whose layers a part has.
pub fn columns_of(part: &Part) -> Vec<usize> {
    (0..COLUMNS.len()).filter(|at| COLUMNS[*at].1.iter().any(|layer| part.layers.contains(layer))).collect()
}

/// The times in a row in seconds, each with the places of its columns. Parts that share a column are told together.
pub fn times_of(parts: &[Part]) -> Vec<(Vec<usize>, f64)> {
    let mut times: Vec<(Vec<usize>, f64)> = Vec::new();
    for part in parts {
        let places = columns_of(part);
        match times.last_mut().filter(|(known, _)| known.last() == places.first()) {
            Some((known, seconds)) => {
                known.extend(places.into_iter().skip(1));
                *seconds += part.seconds;
            }
            None => times.push((places, part.seconds)),
        }
    }
    times
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use vmio_model::waterfall::Waterfall;

    use super::*;

    /// What a request of 100 s has in its row, by the layers that were timed.
    fn row(timed: &[(Layer, f64)]) -> Vec<(Vec<usize>, f64)> {
        times_of(&Waterfall::of(Layer::GUEST, 100.0, &timed.iter().copied().collect::<BTreeMap<Layer, f64>>()).parts)
    }

    #[test]
    fn parts_that_share_a_column_are_added_up() {
        let (block, driver) = ((Layer::GuestBlock, 80.0), (Layer::Virtual, 65.0));
        let (hypervisor, host) = ((Layer::Hypervisor, 50.0), (Layer::HostBlock, 30.0));
        let four = [(vec![0], 20.0), (vec![1], 30.0), (vec![2], 20.0), (vec![3], 30.0)];
        assert_eq!(row(&[block, hypervisor, host]), four);
        assert_eq!(row(&[block, driver, hypervisor, host]), four, "both have a part of their own");
        // Virtual I/O and the hypervisor are one part, and the guest's block layer shares a column with it.
        let three = [(vec![0], 20.0), (vec![1, 2], 50.0), (vec![3], 30.0)];
        assert_eq!(row(&[block, driver, host]), three);
        assert_eq!(row(&[]), [(vec![0, 1, 2, 3], 100.0)]);
    }
}

//! Reshards a checkpoint of W ranks to N: writes the shards that N ranks of FSDP would have saved.
//!
//! The values of the first rank's file are the template. Every rank gets the same, except for its own part of each divided tensor, its
//! position in the mesh, and the number of ranks there. Source: torch 2.11 `distributed/device_mesh.py` (the content of a mesh),
//! `distributed/tensor/_dtensor_spec.py`, `distributed/tensor/placement_types.py` (a part has `ceil(n / N)` rows, the last ones fewer or
//! none).

mod pickle_rewrite;
mod template;

use crate::archive::ArchiveLayout;
use crate::archive_writer::Archives;
use crate::fsdp::{self, FsdpShard};
use crate::layout::TensorRange;
use crate::model::ModelWeights;
use crate::problem::ModelError;
use crate::read::{ModelReader, SharedSource};
use crate::write::{OutputSink, WriteError};
use std::ops::ControlFlow;
use supervise_checkpoint::InspectLimits;
use template::Template;

/// The files of all new ranks, of one kind.
#[derive(Debug)]
pub struct ReshardPlan {
    weights: ModelWeights,
    archives: Archives,
}

/// The files to build the new shards from.
#[derive(Clone, Copy)]
pub struct ReshardSource<'a> {
    /// Shards of all ranks, in order.
    pub shards: &'a [FsdpShard],
    /// The same files, open.
    pub sources: &'a [Box<SharedSource>],
    pub limits: &'a InspectLimits,
    /// FSDP1's flat parameters, if it is such an optimizer.
    pub flat: Option<&'a fsdp::FlatParams>,
    /// If it is the position in the data: the number of ranks that saved it, for recounting the samples that each has drawn.
    pub samples_of: Option<u64>,
}

/// Plans the files of `world` ranks. `name` gives the path of a rank's file, without its extension.
///
/// # Errors
/// Shards that cannot be assembled, or contain something whose form for another number of ranks is not known.
pub fn plan(source: ReshardSource<'_>, world: u64, name: &dyn Fn(u64) -> String) -> Result<ReshardPlan, ModelError> {
    let weights = gathered(source)?;
    let template = Template::read(source, &weights)?;
    let mut archives = Archives::default();
    for rank in 0..world {
        let made = template.for_rank(rank, world)?;
        let path = name(rank);
        // An archive has its file's name, without directories.
        let prefix = path.rsplit('/').next().unwrap_or_default();
        let layout = ArchiveLayout::of(prefix, &made.entries)?;
        archives.begin(format!("{path}.pt"));
        archives.add(layout, made.entries, made.storages);
    }
    Ok(ReshardPlan { weights, archives })
}

/// Whether two files have the same values, whatever their locations.
///
/// # Errors
/// A file that cannot be read.
pub fn same_values(one: ReshardSource<'_>, other: ReshardSource<'_>) -> Result<bool, ModelError> {
    let values = |source: ReshardSource<'_>| {
        let weights = gathered(source)?;
        let made = Template::read(source, &weights)?.for_rank(0, 1)?;
        let pickled = made.entries.into_iter().find(|e| e.name == template::PICKLE);
        Ok::<_, ModelError>(pickled.and_then(|e| e.bytes))
    };
    Ok(values(one)? == values(other)?)
}

impl ReshardPlan {
    /// Names and lengths of the files, in rank order.
    pub fn files(&self) -> impl Iterator<Item = (&str, u64)> {
        self.archives.files()
    }

    /// Writes all files. Returns the number of source bytes whose checksums were compared.
    ///
    /// # Errors
    /// A source that is damaged or cannot be read, an output that cannot be written.
    pub fn write(
        &self,
        sources: &[Box<SharedSource>],
        target: &dyn OutputSink,
        threads: usize,
        progress: &mut (dyn FnMut(u64) -> ControlFlow<()> + Send),
    ) -> Result<u64, WriteError> {
        let reading = ModelReader::new(&self.weights, sources);
        self.archives.write(reading, target, threads, progress)
    }
}

fn gathered(source: ReshardSource<'_>) -> Result<ModelWeights, ModelError> {
    match source.flat {
        Some(flat) => fsdp::gather_flat(source.shards, flat),
        None => fsdp::gather(source.shards),
    }
}

/// A rank's piece of a flat parameter: padded to the length of every other.
fn filled(tensor: usize, n: u64, rank: u64, world: u64) -> (Vec<u64>, Vec<TensorRange>) {
    let (from, to) = part(n, rank, world);
    let piece = (from < to).then_some(TensorRange { tensor, from, to });
    (vec![n.div_ceil(world.max(1))], piece.into_iter().collect())
}

/// A rank's range along the divided dimension.
fn part(n: u64, rank: u64, world: u64) -> (u64, u64) {
    let split = n.div_ceil(world.max(1));
    let from = rank.saturating_mul(split).min(n);
    (from, from.saturating_add(split).min(n))
}

fn pieces(tensor: usize, shape: &[u64], cut: Option<usize>, rank: u64, world: u64) -> (Vec<u64>, Vec<TensorRange>) {
    let all = crate::model::elements(shape);
    let Some(dim) = cut else {
        let piece = TensorRange {
            tensor,
            from: 0,
            to: all,
        };
        return (shape.to_vec(), vec![piece]);
    };
    let (lo, hi) = part(shape[dim], rank, world);
    let mut own = shape.to_vec();
    own[dim] = hi - lo;
    let outer: u64 = shape[..dim].iter().product();
    let inner: u64 = shape[dim + 1..].iter().product();
    if all == 0 {
        return (own, Vec::new());
    }
    let rows = (0..outer).map(|o| TensorRange {
        tensor,
        from: (o * shape[dim] + lo) * inner,
        to: (o * shape[dim] + hi) * inner,
    });
    (own, rows.filter(|p| p.from < p.to).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_parts_of_all_ranks_are_the_whole(shape in proptest::collection::vec(0_u64..7, 1..4), world in 1_u64..9, dim: prop::sample::Index) {
            let dim = dim.index(shape.len());
            let mut seen = vec![0; crate::model::elements(&shape) as usize];
            for rank in 0..world {
                let (own, pieces) = pieces(0, &shape, Some(dim), rank, world);
                let held: u64 = pieces.iter().map(|p| p.to - p.from).sum();
                prop_assert_eq!(held, crate::model::elements(&own));
                for piece in pieces {
                    for at in piece.from..piece.to {
                        seen[at as usize] += 1;
                    }
                }
            }
            prop_assert!(seen.iter().all(|n| *n == 1));
        }
    }

    #[test]
    fn parts_are_those_of_torch_chunk() {
        let parts = |n, world| (0..world).map(|r| part(n, r, world)).collect::<Vec<_>>();
        assert_eq!(parts(10, 4), [(0, 3), (3, 6), (6, 9), (9, 10)]);
        assert_eq!(parts(9, 4), [(0, 3), (3, 6), (6, 9), (9, 9)]);
        assert_eq!(parts(1, 3), [(0, 1), (1, 1), (1, 1)]);
    }
}

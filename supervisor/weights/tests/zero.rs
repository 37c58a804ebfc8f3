//! DeepSpeed's files put together: those that it wrote itself, and the same after any change of their values.
//!
//! `deepspeed/{two,three}` are checkpoints of DeepSpeed 0.19.8 on two CPU ranks, `tests/real/zero_writers.py --small`; the safetensors beside
//! them are what its own `zero_to_fp32` makes of them.

use proptest::prelude::*;
use supervise_checkpoint::{FileKind, InspectLimits, inspect};
use supervise_core::checkpoint::Verdict;
use supervise_weights::deepspeed::{ZeroSource, gather};
use supervise_weights::fsdp::FsdpShard;
use supervise_weights::{ModelError, ModelReader, ModelWeights, SharedSource, safetensors};

const TWO: [&[u8]; 3] = [
    include_bytes!("deepspeed/two/global_step2/mp_rank_00_model_states.pt"),
    include_bytes!("deepspeed/two/global_step2/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"),
    include_bytes!("deepspeed/two/global_step2/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"),
];
const THREE: [&[u8]; 4] = [
    include_bytes!("deepspeed/three/global_step2/zero_pp_rank_0_mp_rank_00_model_states.pt"),
    include_bytes!("deepspeed/three/global_step2/zero_pp_rank_1_mp_rank_00_model_states.pt"),
    include_bytes!("deepspeed/three/global_step2/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"),
    include_bytes!("deepspeed/three/global_step2/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"),
];

fn read(files: &[&[u8]]) -> Vec<Vec<u8>> {
    files.iter().map(|bytes| bytes.to_vec()).collect()
}

fn put_together(files: &[Vec<u8>], models: usize) -> Result<(ModelWeights, Vec<Box<SharedSource>>), ModelError> {
    let limits = InspectLimits::default();
    let shards: Vec<FsdpShard> = files
        .iter()
        .enumerate()
        .map(|(n, bytes)| FsdpShard {
            path: format!("{n}.pt").into(),
            found: inspect(FileKind::TorchZip, bytes, &limits),
        })
        .collect();
    let sources: Vec<Box<SharedSource>> = files.iter().map(|b| Box::new(b.clone()) as Box<SharedSource>).collect();
    let weights = gather(ZeroSource {
        shards: &shards,
        sources: &sources,
        models,
        limits: &limits,
    })?;
    Ok((weights, sources))
}

/// Every number of every tensor.
fn numbers(weights: &ModelWeights, sources: &[Box<SharedSource>]) -> Result<Vec<(String, Vec<u8>)>, ModelError> {
    let reading = ModelReader::new(weights, sources);
    let mut out = Vec::new();
    for tensor in &weights.tensors {
        let mut bytes = vec![0; (tensor.elements() * tensor.dtype.size()) as usize];
        reading.fill(tensor, 0, &mut bytes, &mut Vec::new())?;
        out.push((tensor.name.clone(), bytes));
    }
    reading.settle()?;
    Ok(out)
}

fn expected(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let bytes = bytes.to_vec();
    let found = inspect(FileKind::Safetensors, &bytes, &InspectLimits::default());
    let weights = safetensors::gather(&[("all".into(), found)]).unwrap_or_default();
    let sources = [Box::new(bytes) as Box<SharedSource>];
    numbers(&weights, &sources).unwrap_or_default()
}

#[test]
fn what_deepspeed_wrote_is_what_it_makes_of_it_itself() {
    let two: &[u8] = include_bytes!("deepspeed/two.safetensors");
    let three: &[u8] = include_bytes!("deepspeed/three.safetensors");
    for (files, models, want) in [(&TWO[..], 1, two), (&THREE[..], 2, three)] {
        let (weights, sources) = put_together(&read(files), models).unwrap();
        let want = expected(want);
        assert_eq!(want.len(), 15);
        assert!(numbers(&weights, &sources).unwrap() == want, "{models}");
    }
}

#[test]
fn files_that_do_not_belong_together_are_refused() {
    let (two, three) = (read(&TWO), read(&THREE));
    let verdict = |files: &[&Vec<u8>], models| {
        let files: Vec<Vec<u8>> = files.iter().map(|b| (*b).clone()).collect();
        put_together(&files, models).err().map(|e| e.verdict)
    };
    assert_eq!(verdict(&[&two[0], &two[1]], 1), Some(Verdict::Incomplete));
    assert_eq!(verdict(&[&two[0]], 1), Some(Verdict::Incomplete));
    assert_eq!(
        verdict(&[&three[0], &three[2], &three[3]], 1),
        Some(Verdict::Incomplete)
    );
    assert!(verdict(&[&two[0], &two[1], &three[3]], 1).is_some());
    assert!(verdict(&[&two[1], &two[0], &two[2]], 1).is_some());
    assert!(verdict(&[&two[0], &two[1], &Vec::new()], 1).is_some());
    assert_eq!(verdict(&[], 0), Some(Verdict::Incomplete));
}

/// The values of an archive, which stand in it as they are.
fn values(file: &[u8]) -> std::ops::Range<usize> {
    let begin = file.windows(2).position(|w| w == b"\x80\x02").unwrap_or(0);
    let end = file[begin..].windows(4).position(|w| w == b"PK\x07\x08").unwrap_or(0);
    begin..begin + end
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    /// Values that were changed, with a checksum that says so or does not, are refused or put together: nothing outside of the files is read.
    #[test]
    fn any_change_of_the_values_has_an_answer(
        third: bool, pick: usize, at: Vec<usize>, byte: u8, mended: bool,
    ) {
        let (files, models) = if third { (&THREE[..], 2) } else { (&TWO[..], 1) };
        let mut files = read(files);
        let pick = pick % files.len();
        let file = &mut files[pick];
        let place = values(file);
        prop_assert!(place.len() > 500);
        for n in at {
            file[place.start + n % place.len()] = byte;
        }
        if mended {
            mend(file, place);
        }
        if let Ok((weights, sources)) = put_together(&files, models) {
            let _ = numbers(&weights, &sources);
        }
    }
}

/// Gives the values the checksum that they have now: in the descriptor behind them, and in the directory.
fn mend(file: &mut [u8], place: std::ops::Range<usize>) {
    let crc = crc32fast::hash(&file[place.clone()]).to_le_bytes();
    let old: Vec<u8> = file[place.end + 4..place.end + 8].to_vec();
    for at in 0..file.len() - 4 {
        if file[at..at + 4] == *old {
            file[at..at + 4].copy_from_slice(&crc);
        }
    }
}

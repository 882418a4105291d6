//! Every target on its seeds, and on inputs that are made from them: the same ones in every run. Nothing steers them, as
//! `tools/fuzz` would; this finds what lies near the seeds, and keeps what was found from coming back.
#![allow(clippy::expect_used, clippy::panic, reason = "a test says what it expects")]

use std::path::Path;

use fuzz::targets;

/// Inputs for each target besides its seeds.
const INPUTS: usize = 10_000;
const LONGEST: usize = 4096;

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let mut files: Vec<_> = std::fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} holds no seed", directory.display());
    files.iter().map(|file| std::fs::read(file).expect("a seed")).collect()
}

/// A seed with a few changes: bytes replaced, removed, repeated, or taken from another seed.
fn changed(seeds: &[Vec<u8>], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut input = seeds[random.usize(..seeds.len())].clone();
    for _ in 0..=random.usize(..6) {
        let at = random.usize(..=input.len());
        let end = (at + random.usize(..16)).min(input.len());
        match random.u8(..5) {
            0 if at < input.len() => input[at] = random.u8(..),
            1 if at < input.len() => input[at] ^= 1 << random.u8(..8),
            2 => drop(input.drain(at..end)),
            3 => {
                let again = input[at..end].to_vec();
                input.splice(at..at, again);
            }
            _ => {
                let other = &seeds[random.usize(..seeds.len())];
                let from = random.usize(..=other.len());
                let to = (from + random.usize(..32)).min(other.len());
                input.splice(at..end, other[from..to].iter().copied());
            }
        }
    }
    input.truncate(LONGEST);
    input
}

fn run(name: &str) {
    let target = targets::find(name).expect("a target");
    let seeds = seeds(name);
    let mut random = fastrand::Rng::with_seed(1);
    let made = (0..INPUTS).map(|_| changed(&seeds, &mut random));
    for input in seeds.iter().cloned().chain(made) {
        let ran = std::panic::catch_unwind(|| target(&input));
        assert!(ran.is_ok(), "{name} fails for {:?}", String::from_utf8_lossy(&input));
    }
}

macro_rules! targets {
    ($($test:ident: $name:literal),* $(,)?) => {
        $(#[test] fn $test() { run($name); })*

        #[test]
        fn every_target_is_run() {
            let run = [$($name),*];
            let all = targets::ALL.map(|(name, _)| name);
            assert_eq!(run, all);
        }
    };
}

targets! {
    apply: "apply",
    body: "body",
    cni_stdin: "cni-stdin",
    hello: "hello",
    http: "http",
    networks: "networks",
    patch: "patch",
    preamble: "preamble",
    proxy: "proxy",
    selectors: "selectors",
    setting: "setting",
    wire: "wire",
}

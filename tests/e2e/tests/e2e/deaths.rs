//! Whatever of a machine is killed, together with whatever else: it goes on or it ends, nothing is left of it, and its neighbours notice
//! nothing.
//!
//! `GODWIT_SEED` draws others. `GODWIT_DEATHS` says how many of the 31 combinations are tried (`31` is all of them).

use std::collections::BTreeSet;
use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use e2e::{Counter, Installation, Place, Pod, Processes, Signal, simple_instance};

use crate::{PATIENCE, TIDY, asked, seed};

const NODE: &str = "node-1";
/// Who asks the guests.
const ASKER: Place<'static> = Place::Node("node-2");
/// How many combinations are tried unless told otherwise.
const FEW: usize = 8;
/// How many machines die at a time.
const AT_ONCE: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Launcher,
    Libvirtd,
    Qemu,
    Handler,
    Pod,
}

const PARTS: [Part; 5] = [Part::Launcher, Part::Libvirtd, Part::Qemu, Part::Handler, Part::Pod];

/// What is killed at the same moment.
#[derive(Clone)]
struct Combination(BTreeSet<Part>);

impl Combination {
    /// Every one that kills something.
    fn all() -> Vec<Self> {
        let chosen =
            |bits: u32| (0..).zip(PARTS).filter(move |(bit, _)| bits >> bit & 1 == 1).map(|(_, part)| part);
        (1..1 << PARTS.len()).map(|bits| Self(chosen(bits).collect())).collect()
    }

    /// A guest does not need these: they are started again.
    fn spares_the_guest(&self) -> bool {
        self.0.iter().all(|part| matches!(part, Part::Libvirtd | Part::Handler))
    }
}

impl fmt::Display for Combination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.0.iter().map(|part| format!("{part:?}").to_lowercase()).collect();
        f.write_str(&names.join(" + "))
    }
}

/// A machine that something is done to.
struct Victim {
    name: String,
    combination: Combination,
    pod: Pod,
    /// None: it is killed before it could have one.
    address: Option<String>,
}

#[test]
fn whatever_is_killed_nothing_is_left_and_neighbours_go_on() {
    let seed = seed();
    let count = asked("GODWIT_DEATHS").map_or(FEW, |count| usize::try_from(count).unwrap());
    println!("GODWIT_SEED={seed} GODWIT_DEATHS={count}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut combinations = Combination::all();
    assert_eq!(combinations.len(), 31);
    random.shuffle(&mut combinations);
    combinations.truncate(count);
    // A handler is all machines' of its node: it dies for all of them, or for none.
    let (with, without): (Vec<_>, Vec<_>) =
        combinations.into_iter().partition(|combination| combination.0.contains(&Part::Handler));

    let lab = Installation::new("");
    let neighbour = Neighbour::start(&lab);
    let before = lab.footprint();
    for (round, batch) in without.chunks(AT_ONCE).chain(with.chunks(AT_ONCE)).enumerate() {
        // One round in three kills while machines are still being made.
        let early = random.u8(..3) == 0;
        let victims = start(&lab, round, batch, early);
        if early {
            thread::sleep(Duration::from_millis(random.u64(..3000)));
        }
        let killed = Instant::now();
        kill(&lab, &victims, &mut random);
        for victim in &victims {
            settled(&lab, victim, TIDY.saturating_sub(killed.elapsed()));
            println!(
                "round {round}{}: {}: {:.1?}",
                if early { ", early" } else { "" },
                victim.combination,
                killed.elapsed()
            );
        }
        neighbour.is_well(&lab);
        lab.kubectl_ok(&["delete", "vmi", "-l", "made=by-test", "--timeout=60s"]);
        lab.until_all_is_as(&before, TIDY.saturating_sub(killed.elapsed()).max(PATIENCE));
        println!("round {round}: from the kill to the last trace: {:.1?}", killed.elapsed());
        neighbour.is_well(&lab);
    }
    println!("longest silence of the neighbour: {:.1?}", neighbour.counter.longest_silence());
}

/// Starts a machine for each; those that are to be killed early only have a pod that runs.
fn start(lab: &Installation, round: usize, batch: &[Combination], early: bool) -> Vec<Victim> {
    let names: Vec<_> = (0..batch.len()).map(|index| format!("goes-{round}-{index}")).collect();
    lab.apply(&names.iter().map(|name| simple_instance(name, NODE)).collect::<String>());
    let victim = |(name, combination): (&String, &Combination)| {
        let pod = lab.until("its launcher pod runs", TIDY, || lab.launcher(name));
        let answering = || {
            let address = lab.until("it has an address", TIDY, || lab.address(name));
            lab.until_it_is("it answers", TIDY, || lab.echo(ASKER, &address, "hello"));
            address
        };
        let address = (!early).then(answering);
        Victim { name: name.clone(), combination: combination.clone(), pod, address }
    };
    names.iter().zip(batch).map(victim).collect()
}

/// Kills everything at once, in any order.
fn kill(lab: &Installation, victims: &[Victim], random: &mut fastrand::Rng) {
    let (mut targets, mut forced) = (Vec::new(), Vec::new());
    for victim in victims {
        for part in &victim.combination.0 {
            let which = match part {
                Part::Handler => continue,
                // Two ways for a pod to be gone all at once.
                Part::Pod if random.bool() => {
                    forced.push(victim.pod.name.as_str());
                    continue;
                }
                Part::Pod => Processes::First,
                Part::Launcher => Processes::NamedButFirst("virt-launcher"),
                Part::Libvirtd => Processes::Named("libvirtd"),
                Part::Qemu => Processes::Named("qemu-system"),
            };
            targets.push((&victim.pod, which));
        }
    }
    let with_handler = victims.iter().any(|victim| victim.combination.0.contains(&Part::Handler));
    let handler = with_handler.then(|| lab.handler(NODE));
    targets.extend(handler.iter().map(|handler| (handler, Processes::All)));
    random.shuffle(&mut targets);
    lab.signal(NODE, &targets, Signal::Kill);
    for pod in forced {
        lab.kubectl_ok(&["delete", "pod", pod, "--grace-period=0", "--force"]);
    }
}

/// Waits until the machine runs on or has ended, as it should.
fn settled(lab: &Installation, victim: &Victim, within: Duration) {
    let (name, end) = (victim.name.as_str(), Instant::now() + within);
    let what = format!("{name}, after the death of {}", victim.combination);
    let runs = |address: &str| lab.phase(name) == "Running" && lab.echo(ASKER, address, "still here");
    match &victim.address {
        Some(address) if victim.combination.spares_the_guest() => {
            lab.until_it_is(&format!("{what}, goes on"), within, || runs(address));
            return;
        }
        Some(_) => lab.until_it_is(&format!("{what}, has ended"), within, || lab.has_ended(name)),
        None => lab.until_it_is(&format!("{what}, goes on or has ended"), within, || {
            lab.has_ended(name) || lab.address(name).is_some_and(|address| runs(&address))
        }),
    }
    if lab.has_ended(name) {
        lab.until_it_has_nothing(&victim.pod, end.saturating_duration_since(Instant::now()));
    }
}

/// A machine on the same node that nothing is done to.
struct Neighbour {
    pod: Pod,
    counter: Counter,
    has: BTreeSet<String>,
}

impl Neighbour {
    fn start(lab: &Installation) -> Self {
        lab.apply(&simple_instance("stays", NODE).replace("made: by-test", "made: to-stay"));
        let address = lab.until("it has an address", PATIENCE, || lab.address("stays"));
        lab.until_it_is("it answers", PATIENCE, || lab.echo(ASKER, &address, "hello"));
        let pod = lab.launcher("stays").unwrap();
        let mut neighbour = Self { pod, counter: lab.counter(ASKER, &address), has: BTreeSet::new() };
        neighbour.has = neighbour.look(lab);
        neighbour
    }

    fn look(&self, lab: &Installation) -> BTreeSet<String> {
        let mut all: BTreeSet<_> =
            lab.footprint().into_iter().filter(|line| line.contains(&self.pod.uid)).collect();
        let inside = "ip -j address; ip -j route; bridge -j link";
        all.insert(lab.shell(Place::PodNetwork(&self.pod), inside));
        all
    }

    fn is_well(&self, lab: &Installation) {
        self.counter.goes_on(lab);
        assert_eq!(self.look(lab), self.has, "the neighbour was touched");
        assert_eq!(lab.phase("stays"), "Running");
    }
}

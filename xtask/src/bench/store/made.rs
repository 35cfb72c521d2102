//! Profiles as a fleet of services sends them, the same for the same seed.
//!
//! Each service is a program: a call tree whose nodes are stacks, most of them with runtime and libraries that all programs share. How
//! often a stack is met follows Zipf's law, so that a few stacks have most samples and many are met once. Pods of a service run the same
//! program.

use anyhow::Context;
use model::Timestamp;
use model::samples::{Batch, Frame, FrameId, Labels, Sample, Series};
use wire::pyroscope::{self, Encoding, LabelPair, PushRequest, RawProfileSeries, RawSample, pprof};

use crate::law::dice::Dice;

const SECOND_NS: i64 = 1_000_000_000;
/// When the first profile begins.
pub(super) const EPOCH_NS: i64 = 20_000 * 86_400 * SECOND_NS;
/// How often a pod sends.
pub(super) const PUSH_EVERY_NS: i64 = 15 * SECOND_NS;
/// Stacks of a program.
const STACKS: usize = 3_000;
/// Frames of a stack at most.
const DEPTH: usize = 48;
/// Functions that a program calls, of them those of the runtime.
const FUNCTIONS: usize = 900;
const RUNTIME: usize = 400;
/// What a CPU timer stands for: 100 Hz of pprof, 19 Hz of the agent.
const PPROF_PERIOD_NS: i64 = 10_000_000;
const AGENT_PERIOD_NS: i64 = 52_631_579;
/// How often a packet of the agent ends.
const PACKET_NS: i64 = 5 * SECOND_NS;
/// Processors of a machine that are busy.
const BUSY: i64 = 4;

/// A function and a line in it.
type Place = (usize, u32);

/// What a service runs.
struct Program {
    service: usize,
    /// Node and its parent; the parent comes first.
    nodes: Vec<(Place, Option<usize>)>,
    /// Bytes that are allocated at once there.
    sizes: Vec<i64>,
    /// Shares of the nodes, summed up: what is met is the first above a throw.
    shares: Vec<f64>,
}

impl Program {
    fn new(service: usize, seed: u64) -> anyhow::Result<Self> {
        let mut dice = Dice::new(seed.wrapping_add(service as u64 * 7_919));
        let mut nodes: Vec<(Place, Option<usize>)> = Vec::with_capacity(STACKS);
        let mut depths: Vec<usize> = Vec::with_capacity(STACKS);
        for at in 0..STACKS {
            // Paths grow at their end most of the time.
            let near = at.saturating_sub(1 + dice.below(6));
            let parent = if dice.once_in(4) { dice.below(at) } else { near };
            let depth = depths.get(parent).map_or(0, |depth| depth + 1);
            let (parent, depth) = if depth < DEPTH { (parent, depth) } else { (0, 1) };
            let function =
                if dice.once_in(3) { dice.below(RUNTIME) } else { dice.below(FUNCTIONS) };
            let line = u32::try_from(20 + 10 * (function % 90) + dice.below(8))?;
            nodes.push(((function, line), (at > 0).then_some(parent)));
            depths.push(depth);
        }
        let mut ranks: Vec<usize> = (0..STACKS).collect();
        for at in (1..STACKS).rev() {
            ranks.swap(at, dice.below(at + 1));
        }
        let mut sum = 0.0;
        let share = |rank: &usize| {
            sum += 1.0 / ((rank + 1) as f64).powf(1.1);
            sum
        };
        let shares = ranks.iter().map(share).collect();
        let sizes = (0..STACKS).map(|_| 16 * (1 + dice.below(4_096) as i64)).collect();
        Ok(Self { service, nodes, sizes, shares })
    }

    fn meet(&self, dice: &mut Dice) -> usize {
        let all = self.shares.last().copied().unwrap_or_default();
        let throw = (dice.roll() >> 11) as f64 / (1_u64 << 53) as f64 * all;
        self.shares.partition_point(|share| *share < throw).min(STACKS - 1)
    }

    /// The innermost first.
    fn stack(&self, node: usize) -> Vec<Place> {
        let mut stack = Vec::new();
        let mut at = Some(node);
        while let Some((place, parent)) = at.and_then(|at| self.nodes.get(at)) {
            stack.push(*place);
            at = *parent;
        }
        stack
    }

    fn function(&self, function: usize) -> (String, String) {
        const WORDS: [&str; 8] =
            ["cart", "order", "index", "cache", "codec", "route", "retry", "batch"];
        let word = |n: usize| WORDS.get(n % WORDS.len()).copied().unwrap_or_default();
        if function < RUNTIME {
            let package = word(function / 8);
            let name = format!("runtime/{package}.(*{}{function}).step", word(function));
            return (name, format!("/usr/local/go/src/runtime/{package}/{}.go", function / 8));
        }
        let (service, package) = (self.service, word(function / 8));
        let name = format!(
            "example.org/shop/svc{service}/internal/{package}.(*{}{function}).Do",
            word(function)
        );
        (name, format!("/build/shop/svc{service}/internal/{package}/{}.go", function / 8))
    }
}

/// Services with their pods.
pub(super) struct Fleet {
    programs: Vec<Program>,
    pods: usize,
    dice: Dice,
}

/// What pods push: the labels of each of its profiles say which.
const KINDS: [(&str, &str, &str); 2] =
    [("process_cpu", "cpu", "nanoseconds"), ("memory", "alloc_space", "bytes")];

impl Fleet {
    pub(super) fn new(services: usize, pods: usize, seed: u64) -> anyhow::Result<Self> {
        let programs = (0..services).map(|service| Program::new(service, seed));
        let programs = programs.collect::<anyhow::Result<_>>()?;
        Ok(Self { programs, pods, dice: Dice::new(seed) })
    }

    pub(super) fn pods(&self) -> usize {
        self.programs.len() * self.pods
    }

    pub(super) fn series(&self) -> usize {
        self.pods() * KINDS.len()
    }

    /// When a pod's push of a round begins: pods are spread over the time between two, and no timer is exact.
    pub(super) fn begin_ns(&mut self, round: i64, pod: usize) -> i64 {
        let spread = PUSH_EVERY_NS / self.pods().max(1) as i64 * pod as i64;
        EPOCH_NS + round * PUSH_EVERY_NS + spread + self.dice.below(3_000_000) as i64
    }

    /// The body of a `PushRequest` with a CPU profile and one of allocations.
    pub(super) fn push(&mut self, begin_ns: i64, pod: usize) -> anyhow::Result<Vec<u8>> {
        let program = self.programs.get(pod / self.pods).context("no such service")?;
        let mut series = Vec::new();
        for (kind, (name, sample_type, unit)) in KINDS.iter().enumerate() {
            let mut met = std::collections::BTreeMap::<usize, i64>::new();
            let throws =
                if kind == 0 { 500 + self.dice.below(500) } else { 200 + self.dice.below(200) };
            for _ in 0..throws {
                *met.entry(program.meet(&mut self.dice)).or_default() += 1;
            }
            let value = |(node, count): (usize, i64)| {
                let size = program.sizes.get(node).copied().unwrap_or(16);
                (node, count * if kind == 0 { PPROF_PERIOD_NS } else { size })
            };
            let profile =
                Pprof::new(program, [sample_type, unit], begin_ns, met.into_iter().map(value));
            let pairs = [
                ("__name__", (*name).to_owned()),
                ("service_name", format!("svc{}", program.service)),
                ("namespace", format!("team{}", program.service % 7)),
                ("pod", format!("svc{}-6f7d8c9b5-{:05x}", program.service, pod * 7_919)),
                ("region", "eu-central-1".to_owned()),
            ];
            let labels = pairs.map(|(name, value)| LabelPair { name: name.to_owned(), value });
            let id = (u128::from(self.dice.roll()) << 64) | u128::from(self.dice.roll());
            let sample = RawSample {
                raw_profile: pyroscope::encode(&profile.0, Encoding::Proto),
                id: uuid(id),
            };
            series.push(RawProfileSeries { labels: labels.to_vec(), samples: vec![sample] });
        }
        Ok(pyroscope::encode(&PushRequest { series }, Encoding::Proto))
    }

    /// Samples of a machine's processors, one of each service, as a packet of the agent has them: each at its own time.
    pub(super) fn packet(&mut self, number: i64, machine: usize) -> anyhow::Result<Batch> {
        let mut batch = Batch::new();
        let host = format!("node-{machine:03}");
        let profile = (u128::from(self.dice.roll()) << 64) | u128::from(self.dice.roll());
        let mut frames = std::collections::HashMap::<(usize, Place), FrameId>::new();
        let begin_ns = EPOCH_NS + number * PACKET_NS;
        for processor in 0..BUSY {
            let phase = processor * 11_111_111 + machine as i64 * 1_234_567;
            for tick in 0..PACKET_NS / AGENT_PERIOD_NS {
                let service = self.dice.below(self.programs.len());
                let program = self.programs.get(service).context("no such service")?;
                let stack = program.stack(program.meet(&mut self.dice));
                let stack: Vec<FrameId> = stack
                    .into_iter()
                    .map(|(function, line)| {
                        *frames.entry((service, (function, line))).or_insert_with(|| {
                            let (name, file) = program.function(function);
                            let (function, file) = (batch.text(&name), batch.text(&file));
                            batch.frame(Frame { function, file, line, ..Frame::default() })
                        })
                    })
                    .collect();
                let stack = batch.stack(&stack);
                let name = format!("svc{service}");
                let labels = Labels::new([("service_name", &*name), ("host.name", &host)]);
                let profile_type = "process_cpu:cpu:nanoseconds:cpu:nanoseconds".parse()?;
                let series = batch.series(Series { profile_type, labels });
                // A timer's interrupt is late by some microseconds.
                let late = (self.dice.below(4_000) + self.dice.below(4_000)) as i64;
                let at = Timestamp::from_nanos(begin_ns + phase + tick * AGENT_PERIOD_NS + late);
                let value = AGENT_PERIOD_NS;
                batch.add(Sample { series, stack, at, value, profile, span_id: 0, trace_id: 0 });
            }
        }
        Ok(batch)
    }
}

fn uuid(id: u128) -> String {
    let hex = format!("{id:032x}");
    let part = |range: std::ops::Range<usize>| hex.get(range).unwrap_or_default();
    [part(0..8), part(8..12), part(12..16), part(16..20), part(20..32)].join("-")
}

struct Pprof(pprof::Profile);

impl Pprof {
    fn new(
        program: &Program,
        [sample_type, unit]: [&str; 2],
        begin_ns: i64,
        values: impl Iterator<Item = (usize, i64)>,
    ) -> Self {
        let mut own = Self(pprof::Profile { time_nanos: begin_ns, ..pprof::Profile::default() });
        let mut strings = std::collections::HashMap::new();
        let (mut functions, mut locations) =
            (std::collections::HashMap::new(), std::collections::HashMap::new());
        own.string(&mut strings, String::new());
        let value_type = pprof::ValueType {
            kind: own.string(&mut strings, sample_type.to_owned()),
            unit: own.string(&mut strings, unit.to_owned()),
        };
        own.0.sample_type = vec![value_type.clone()];
        own.0.period_type = Some(value_type);
        own.0.period = PPROF_PERIOD_NS;
        own.0.duration_nanos = PUSH_EVERY_NS;
        for (node, value) in values {
            let mut ids = Vec::new();
            for place in program.stack(node) {
                let next = locations.len() as u64 + 1;
                let id = *locations.entry(place).or_insert(next);
                if id == next {
                    let next = functions.len() as u64 + 1;
                    let function_id = *functions.entry(place.0).or_insert(next);
                    if function_id == next {
                        let (name, file) = program.function(place.0);
                        let name = own.string(&mut strings, name);
                        let filename = own.string(&mut strings, file);
                        let start_line = 20 + 10 * (place.0 % 90) as i64;
                        own.0.function.push(pprof::Function {
                            id: function_id,
                            name,
                            system_name: name,
                            filename,
                            start_line,
                        });
                    }
                    let line = pprof::Line { function_id, line: i64::from(place.1), column: 0 };
                    own.0.location.push(pprof::Location {
                        id,
                        line: vec![line],
                        ..pprof::Location::default()
                    });
                }
                ids.push(id);
            }
            own.0.sample.push(pprof::Sample {
                location_id: ids,
                value: vec![value],
                label: Vec::new(),
            });
        }
        own
    }

    fn string(&mut self, known: &mut std::collections::HashMap<String, i64>, text: String) -> i64 {
        let next = known.len() as i64;
        *known.entry(text).or_insert_with_key(|text| {
            self.0.string_table.push(text.clone());
            next
        })
    }
}

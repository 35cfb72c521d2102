//! Merged stacks, as what they were asked for: batch by batch, so that no more than a batch has to be in memory. In whatever batches samples come, the
//! answer is the same.

use model::samples::Batch;
use wire::pyroscope::{
    PprofProfile, ProfileFormat, SelectMergeSpanProfileResponse, SelectMergeStacktracesResponse,
    pprof,
};

use crate::pprof::PlaceTree;
use crate::request::MergeQuestion;
use crate::stacks::Sums;
use crate::tree::CallTree;

/// The call tree of a question, of which `Diff` takes two.
#[derive(Debug)]
pub struct MergedCalls<'q> {
    question: &'q MergeQuestion,
    tree: CallTree,
}

impl<'q> MergedCalls<'q> {
    /// Nothing yet.
    #[must_use]
    pub fn new(question: &'q MergeQuestion) -> Self {
        Self { question, tree: CallTree::new() }
    }

    /// Adds what the question takes of a batch.
    pub fn add(&mut self, batch: &Batch) {
        self.tree.add(batch, &sums(self.question, batch), self.question.walk);
    }

    /// The tree.
    #[must_use]
    pub fn finish(self) -> CallTree {
        self.tree
    }
}

/// The answer to `SelectMergeProfile`: stacks with files and lines.
#[derive(Debug)]
pub struct MergedPlaces<'q> {
    question: &'q MergeQuestion,
    tree: PlaceTree,
}

impl<'q> MergedPlaces<'q> {
    /// Nothing yet.
    #[must_use]
    pub fn new(question: &'q MergeQuestion) -> Self {
        Self { question, tree: PlaceTree::new() }
    }

    /// Adds what the question takes of a batch.
    pub fn add(&mut self, batch: &Batch) {
        self.tree.add(batch, &sums(self.question, batch), self.question.walk);
    }

    /// The profile.
    #[must_use]
    pub fn finish(mut self) -> pprof::Profile {
        let MergeQuestion { profile_type, selection, max_nodes, .. } = self.question;
        self.tree.profile(profile_type, selection.time, *max_nodes)
    }
}

/// The answer to `SelectMergeStacktraces`, as the question's format says.
#[derive(Debug)]
pub enum MergedStacks<'q> {
    /// A flame graph, a tree, a graph for DOT.
    Calls(MergedCalls<'q>),
    /// pprof.
    Places(MergedPlaces<'q>),
}

impl<'q> MergedStacks<'q> {
    /// Nothing yet.
    #[must_use]
    pub fn new(question: &'q MergeQuestion) -> Self {
        match question.format {
            ProfileFormat::Pprof => Self::Places(MergedPlaces::new(question)),
            _ => Self::Calls(MergedCalls::new(question)),
        }
    }

    /// Adds what the question takes of a batch.
    pub fn add(&mut self, batch: &Batch) {
        match self {
            Self::Calls(calls) => calls.add(batch),
            Self::Places(places) => places.add(batch),
        }
    }

    /// The answer. Without samples a flame graph is a root alone.
    #[must_use]
    pub fn finish(self) -> SelectMergeStacktracesResponse {
        let mut answer = SelectMergeStacktracesResponse::default();
        match self {
            Self::Places(places) => {
                answer.pprof = Some(PprofProfile { profile: Some(places.finish()) });
            }
            Self::Calls(MergedCalls { question, tree }) => match question.format {
                ProfileFormat::Tree => answer.tree = tree.cut(question.max_nodes).encode(),
                ProfileFormat::Dot => answer.dot = tree.dot(question.max_nodes),
                _ => answer.flamegraph = Some(tree.flame_graph(question.max_nodes)),
            },
        }
        answer
    }

    /// The answer to `SelectMergeSpanProfile`, which is a flame graph or a tree: other formats have no place in it.
    #[must_use]
    pub fn finish_spans(self) -> SelectMergeSpanProfileResponse {
        let SelectMergeStacktracesResponse { flamegraph, tree, .. } = self.finish();
        SelectMergeSpanProfileResponse { flamegraph, tree }
    }
}

fn sums(question: &MergeQuestion, batch: &Batch) -> Sums {
    Sums::of(batch, question.selection.samples(batch))
}

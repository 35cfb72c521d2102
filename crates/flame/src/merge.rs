//! Merged stacks, as what they were asked for.

use model::samples::Batch;
use wire::pyroscope::{
    PprofProfile, ProfileFormat, SelectMergeSpanProfileResponse, SelectMergeStacktracesResponse,
    pprof,
};

use crate::pprof::PlaceTree;
use crate::request::MergeQuestion;
use crate::stacks::Sums;
use crate::tree::CallTree;

/// The answer to `SelectMergeStacktraces` over batches, as the question's format says. Without samples a flame graph is a root
/// alone.
pub fn stacktraces<'a>(
    question: &MergeQuestion,
    batches: impl IntoIterator<Item = &'a Batch>,
) -> SelectMergeStacktracesResponse {
    let mut answer = SelectMergeStacktracesResponse::default();
    let max_nodes = question.max_nodes;
    match question.format {
        ProfileFormat::Pprof => {
            answer.pprof = Some(PprofProfile { profile: Some(profile(question, batches)) });
        }
        ProfileFormat::Tree => answer.tree = calls(question, batches).cut(max_nodes).encode(),
        ProfileFormat::Dot => answer.dot = calls(question, batches).dot(max_nodes),
        ProfileFormat::Unspecified | ProfileFormat::Flamegraph => {
            answer.flamegraph = Some(calls(question, batches).flame_graph(max_nodes));
        }
    }
    answer
}

/// The answer to `SelectMergeSpanProfile`, which is a flame graph or a tree: other formats have no place in it.
pub fn span_profile<'a>(
    question: &MergeQuestion,
    batches: impl IntoIterator<Item = &'a Batch>,
) -> SelectMergeSpanProfileResponse {
    let SelectMergeStacktracesResponse { flamegraph, tree, .. } = stacktraces(question, batches);
    SelectMergeSpanProfileResponse { flamegraph, tree }
}

/// The answer to `SelectMergeProfile`.
pub fn profile<'a>(
    question: &MergeQuestion,
    batches: impl IntoIterator<Item = &'a Batch>,
) -> pprof::Profile {
    let MergeQuestion { profile_type, selection, walk, max_nodes, .. } = question;
    let mut tree = PlaceTree::new();
    for batch in batches {
        tree.add(batch, &Sums::of(batch, selection.samples(batch)), *walk);
    }
    tree.profile(profile_type, selection.time, *max_nodes)
}

/// The call tree of a question, of which `Diff` takes two.
pub fn calls<'a>(
    question: &MergeQuestion,
    batches: impl IntoIterator<Item = &'a Batch>,
) -> CallTree {
    let MergeQuestion { selection, walk, .. } = question;
    let mut tree = CallTree::new();
    for batch in batches {
        tree.add(batch, &Sums::of(batch, selection.samples(batch)), *walk);
    }
    tree
}

//! What may differ, and why.

use serde_json::Value;
use testkit::differential::{Case, Difference};

use super::answers::{Question, Reply};

/// Why these answers to a request differ, if there is a reason.
pub(super) fn reason(question: &Question, theirs: &Reply, ours: &Reply) -> Option<&'static str> {
    // Of a watch that ends with a refusal, that is the one event.
    let said = |reply: &'_ Reply| reply.body.get(0).unwrap_or(&reply.body).clone();
    let (they_said, we_said) = (said(theirs), said(ours));
    let message = |said: &Value| said["message"].as_str().unwrap_or_default().to_owned();
    let (their_words, our_words) = (message(&they_said), message(&we_said));
    if theirs.status == 200 && ours.status == 410 && question.is_of_the_past() {
        return Some("history is in memory, and begins with the process");
    }
    if theirs.status < 400 {
        return None;
    }
    if theirs.status == ours.status && theirs.media_type == "application/vnd.kubernetes.protobuf" {
        return Some("not even errors are written in protobuf");
    }
    let form =
        |words: &str| words.contains("the requested object is a list") || words == "content is not a list";
    let looked_up = matches!(theirs.status, 404 | 410) || their_words.starts_with("resourceVersion: Invalid");
    if looked_up && form(&our_words) {
        return Some(
            "a form that does not fit is refused before the object is looked for, and the version read",
        );
    }
    let same_but_words = theirs.status == ours.status && they_said["reason"] == we_said["reason"];
    if same_but_words
        && their_words != our_words
        && their_words.replace(", application/vnd.kubernetes.protobuf", "") == our_words
    {
        return Some("objects in protobuf are neither read nor written, and so are not offered");
    }
    if same_but_words
        && misfits(&their_words).is_some_and(|some| {
            misfits(&our_words)
                .is_some_and(|all| all.0 == some.0 && some.1.iter().all(|one| all.1.contains(one)))
        })
    {
        return Some(
            "Go goes through a map in the order of chance, and stops at the first member that the schema does not know",
        );
    }
    if same_but_words && their_words.contains("yaml: ") && our_words.contains("yaml: ") {
        return Some("the words of another parser of YAML");
    }
    None
}

/// What is wrong with the types of a configuration: the words before, and the lines.
fn misfits(words: &str) -> Option<(&str, Vec<&str>)> {
    let (before, lines) =
        words.split_once("): ").filter(|_| words.starts_with("failed to create typed patch"))?;
    let lines = lines.strip_prefix("errors:\n").unwrap_or(lines).lines().map(str::trim).collect();
    Some((before, lines))
}

/// Why these answers to a list or watch differ, if there is a reason.
pub(super) fn list(case: &Case, found: &Difference) -> Option<&'static str> {
    if case.reaches_back() && (found.left.status, found.right.status) == (200, 410) {
        return Some(
            "the first version of all is there until etcd is compacted for the first time; memory never had it",
        );
    }
    if case.is_protobuf() && found.left.status == 406 && found.right.status == 406 {
        return Some("objects in protobuf are neither read nor written, and so are not offered");
    }
    None
}

//! How many elements the lists of a report have, counted in its encoding. Two bytes make an element that takes some hundred when it is decoded, so who
//! decodes first and counts then fills gigabytes from a body of some megabytes. Pure.

use super::{MAX_AGGREGATES, MAX_APPLICATIONS, MAX_NUMA, MAX_PODS, Malformed};

/// Tag of [`Report::usage`](super::Report::usage), in which there are lists, too.
const USAGE: u64 = 10;

/// A list: its tag, its name, and how many elements it may have.
type List = (u64, &'static str, usize);

/// Those of [`Report`](super::Report).
const OF_REPORT: [List; 2] = [(11, "pods", MAX_PODS), (12, "removed_pods", MAX_PODS)];

/// Those of [`NodeUsage`](super::NodeUsage). What it consists of has none.
const OF_USAGE: [List; 4] = [
    (3, "usage.aggregates", MAX_AGGREGATES),
    (5, "usage.system_aggregates", MAX_AGGREGATES),
    (13, "usage.numa", MAX_NUMA),
    (14, "usage.host_applications", MAX_APPLICATIONS),
];

/// Whether the lists of an encoded report are short enough to be decoded; how many pods there are, if so.
pub(super) fn check(report: &[u8]) -> Result<usize, Malformed> {
    let (mut of_report, mut of_usage) = (OF_REPORT, OF_USAGE);
    let mut rest = report;
    while !rest.is_empty() {
        let (tag, content) = field(&mut rest).ok_or(Malformed::Encoding)?;
        let Some(mut usage) = content else { continue };
        count(&mut of_report, tag)?;
        // A message that is there several times is merged: its lists become one.
        while tag == USAGE && !usage.is_empty() {
            let (tag, content) = field(&mut usage).ok_or(Malformed::Encoding)?;
            if content.is_some() {
                count(&mut of_usage, tag)?;
            }
        }
    }
    let [(_, _, left), _] = of_report;
    Ok(MAX_PODS - left)
}

/// Takes one element from what a list may still have.
fn count(lists: &mut [List], tag: u64) -> Result<(), Malformed> {
    match lists.iter_mut().find(|(of, ..)| *of == tag) {
        Some((_, list, 0)) => Err(Malformed::Long(list)),
        Some((_, _, left)) => {
            *left -= 1;
            Ok(())
        }
        None => Ok(()),
    }
}

/// Takes off the next field: its tag, and its content if that has a length. `None` if it is none; groups, which no version of the protocol has, are none.
fn field<'a>(rest: &mut &'a [u8]) -> Option<(u64, Option<&'a [u8]>)> {
    let key = varint(rest)?;
    let content = match key & 7 {
        0 => {
            varint(rest)?;
            None
        }
        1 => {
            take(rest, 8)?;
            None
        }
        2 => {
            let length = usize::try_from(varint(rest)?).ok()?;
            Some(take(rest, length)?)
        }
        5 => {
            take(rest, 4)?;
            None
        }
        _ => return None,
    };
    Some((key >> 3, content))
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = *take(rest, 1)?.first()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;
    use crate::report::{Aggregate, HostApplicationUsage, NodeUsage, Numa, PodUsage, Report};

    /// A report whose lists are so long, in the order of the tables.
    fn report([pods, removed, aggregates, system, numa, hosts]: [usize; 6]) -> Report {
        let usage = NodeUsage {
            aggregates: vec![Aggregate::default(); aggregates],
            system_aggregates: vec![Aggregate::default(); system],
            numa: vec![Numa::default(); numa],
            host_applications: vec![HostApplicationUsage::default(); hosts],
            ..NodeUsage::default()
        };
        Report {
            pods: vec![PodUsage::default(); pods],
            removed_pods: vec![String::new(); removed],
            usage: Some(usage),
            ..Report::default()
        }
    }

    #[test]
    fn each_list_may_be_so_long_and_no_longer() {
        let lists = OF_REPORT.iter().chain(&OF_USAGE);
        let most: Vec<usize> = lists.clone().map(|(.., most)| *most).collect();
        let most: [usize; 6] = most.try_into().unwrap();
        assert_eq!(check(&report(most).encode_to_vec()), Ok(MAX_PODS));
        for (at, (_, name, _)) in lists.enumerate() {
            let mut lengths = [1; 6];
            lengths[at] = most[at] + 1;
            assert_eq!(check(&report(lengths).encode_to_vec()), Err(Malformed::Long(name)));
        }
    }

    #[test]
    fn lists_of_a_message_that_is_there_twice_are_one() {
        let half = report([0, 0, MAX_AGGREGATES / 2 + 1, 0, 0, 0]).encode_to_vec();
        assert_eq!(check(&half), Ok(0));
        assert_eq!(check(&half.repeat(2)), Err(Malformed::Long("usage.aggregates")));
    }

    #[test]
    fn four_mebibytes_of_empty_elements_are_refused() {
        for (element, list) in [([0x5a, 0], "pods"), ([0x62, 0], "removed_pods")] {
            assert_eq!(check(&element.repeat(2 << 20)), Err(Malformed::Long(list)));
        }
        let elements = [0x1a, 0].repeat(1 << 20);
        let body = [&[0x52, 0x80, 0x80, 0x80, 0x01], elements.as_slice()].concat();
        assert_eq!(check(&body), Err(Malformed::Long("usage.aggregates")));
    }

    proptest! {
        /// Whatever comes: what is let through has no longer lists than it may, if it can be decoded at all.
        #[test]
        fn what_passes_is_small(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let (Ok(pods), Ok(report)) = (check(&bytes), Report::decode(bytes.as_slice())) {
                prop_assert!(report.pods.len() == pods && pods <= MAX_PODS);
            }
        }

        /// All that can be encoded is counted as it is decoded, wherever its fields stand.
        #[test]
        fn what_is_counted_is_what_is_decoded(
            parts in prop::collection::vec(prop::array::uniform6(0_usize..24), 1..8),
            unknown in prop::collection::vec((20_u32..60, any::<u64>()), 0..4),
        ) {
            let mut bytes: Vec<u8> = parts.iter().flat_map(|part| report(*part).encode_to_vec()).collect();
            for (tag, value) in unknown {
                prost::encoding::uint64::encode(tag, &value, &mut bytes);
            }
            let decoded = Report::decode(bytes.as_slice()).unwrap();
            let (pods, usage) = (decoded.pods.len(), decoded.usage.unwrap());
            let is_short = usage.aggregates.len() <= MAX_AGGREGATES && usage.system_aggregates.len() <= MAX_AGGREGATES;
            prop_assert_eq!(check(&bytes).ok(), is_short.then_some(pods));
        }
    }
}

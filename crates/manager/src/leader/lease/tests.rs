use super::*;

const fn at(seconds: u64) -> Moment {
    Moment::new(Duration::from_secs(seconds))
}

fn wall(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

fn lease(holder: &str, seconds: i32, renewed: i64) -> Lease {
    let mut lease = Lease::default();
    lease.metadata.resource_version = Some(renewed.to_string());
    lease.metadata.uid = Some("uid-1".to_owned());
    lease.spec = Some(LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: Some(seconds),
        acquire_time: Some(MicroTime(wall(0))),
        renew_time: Some(MicroTime(wall(renewed))),
        lease_transitions: Some(4),
        ..LeaseSpec::default()
    });
    lease
}

fn see(previous: Option<&Observation>, lease: Option<Lease>, now: u64) -> Observation {
    Observation::next(previous, lease, "me", at(now), &Timing::default())
}

fn act(observation: &Observation, held: Option<Held>, now: u64) -> Decision {
    decide(observation, held, "me", at(now), wall(100), &Timing::default(), Lease::default)
}

fn held(sent: u64) -> Held {
    Held::since(at(sent), &Timing::default())
}

fn kind(decision: &Decision) -> &'static str {
    match decision {
        Decision::Acquire(_) => "acquire",
        Decision::Renew(_) => "renew",
        Decision::Wait(_) => "wait",
        Decision::Lost(_) => "lost",
    }
}

#[test]
fn a_standby_judges_by_when_it_saw_the_record_change() {
    let mut without_duration = lease("other", 15, 1);
    without_duration.spec.as_mut().unwrap().lease_duration_seconds = None;
    let mut without_spec = lease("other", 15, 1);
    without_spec.spec = None;
    // What is seen at 50, and from when on it may be taken.
    let table = [
        ("no lease", None, 50),
        ("a released one", Some(lease("", 1, 1)), 50),
        ("one without a spec", Some(without_spec), 50),
        ("my own, unknown to me", Some(lease("me", 15, 1)), 50),
        ("another's", Some(lease("other", 15, 1)), 65),
        ("another's, with a longer term than mine", Some(lease("other", 40, 1)), 90),
        ("another's, with a shorter term than mine", Some(lease("other", 5, 1)), 55),
        ("another's, with a term of zero", Some(lease("other", 0, 1)), 65),
        ("another's, with a negative term", Some(lease("other", -3, 1)), 65),
        ("another's, without a term", Some(without_duration), 65),
        // 1970 and 2100: the record's own times do not matter.
        ("another's, renewed long ago", Some(lease("other", 15, -1_700_000_000)), 65),
        ("another's, renewed in the future", Some(lease("other", 15, 2_400_000_000)), 65),
    ];
    for (name, lease, free_at) in table {
        let observation = see(None, lease, 50);
        for now in 50..95 {
            let decision = act(&observation, None, now);
            if now < free_at {
                assert_eq!(decision, Decision::Wait(at(free_at)), "{name} at {now}");
            } else {
                assert_eq!(kind(&decision), "acquire", "{name} at {now}");
            }
        }
    }
}

#[test]
fn the_wait_goes_on_while_the_record_stays_and_begins_anew_when_it_changes() {
    let first = see(None, Some(lease("other", 15, 1)), 50);

    let mut annotated = lease("other", 15, 1);
    annotated.metadata.resource_version = Some("99".to_owned());
    annotated.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    let same = see(Some(&first), Some(annotated.clone()), 60);
    assert_eq!(act(&same, None, 64), Decision::Wait(at(65)));
    let Decision::Acquire(write) = act(&same, None, 65) else { panic!("it is free at 65") };
    assert_eq!(write.metadata, annotated.metadata, "the newest version is what gets replaced");

    let renewed = see(Some(&first), Some(lease("other", 15, 3)), 60);
    assert_eq!(act(&renewed, None, 65), Decision::Wait(at(75)));

    let mut recreated = lease("other", 15, 1);
    recreated.metadata.uid = Some("uid-2".to_owned());
    let recreated = see(Some(&first), Some(recreated), 60);
    assert_eq!(act(&recreated, None, 65), Decision::Wait(at(75)));
}

#[test]
fn a_deleted_lease_keeps_its_holders_rights_for_a_term() {
    let seen = see(None, Some(lease("other", 15, 1)), 50);
    let gone = see(Some(&seen), None, 60);
    let still_gone = see(Some(&gone), None, 70);
    assert_eq!(act(&still_gone, None, 74), Decision::Wait(at(75)));
    assert_eq!(kind(&act(&still_gone, None, 75)), "acquire");

    let released = see(None, Some(lease("", 1, 1)), 50);
    assert_eq!(kind(&act(&see(Some(&released), None, 60), None, 60)), "acquire");
}

#[test]
fn a_leader_renews_each_retry_period_and_stops_at_its_deadline() {
    let mine = see(None, Some(lease("me", 15, 1)), 51);
    for (now, expected) in
        [(50, "wait"), (51, "wait"), (52, "renew"), (59, "renew"), (60, "lost"), (99, "lost")]
    {
        assert_eq!(kind(&act(&mine, Some(held(50)), now)), expected, "at {now}");
    }
    assert_eq!(act(&mine, Some(held(50)), 51), Decision::Wait(at(52)));
    assert_eq!(act(&mine, Some(held(50)), 60), Decision::Lost(Loss::Expired));
}

#[test]
fn a_leader_that_sees_anything_but_itself_is_none() {
    let superseded = |holder: &str| Decision::Lost(Loss::Superseded { holder: holder.to_owned() });
    let table = [
        (Some(lease("other", 15, 1)), superseded("other")),
        (Some(lease("", 1, 1)), superseded("")),
        (None, Decision::Lost(Loss::Deleted)),
    ];
    for (lease, expected) in table {
        assert_eq!(act(&see(None, lease, 51), Some(held(50)), 51), expected);
    }
}

#[test]
fn records_have_the_fields_of_client_go() {
    fn written(observation: &Observation, held: Option<Held>) -> LeaseSpec {
        match act(observation, held, 90) {
            Decision::Acquire(lease) | Decision::Renew(lease) => lease.spec.unwrap(),
            other => panic!("{other:?}"),
        }
    }
    let wall = || Some(MicroTime(wall(100)));
    let started = || Some(MicroTime(self::wall(0)));
    let mine = |acquire_time, transitions| LeaseSpec {
        holder_identity: Some("me".to_owned()),
        lease_duration_seconds: Some(15),
        acquire_time,
        renew_time: wall(),
        lease_transitions: Some(transitions),
        ..LeaseSpec::default()
    };
    assert_eq!(written(&see(None, None, 50), None), mine(wall(), 0), "the first holder");
    assert_eq!(
        written(&see(None, Some(lease("other", 15, 1)), 50), None),
        mine(wall(), 5),
        "another's, expired"
    );
    assert_eq!(written(&see(None, Some(lease("", 1, 1)), 50), None), mine(wall(), 5), "a released one");
    assert_eq!(
        written(&see(None, Some(lease("me", 15, 1)), 50), None),
        mine(started(), 4),
        "mine unknown to me"
    );
    assert_eq!(
        written(&see(None, Some(lease("me", 15, 1)), 50), Some(held(85))),
        mine(started(), 4),
        "a renewal"
    );

    let mut saturated = lease("other", 15, 1);
    saturated.spec.as_mut().unwrap().lease_transitions = Some(i32::MAX);
    assert_eq!(written(&see(None, Some(saturated), 50), None), mine(wall(), i32::MAX));

    assert_eq!(
        released(lease("me", 15, 1), self::wall(100)).spec.unwrap(),
        LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            acquire_time: wall(),
            renew_time: wall(),
            lease_transitions: Some(4),
            ..LeaseSpec::default()
        }
    );
}

#[test]
fn what_others_put_into_the_lease_stays() {
    let mut theirs = lease("me", 15, 1);
    theirs.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    theirs.spec.as_mut().unwrap().strategy = Some("OldestEmulationVersion".to_owned());
    let Decision::Renew(write) = act(&see(None, Some(theirs.clone()), 50), Some(held(50)), 55) else {
        panic!()
    };
    assert_eq!(write.metadata, theirs.metadata);
    assert_eq!(write.spec.unwrap().strategy, theirs.spec.unwrap().strategy);
}

#[test]
fn every_renewal_changes_the_record_even_when_the_time_of_day_does_not() {
    for renewed in [100, 100_000] {
        let mine = lease("me", 15, renewed);
        let Decision::Renew(write) = act(&see(None, Some(mine.clone()), 50), Some(held(50)), 55) else {
            panic!()
        };
        let time = |lease: &Lease| lease.spec.clone().unwrap().renew_time.unwrap().0;
        assert_eq!(time(&write).as_microsecond(), time(&mine).as_microsecond() + 1);
        assert!(!same_record(&write, &mine));
    }
}

#[test]
fn a_term_of_parts_of_a_second_is_said_beside_the_record() {
    let ms = Duration::from_millis;
    let short = Timing::new(ms(1_500), ms(1_275), ms(375)).unwrap();
    let writes = |observation: &Observation, me: &str, timing: &Timing| match decide(
        observation,
        None,
        me,
        at(90),
        wall(100),
        timing,
        Lease::default,
    ) {
        Decision::Acquire(lease) => *lease,
        other => panic!("{other:?}"),
    };
    let nobody = Observation::next(None, None, "me", at(50), &short);
    let theirs = writes(&nobody, "other", &short);
    assert_eq!(theirs.spec.as_ref().unwrap().lease_duration_seconds, Some(2));
    let free_at =
        |lease: Lease| Observation::next(None, Some(lease), "me", at(50), &Timing::default()).free_at;
    assert_eq!(free_at(theirs.clone()), at(50).after(ms(1_500)));

    // Another holder, or a term of other length, is not what was spoken of.
    let mut taken = theirs.clone();
    taken.spec.as_mut().unwrap().holder_identity = Some("third".to_owned());
    assert_eq!(free_at(taken), at(52));
    for (seconds, expected) in [(1, 51), (3, 53)] {
        let mut longer = theirs.clone();
        longer.spec.as_mut().unwrap().lease_duration_seconds = Some(seconds);
        assert_eq!(free_at(longer), at(expected));
    }
    for nonsense in ["", "1500ms", "ms other", "-1ms other", "1500 other"] {
        let mut odd = theirs.clone();
        odd.metadata.annotations.as_mut().unwrap().insert(LEASE_DURATION.to_owned(), nonsense.to_owned());
        assert_eq!(free_at(odd), at(52), "{nonsense:?}");
    }
    // Whoever keeps whole seconds takes the word away.
    let seen = Observation::next(None, Some(theirs), "me", at(50), &short);
    let whole = writes(&seen, "me", &Timing::default());
    assert!(!whole.metadata.annotations.unwrap_or_default().contains_key(LEASE_DURATION));
}

#[test]
fn a_holder_that_is_gone_is_followed_when_it_should_have_renewed_and_not_when_it_did() {
    let mut seen = see(None, Some(lease("other", 16, 1)), 50);
    assert_eq!(seen.overdue_at(), at(54));
    seen.found_gone();
    assert_eq!(act(&seen, None, 53), Decision::Wait(at(54)));
    assert_eq!(kind(&act(&seen, None, 54)), "acquire");
    // The same record seen again is as free, and one that is renewed, or another's, is not.
    assert_eq!(kind(&act(&see(Some(&seen), Some(lease("other", 16, 1)), 53), None, 54)), "acquire");
    for changed in [lease("other", 16, 2), lease("third", 16, 1)] {
        assert_eq!(act(&see(Some(&seen), Some(changed), 53), None, 54), Decision::Wait(at(69)));
    }
    // What is free already is not kept for longer.
    let mut free = see(None, None, 50);
    free.found_gone();
    assert_eq!(kind(&act(&free, None, 50)), "acquire");
}

#[test]
fn where_a_holder_listens_is_its_own_word() {
    let here: SocketAddr = "10.0.0.1:7".parse().unwrap();
    let mut theirs = lease("other", 15, 1);
    say_where(&mut theirs, "other", Some(here));
    assert_eq!(said_where(&theirs), Some(here));
    assert_eq!(said_where(&released(theirs.clone(), wall(100))), None);
    let mut taken = theirs.clone();
    taken.spec.as_mut().unwrap().holder_identity = Some("me".to_owned());
    assert_eq!(said_where(&taken), None, "of a version that does not know the word");
    for nonsense in ["", "10.0.0.1:7", "10.0.0.1 other", "name:7 other", " other"] {
        let mut odd = theirs.clone();
        odd.metadata.annotations.as_mut().unwrap().insert(LEASE_ADDRESS.to_owned(), nonsense.to_owned());
        assert_eq!(said_where(&odd), None, "{nonsense:?}");
    }
    say_where(&mut theirs, "me", None);
    assert_eq!(theirs.metadata.annotations, Some([].into()));
}

//! Whatever hubs and users do, a plan that was carried out has nothing left.

use proptest::prelude::*;

use super::*;

fn liveness() -> impl Strategy<Value = Liveness> {
    prop_oneof![
        3 => Just(Liveness::Alive), 1 => Just(Liveness::Unknown), 1 => Just(Liveness::Suspect), 1 => Just(Liveness::Silent),
        2 => Just(Liveness::Dead)
    ]
}

fn ways_in() -> impl Strategy<Value = Option<Vec<&'static str>>> {
    const ALL: [&str; 2] = ["0.0.0.0:10263", "0.0.0.0:10264"];
    proptest::option::of(proptest::sample::subsequence(ALL.to_vec(), 0..=2))
}

proptest! {
    /// Any history: plans are functions of what is seen, no dead endpoint is led to, and a plan that was carried out has nothing left.
    #[test]
    fn plans_settle(
        steps in proptest::collection::vec((
            proptest::collection::vec((liveness(), proptest::collection::vec(any::<bool>(), 2), ways_in()), 2),
            proptest::collection::vec(any::<bool>(), 5), 0_i32..3, any::<bool>(), any::<bool>(), 0_u64..20,
        ), 1..15),
    ) {
        let mut world = world();
        for (hubs, ready, replicas, balancer, l7, seconds) in steps {
            world.observed.now += Duration::from_secs(seconds);
            world.observed.switches.l7 = l7;
            for (name, (liveness, links, ways_in)) in ["c1", "c2"].into_iter().zip(hubs) {
                let linked: Vec<&str> =
                    ["a", "b"].into_iter().zip(links).filter_map(|(name, on)| on.then_some(name)).collect();
                world.hub(name, liveness, &linked);
                if let Some(ways_in) = ways_in {
                    world.listens(name, &ways_in);
                }
            }
            for (node, ready) in world.nodes.iter_mut().zip(ready) {
                node.ready = ready;
            }
            world.spec(0, |spec| {
                spec.proxy_config.proxy_http_port = "9100".to_owned();
                spec.proxy_config.replicas = replicas;
                spec.expose_type = if balancer { ExposeType::LoadBalancer } else { ExposeType::PublicIP };
            });
            let memory = world.memory.clone();
            let plan = world.plan();
            let after = std::mem::replace(&mut world.memory, memory);
            let again = world.plan();
            prop_assert_eq!(format!("{:?}", &plan.verdicts), format!("{:?}", &again.verdicts));
            world.memory = after;
            for verdict in &plan.verdicts {
                let places = usize::try_from(verdict.gateway.spec.proxy_config.replicas).unwrap();
                prop_assert!(verdict.active.len() <= places);
                prop_assert!(l7 || verdict.active.is_empty());
            }
            for endpoint in plan.slices.iter().flat_map(|slice| slice.endpoints.iter().flatten()) {
                let hub = &world.observed.hubs[endpoint.node_name.as_ref().unwrap()];
                prop_assert!(!matches!(hub.liveness, Liveness::Silent | Liveness::Dead));
            }
            for slice in plan.slices.iter().filter(|slice| slice.name_any().starts_with(PROXY_INTERNAL_SERVICE)) {
                for endpoint in slice.endpoints.iter().flatten() {
                    let hub = &world.observed.hubs[endpoint.node_name.as_ref().unwrap()];
                    let listens = |target: i32| {
                        let open = hub.ways_in.as_ref();
                        open.is_none_or(|open| open.iter().any(|at| i32::from(at.port()) == target))
                    };
                    prop_assert!(slice.ports.iter().flatten().all(|port| listens(port.port.unwrap())));
                    prop_assert!(slice.ports.as_ref().is_some_and(|ports| !ports.is_empty()));
                }
            }
            // Carry it out.
            for stale in &plan.stale_services {
                world.observed.services.remove(&stale.name_any());
            }
            for stale in &plan.stale_slices {
                world.observed.slices.remove(&stale.name_any());
            }
            for mut service in plan.services {
                let spec = service.spec.get_or_insert_default();
                spec.cluster_ip = Some("10.9.9.9".to_owned());
                world.observed.services.insert(service.name_any(), Arc::new(service));
            }
            for slice in plan.slices {
                world.observed.slices.insert(slice.name_any(), Arc::new(slice));
            }
            let rest = world.plan();
            prop_assert_eq!(
                [rest.services.len(), rest.slices.len(), rest.stale_services.len(), rest.stale_slices.len()], [0; 4]
            );
        }
    }
}

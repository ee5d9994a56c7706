//! What a measure of spending says of several processes, and how it fades.

use super::*;

const QUOTA: Quota = Quota::per_second(1_000);

fn policy() -> Policy {
    Policy::token_bucket("service", QUOTA)
}

fn processes<const N: usize>(clock: &Clock) -> [Spending; N] {
    array::from_fn(|_| Spending::new(clock.clone()))
}

/// Lets each process hear the others.
fn tell(processes: &[Spending]) {
    let reports: Vec<String> = processes.iter().map(Spending::report).collect();
    for (at, process) in processes.iter().enumerate() {
        let mut others = reports.clone();
        others.remove(at);
        process.hear(&others.join("\n"));
    }
}

fn spend(process: &Spending, state: u64, customer: Customer, filling: &Filling, units: f64) {
    let seen = process.see(state, customer, filling);
    process.add(&seen.account, customer, units);
}

fn customers(process: &Spending, state: u64, filling: &Filling) -> f64 {
    process.see(state, Customer::UNKNOWN, filling).customers
}

#[test]
fn customers_count_once_whether_they_come_to_one_process_or_to_all() {
    let (clock, filling) = (Clock::manual(1_000_000), Filling::of(&QUOTA));
    let state = filling.state(&policy(), &Key::new("all"));
    let (everywhere, apart) = (processes::<4>(&clock), processes::<4>(&clock));
    for customer in 0..20_u64 {
        for process in &everywhere {
            spend(process, state, Customer::new(customer), &filling, 200.0);
        }
        let process = &apart[customer as usize % 4];
        spend(process, state, Customer::new(customer), &filling, 800.0);
    }
    for processes in [&everywhere, &apart] {
        tell(processes);
        for process in processes {
            let customers = customers(process, state, &filling);
            assert!((19.0..=21.0).contains(&customers), "{customers}");
            let seen = process.see(state, Customer::new(3_u64), &filling);
            assert_eq!(seen.spent(), 800.0);
        }
    }
    // A line fits what a process may tell.
    assert!(everywhere[0].report().len() < 2_000);
}

#[test]
fn who_comes_to_all_processes_is_ahead_in_each_by_what_it_spends_in_all() {
    let (clock, filling) = (Clock::manual(1_000_000), Filling::of(&QUOTA));
    let state = filling.state(&policy(), &Key::new("all"));
    let (both, heavy) = (processes::<2>(&clock), Customer::new("heavy"));
    let spend = || {
        for process in &both {
            spend(process, state, heavy, &filling, 10.0);
        }
    };
    spend();
    tell(&both);
    spend();
    let ahead = both[0].see(state, heavy, &filling).ahead;
    assert!(
        (25.0..=30.0).contains(&ahead),
        "10 of one, and 15 of both: {ahead}"
    );
}

#[test]
fn what_was_spent_fades_with_the_time_in_which_the_bucket_fills() {
    for seconds in [1, 60, 3_600, 86_400, 86_400 * 365] {
        let quota = Quota::new(1_000, Duration::from_secs(seconds));
        let (clock, filling) = (Clock::manual(1_000_000), Filling::of(&quota));
        let state = filling.state(&policy(), &Key::new("all"));
        let [process] = processes(&clock);
        let customer = Customer::new("acme");
        spend(&process, state, customer, &filling, 900.0);
        let after = |part: f64| {
            clock.advance(Duration::from_secs_f64(seconds as f64 * part));
            let seen = process.see(state, customer, &filling);
            (seen.spent(), seen.ahead, seen.customers)
        };
        let (spent, ahead, customers) = after(0.1);
        assert!(spent > 860.0 && customers > 0.85, "{spent}, {customers}");
        // Alone, its share is all.
        assert!((800.0..=815.0).contains(&ahead), "{ahead}");
        let (spent, ahead, customers) = after(12.0);
        assert!(spent < 200.0 && customers < 0.01, "{spent}, {customers}");
        assert_eq!(ahead, 0.0);
    }
}

#[test]
fn what_is_no_report_is_passed_over() {
    let (clock, filling) = (Clock::manual(1_000_000), Filling::of(&QUOTA));
    let state = filling.state(&policy(), &Key::new("all"));
    let [process] = processes(&clock);
    process.hear(&format!(
        "x=1 1=x {state:x}~NaN~1 {state:x}~-1~1 {state:x}~1e300~1 {state:x}~3 {state:x}~1~1~1 ~ = 1~1~"
    ));
    assert_eq!(customers(&process, state, &filling), 0.0);
    process.hear(&format!("ffff=7 {state:x}~2.50~4.00"));
    assert_eq!(customers(&process, state, &filling), 2.5);
}

#[test]
fn who_spends_nothing_is_ahead_by_nothing() {
    let (clock, filling) = (Clock::manual(1_000_000), Filling::of(&QUOTA));
    let state = filling.state(&policy(), &Key::new("all"));
    let [process] = processes(&clock);
    let customer = Customer::new("acme");
    spend(&process, state, customer, &filling, 0.0);
    let seen = process.see(state, customer, &filling);
    assert_eq!((seen.spent(), seen.ahead), (0.0, 0.0));
}

//! Draws scenarios, and makes them smaller.

use std::{fmt, time::Duration};

use tollgate::{Algorithm, CalendarUnit, Outage, Policy, Quota, TimeZone};
use tollgate_test_support::Dice;
use tollgate_tower::{HeaderFormat, ResetFormat};

/// The policies, the options of the layer, and the requests.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scenario {
    pub(super) seed: u64,
    pub(super) is_in_redis: bool,
    /// The policies of most requests, and those of the other tier.
    pub(super) sets: [Vec<Policy>; 2],
    pub(super) options: Options,
    pub(super) steps: Vec<Step>,
}

/// The options of the layer and of its limiter.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Options {
    pub(super) caller: Caller,
    pub(super) source: Source,
    pub(super) cost: CostOption,
    pub(super) settle: Settle,
    pub(super) has_priority: bool,
    pub(super) enforced: Option<u8>,
    pub(super) exempts: bool,
    pub(super) has_networks: bool,
    pub(super) or_exempt: bool,
    pub(super) wait: Option<Duration>,
    /// Tells whether the service charges more units with a `RequestLimiter`.
    pub(super) charges_more: bool,
    pub(super) format: HeaderFormat,
    pub(super) exposes_headers: bool,
    pub(super) outage: Outage,
    /// Tells whether the rule of the tenant is in shadow mode.
    pub(super) is_trial: bool,
}

/// Says what checks the limiter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Caller {
    #[default]
    Layer,
    /// A `HandlerLimiter` with the options of the layer.
    Handler,
}

/// Says where the limiter of a request comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Source {
    #[default]
    Fixed,
    Handle,
    Tiers,
    Function,
    /// Rules: the first set limits the tenant, which is the key, and the other set the host of the
    /// other tier.
    Rules,
}

/// Says what a request costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum CostOption {
    /// One unit, without the option.
    #[default]
    Unset,
    /// `cost`: what the request says.
    OfRequest,
    /// `costs`: what the request says for the first policy, and one unit for the others.
    Each,
}

/// Says what follows the response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Settle {
    #[default]
    Nothing,
    /// `charge_on`, for 401.
    ChargeOn,
    /// `charge_after`, for 401.
    ChargeAfter,
    /// `final_cost`: what the request says.
    FinalCost,
    /// `final_costs`: what the request says for the first policy.
    FinalCosts,
    /// `reserve`: the cost is an estimate, and the service counts what the request says.
    Reserve,
}

/// The tiers of requests: the first set, the other set, exempt, and blocked.
pub(super) const OTHER: u8 = 1;
pub(super) const EXEMPT: u8 = 2;
pub(super) const BLOCKED: u8 = 3;

/// The only host.
pub(super) const HOST: u64 = 9;

/// One request, and what happens before it and in the service.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    pub(super) pause: Duration,
    /// Tells whether the store fails.
    pub(super) is_away: bool,
    pub(super) key: Option<u64>,
    pub(super) cost: u64,
    pub(super) rank: u8,
    pub(super) tier: u8,
    /// The network of the client: 1 is allowed, 2 is denied.
    pub(super) network: u8,
    pub(super) is_exempt: bool,
    /// Says what the service answers, counts, and charges beside.
    pub(super) status: u16,
    pub(super) last: u64,
    pub(super) more: u64,
    /// How long the service works.
    pub(super) works: Duration,
}

impl Default for Step {
    fn default() -> Self {
        Self {
            pause: Duration::ZERO,
            is_away: false,
            key: Some(0),
            cost: 1,
            rank: 100,
            tier: 0,
            network: 0,
            is_exempt: false,
            status: 200,
            last: 0,
            more: 0,
            works: Duration::ZERO,
        }
    }
}

impl Options {
    /// Returns whether the gates of a layer apply, which a handler limiter does not have.
    pub(super) fn is_layer(&self) -> bool {
        self.caller == Caller::Layer
    }

    /// Returns whether the tier of a request selects its limiter.
    pub(super) fn selects(&self) -> bool {
        self.is_layer() && matches!(self.source, Source::Tiers | Source::Function)
    }
}

impl Scenario {
    /// Draws the scenario of this seed.
    pub(super) fn draw(seed: u64, is_in_redis: bool) -> Self {
        let mut dice = Dice::new(seed);
        let dice = &mut dice;
        let options = draw_options(dice, is_in_redis);
        let sets = ["a", "b"].map(|set| draw_set(dice, set, is_in_redis));
        let most = sets
            .iter()
            .flatten()
            .map(|policy| policy.quota().burst())
            .min()
            .unwrap_or(1);
        let periods = [0, 1].map(|set: usize| sets[set][0].quota().period());
        let count = 4 + dice.below(24);
        let steps = (0..count)
            .map(|_| draw_step(dice, &options, most, periods))
            .collect();
        let mut drawn = Self {
            seed,
            is_in_redis,
            sets,
            options,
            steps,
        };
        if drawn.options.source == Source::Rules {
            drawn.keep_to_rules();
        }
        if drawn.has_queue() {
            drawn.options.wait = None;
        }
        drawn
    }

    /// Leaves out what rules do not have.
    fn keep_to_rules(&mut self) {
        let options = &mut self.options;
        options.caller = Caller::Layer;
        (options.wait, options.charges_more, options.or_exempt) = (None, false, false);
        if options.cost == CostOption::Each || options.has_priority {
            options.cost = CostOption::Unset;
        }
        if matches!(
            options.settle,
            Settle::ChargeAfter | Settle::FinalCosts | Settle::Reserve
        ) {
            options.settle = Settle::ChargeOn;
        }
        for step in &mut self.steps {
            // Of no units, rules ask whether a limit is spent.
            (step.is_away, step.cost) = (false, step.cost.max(1));
        }
    }

    /// Returns whether requests wait in a leaky bucket.
    pub(super) fn has_queue(&self) -> bool {
        self.sets
            .iter()
            .flatten()
            .any(|policy| policy.algorithm() == Algorithm::LeakyBucket)
    }

    /// Returns the set that decides a request.
    pub(super) fn set_of(&self, step: &Step) -> usize {
        usize::from(self.options.selects() && step.tier == OTHER)
    }

    /// Returns whether a request that waits takes units that have not accrued.
    pub(super) fn owes(&self, step: &Step) -> bool {
        let algorithms: Vec<_> = self.sets[self.set_of(step)]
            .iter()
            .map(Policy::algorithm)
            .collect();
        let is_owed = algorithms
            .iter()
            .all(|algorithm| *algorithm == Algorithm::TokenBucket)
            || algorithms == [Algorithm::IntervalBucket];
        is_owed && !(self.options.has_priority && step.rank < 100)
    }

    /// Returns whether the share of a replica decides some requests.
    pub(super) fn is_local(&self) -> bool {
        matches!(self.options.outage, Outage::Local { .. })
            && self.steps.iter().any(|step| step.is_away)
    }

    /// Returns the smallest scenario that can be found for which `fails` is true.
    pub(super) fn shrunk(mut self, fails: impl Fn(&Self) -> bool) -> Self {
        loop {
            let before = self.clone();
            let mut smaller: Vec<Self> = Vec::new();
            for at in 0..self.steps.len() {
                let mut without = self.clone();
                without.steps.remove(at);
                smaller.push(without);
            }
            for plain in PLAIN_OPTIONS {
                let mut next = self.clone();
                plain(&mut next.options, &Options::default());
                smaller.push(next);
            }
            for (at, plain) in (0..self.steps.len())
                .flat_map(|at| PLAIN_STEPS.iter().map(move |plain| (at, plain)))
            {
                let mut next = self.clone();
                plain(&mut next.steps[at], &Step::default());
                smaller.push(next);
            }
            for set in 0..2 {
                let mut next = self.clone();
                next.sets[set].truncate(1);
                smaller.push(next);
            }
            if let Some(smaller) = smaller
                .into_iter()
                .find(|smaller| *smaller != before && fails(smaller))
            {
                self = smaller;
            } else {
                return self;
            }
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}\n{:?}", self.sets, self.options)?;
        self.steps
            .iter()
            .try_for_each(|step| writeln!(f, "{step:?}"))
    }
}

/// Each sets one option to its default.
const PLAIN_OPTIONS: &[fn(&mut Options, &Options)] = &[
    |options, plain| options.caller = plain.caller,
    |options, plain| options.source = plain.source,
    |options, plain| options.cost = plain.cost,
    |options, plain| options.settle = plain.settle,
    |options, plain| options.has_priority = plain.has_priority,
    |options, plain| options.enforced = plain.enforced,
    |options, plain| options.exempts = plain.exempts,
    |options, plain| options.has_networks = plain.has_networks,
    |options, plain| options.or_exempt = plain.or_exempt,
    |options, plain| options.wait = plain.wait,
    |options, plain| options.charges_more = plain.charges_more,
    |options, plain| options.format = plain.format,
    |options, plain| options.exposes_headers = plain.exposes_headers,
    |options, _| options.outage = Outage::Closed,
    |options, plain| options.is_trial = plain.is_trial,
];

/// Each sets one property of a request to its default.
const PLAIN_STEPS: &[fn(&mut Step, &Step)] = &[
    |step, plain| step.pause = plain.pause,
    |step, plain| step.is_away = plain.is_away,
    |step, plain| step.key = plain.key,
    |step, plain| step.cost = plain.cost,
    |step, plain| step.rank = plain.rank,
    |step, plain| step.tier = plain.tier,
    |step, plain| step.network = plain.network,
    |step, plain| step.is_exempt = plain.is_exempt,
    |step, plain| step.status = plain.status,
    |step, plain| step.last = plain.last,
    |step, plain| step.more = plain.more,
    |step, plain| step.works = plain.works,
];

fn draw_options(dice: &mut Dice, is_in_redis: bool) -> Options {
    let is_rare = |dice: &mut Dice| dice.below(4) == 0;
    let formats = [
        HeaderFormat::Ietf08,
        HeaderFormat::Ietf07,
        HeaderFormat::Legacy {
            reset: ResetFormat::Seconds,
        },
        HeaderFormat::RetryAfter,
        HeaderFormat::None,
    ];
    let settles = [
        Settle::Nothing,
        Settle::ChargeOn,
        Settle::ChargeAfter,
        Settle::FinalCost,
        Settle::FinalCosts,
        Settle::Reserve,
    ];
    Options {
        caller: dice.pick(&[Caller::Layer, Caller::Layer, Caller::Layer, Caller::Handler]),
        source: dice.pick(&[
            Source::Fixed,
            Source::Fixed,
            Source::Handle,
            Source::Tiers,
            Source::Function,
            Source::Rules,
        ]),
        cost: dice.pick(&[CostOption::Unset, CostOption::OfRequest, CostOption::Each]),
        settle: dice.pick(&settles),
        has_priority: is_rare(dice),
        enforced: dice.pick(&[None, None, None, Some(0), Some(50), Some(100)]),
        exempts: is_rare(dice),
        has_networks: is_rare(dice),
        or_exempt: is_rare(dice),
        // Nothing waits over Redis: the clock of the test stands still meanwhile.
        wait: (is_rare(dice) && !is_in_redis)
            .then(|| Duration::from_millis(dice.pick(&[0, 200, 600]))),
        charges_more: is_rare(dice),
        format: dice.pick(&formats),
        exposes_headers: is_rare(dice),
        outage: dice.pick(&[
            Outage::Closed,
            Outage::Open,
            Outage::local(1),
            Outage::local(2),
        ]),
        is_trial: is_rare(dice),
    }
}

fn draw_step(dice: &mut Dice, options: &Options, most: u64, periods: [Duration; 2]) -> Step {
    let period = dice.pick(&periods);
    let pauses = [
        period / 6,
        period / 2,
        period,
        period + Duration::from_micros(1),
        period * 2 / 3,
    ];
    let is_rare = |dice: &mut Dice| dice.below(8) == 0;
    let cost = dice.pick(&[0, 1, 1, 1, 2, most, most + 1]);
    let works = if is_rare(dice) {
        dice.pick(&pauses)
    } else {
        Duration::ZERO
    };
    Step {
        pause: if dice.below(4) == 0 {
            dice.pick(&pauses)
        } else {
            Duration::ZERO
        },
        is_away: is_rare(dice),
        key: (!is_rare(dice)).then(|| dice.below(3)),
        cost,
        rank: dice.pick(&[100, 90, 60, 30]),
        tier: dice.pick(&[0, 0, 0, OTHER, OTHER, EXEMPT, BLOCKED]),
        network: dice.pick(&[0, 0, 0, 1, 2]),
        is_exempt: is_rare(dice),
        status: dice.pick(&[200, 200, 401, 500]),
        // Debts of requests that cost nothing would add up.
        last: if cost == 0 { 0 } else { dice.below(most + 3) },
        // A bucket does not know what it returns later when others have spent since.
        more: if options.wait.is_some() || !works.is_zero() {
            0
        } else {
            dice.below(3)
        },
        works,
    }
}

fn draw_set(dice: &mut Dice, set: &str, is_in_redis: bool) -> Vec<Policy> {
    let count = dice.pick(&[1, 1, 1, 2, 3]);
    (0..count)
        .map(|at| draw_policy(dice, format!("{set}{at}"), is_in_redis))
        .collect()
}

fn draw_policy(dice: &mut Dice, name: String, is_in_redis: bool) -> Policy {
    let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3_600));
    let algorithms = [
        Algorithm::TokenBucket,
        Algorithm::FixedWindow,
        Algorithm::TokenBucket,
        Algorithm::IntervalBucket,
        Algorithm::LeakyBucket,
        Algorithm::CalendarWindow {
            unit: CalendarUnit::Day,
            zone: TimeZone::UTC,
            anchor: None,
        },
        Algorithm::WindowFromFirstHit,
        Algorithm::SlidingWindow,
        Algorithm::SlidingBuckets { buckets: 4 },
        Algorithm::SlidingLog,
        Algorithm::Lockout {
            first: minute,
            longest: hour,
        },
    ];
    let algorithm = dice.pick(&algorithms);
    let mut amount = 1 + dice.below(6);
    let mut period = dice.pick(&[Duration::from_secs(1), minute, hour]);
    match algorithm {
        Algorithm::CalendarWindow { unit, .. } => period = unit.nominal(),
        // Requests wait for their turns, over Redis in real time.
        Algorithm::LeakyBucket => {
            (amount, period) = (
                if is_in_redis { 1_000 } else { 100 },
                Duration::from_secs(1),
            );
        }
        _ => {}
    }
    let quota = Quota::new(amount, period);
    let burst = if algorithm == Algorithm::LeakyBucket {
        1 + dice.below(6)
    } else {
        1 + dice.below(10)
    };
    let has_burst =
        algorithm.has_burst() && (algorithm == Algorithm::LeakyBucket || dice.below(2) == 0);
    let quota = if has_burst {
        quota.with_burst(burst)
    } else {
        quota
    };
    Policy::try_new(name, algorithm, quota).expect("a policy")
}

//! The texts of periods, by the file of the macro itself.

#[path = "../../../crates/tollgate-macros/src/period.rs"]
mod period;

use period::parse;
use tollgate::Quota;

#[test]
fn the_texts_are_those_of_a_quota() {
    let texts = "2s|1h30m|1 h 30 m| 250ms |min|10us|3µs|1_000s|2 days|1w|hr|1d1s|0s||2|2x|s2|30m1h|1s1s|2 s 3|_2s|-1s|1.5s|\
                 1month|2s,|99999999999999999999s|3650d|3651d|S|2S";
    for text in texts.split('|') {
        assert_eq!(
            parse(text).ok(),
            Quota::parse_period(text).ok(),
            "{text:?}: {:?}",
            parse(text)
        );
    }
}

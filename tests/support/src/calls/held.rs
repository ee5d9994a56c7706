use redis::Value;

use tollgate::{
    Costs, Decision, Error, Key,
    reservation::{ReservationId, Settlement},
    testing::{Charge, Purpose, shape, wire},
};

use super::script::{Script, call, charge, keys, time};

/// Reservations.
impl Script {
    /// Returns the text that reserves.
    #[must_use]
    pub fn reserve_text(&self) -> &str {
        &shape(self.policies())
            .script(Purpose::Reserve, self.is_capped())
            .text
    }

    /// Returns the SHA-1 of the text that reserves.
    #[must_use]
    pub fn reserve_sha(&self) -> &str {
        &shape(self.policies())
            .script(Purpose::Reserve, self.is_capped())
            .sha
    }

    /// Returns the text that reserves costs which cascade.
    #[must_use]
    pub fn cascade_text(&self) -> &str {
        &shape(self.policies())
            .script(Purpose::Cascade, self.is_capped())
            .text
    }

    /// Returns the text that settles a reservation.
    #[must_use]
    pub fn commit_text(&self) -> &str {
        &shape(self.policies()).script(Purpose::Commit, false).text
    }

    /// Returns the SHA-1 of the text that settles a reservation.
    #[must_use]
    pub fn commit_sha(&self) -> &str {
        &shape(self.policies()).script(Purpose::Commit, false).sha
    }

    /// Returns the key of the record of a reservation on the server.
    #[must_use]
    pub fn record_key(&self, key: &Key, id: &ReservationId) -> String {
        let mut text = b"tollgate:{".to_vec();
        wire::write_record_key(self.policies(), key, id, &mut text);
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Returns the words of `EVALSHA` for a reservation of `life_us` microseconds.
    #[must_use]
    pub fn reserve(
        &self,
        key: &Key,
        id: &ReservationId,
        costs: impl Into<Costs>,
        life_us: u64,
        now_us: Option<u64>,
    ) -> Vec<Vec<u8>> {
        let charge = self.charge(costs);
        let sha = match charge.borrow().cascade() {
            Some(_) => {
                &shape(self.policies())
                    .script(Purpose::Cascade, self.is_capped())
                    .sha
            }
            None => self.reserve_sha(),
        };
        self.held(sha, key, id, &charge, life_us, now_us)
    }

    /// Returns the words of `EVALSHA` for a commit of this number.
    #[must_use]
    pub fn commit(
        &self,
        key: &Key,
        id: &ReservationId,
        costs: impl Into<Costs>,
        number: u64,
        now_us: Option<u64>,
    ) -> Vec<Vec<u8>> {
        self.held(
            self.commit_sha(),
            key,
            id,
            &charge(costs, self.policies(), None),
            number,
            now_us,
        )
    }

    fn held(
        &self,
        sha: &str,
        key: &Key,
        id: &ReservationId,
        charge: &Charge,
        number: u64,
        now_us: Option<u64>,
    ) -> Vec<Vec<u8>> {
        let names = [self.record_key(key, id)]
            .into_iter()
            .chain(keys(self.policies(), key))
            .collect::<Vec<_>>();
        let packed = wire::pack_held(time(now_us), number, charge.borrow(), self.policies());
        call(sha, &names, &packed)
    }

    /// Reads the reply of a reservation of these costs. Without ceilings, only costs that cascade
    /// matter.
    ///
    /// # Errors
    ///
    /// The reply is not one that the script makes.
    pub fn reserved(
        &self,
        costs: impl Into<Costs>,
        status: i64,
        record: &[u8],
    ) -> Result<Decision, Error> {
        let reply = Value::Array(vec![Value::Int(status), Value::BulkString(record.to_vec())]);
        wire::reserved(self.policies(), self.charge(costs).borrow(), &reply)
    }

    /// Reads the reply of a commit.
    ///
    /// # Errors
    ///
    /// The reply is not one that the script makes.
    pub fn settlement(&self, status: i64) -> Result<Settlement, Error> {
        wire::settlement(&Value::Int(status))
    }
}

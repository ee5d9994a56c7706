-- leaky_bucket: holds a queue of at most `burst` units that drains at `amount` per `period`.
--
-- All steps but the refund are those of token_bucket.lua: the units that a token bucket has spent are the units in
-- this queue, and the queue is empty when the token bucket is full.
--
-- KEYS    see the frame. ARGV: amount, period, burst.
-- Stored  as token_bucket.lua: the time at which the queue is drained, the remainder, and period/amount.
-- Reply   as token_bucket.lua: the microseconds until the queue is drained, and the remainder. A request has its turn
--         when the units before it are drained. The caller subtracts its cost.
-- Effects the key expires at the end of the second in which the queue is drained.
-- Pitfalls a caller that does not wait for its turn must return its place with refund.

--# remember: only the last places come back, so a queue needs no trace

--# refund: gives back the last places
if was_first == -1 or was_first >= 0 and now + ahead == spent + was_first and part == was_second then
  if ahead < step or ahead == step and part <= step_part then
    call('DEL', key)
  else
    --@ less
    --@ store_owed
  end
end

--@ like token_bucket

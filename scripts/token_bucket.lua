-- token_bucket: holds at most `burst` units and gains `amount` units per `period`, continuously.
--
-- Sections for the frames check.lua, batch.lua, mixed.lua and refund.lua. The state is the time at
-- which the bucket is full again (virtual scheduling, the generic cell rate algorithm of ITU-T
-- I.371). One unit is worth period/amount microseconds. Times are kept in whole microseconds and a
-- remainder in 1/amount microseconds, so that rounding errors do not add up. All numbers are
-- integers below 2^53. Where a product would reach that, muldiv multiplies digit by digit.
--
-- KEYS    see the frame. ARGV: amount, period, burst. Amount and burst have at most 15 digits, and
--         burst * period / amount is at most ten years.
-- Stored  a string of three little-endian doubles: the time at which the bucket is full, in whole
--         microseconds; the remainder in 1/amount microseconds; and period/amount.
-- Reply   two words: the microseconds until the bucket is full, and the remainder. If the policy is
--         alone and `amount` divides `period`, the second word is always zero and is left out.
-- Effects the key expires at the end of the second in which the bucket is full. A charge within the
--         same second leaves the expiry unchanged: the value is written in place, with SETRANGE.
-- Cost    muldiv is defined and called only if `amount` does not divide `period` and the remainder
--         of the whole burst, or of the cost, reaches 2^53. All other quotas pay for one comparison
--         of each at most.
-- Pitfalls the third double shows that the rate was changed. Then the number of spent units is kept,
--         and not the time they would have taken: a bucket of 10 per hour that becomes 1000 per
--         second admits at once. They are rounded up to a whole microsecond. A remainder of `amount`
--         or more was written under another amount of the same rate.

--@ prepare
local pace_1 = period_1 / amount_1
local rest_1 = period_1 % amount_1
local unit_1 = (period_1 - rest_1) / amount_1
local top_1, top_part_1 = unit_1 * burst_1, 0
if rest_1 > 0 then
  local parts = rest_1 * burst_1
  if parts < 9007199254740992 then
    top_part_1 = parts % amount_1
    top_1 = top_1 + (parts - top_part_1) / amount_1
  else
    --@ muldiv
    local whole
    whole, top_part_1 = muldiv(rest_1, burst_1, amount_1)
    top_1 = top_1 + whole
  end
end

--@ step
local step_1, step_part_1 = unit_1 * cost_1, 0
if rest_1 > 0 then
  local parts = rest_1 * cost_1
  if parts < 9007199254740992 then
    step_part_1 = parts % amount_1
    step_1 = step_1 + (parts - step_part_1) / amount_1
  else
    --@ muldiv
    local whole
    whole, step_part_1 = muldiv(rest_1, cost_1, amount_1)
    step_1 = step_1 + whole
  end
end

--@ settle
local ahead_1, part_1, mended_1, kept_1 = 0, 0, false, nil
local state_1 = pcall('GET', key_1)
if state_1 and #state_1 == 24 then
  local full, part, pace = unpack('<ddd', state_1)
  kept_1 = full - full % 1000000
  if full >= now and part >= 0 then
    ahead_1, part_1 = full - now, part
    if pace ~= pace_1 or part >= amount_1 then
      if part >= 1000000000000000 then
        part_1 = part - 1000000000000000
      end
      if pace ~= pace_1 or part_1 >= amount_1 then
        if part_1 > 0 and pace < 1 then
          ahead_1 = ahead_1 + 1
        end
        local units = ahead_1 / pace
        ahead_1, part_1, mended_1 = 0, 0, true
        if units >= 0 and units <= 9007199254740992 then
          ahead_1 = math.min(math.ceil(units * pace_1), 9007199254740992)
        end
      end
    end
    if ahead_1 > top_1 or ahead_1 == top_1 and part_1 > top_part_1 then
      local most, most_part = top_1, top_part_1
      local is_owed = part >= 1000000000000000
      if is_owed then
        --@ most
      end
      if ahead_1 > most or ahead_1 == most and part_1 > most_part then
        ahead_1, part_1, mended_1 = most, most_part, true
      end
    end
  end
end

--@ fits
local next_1, next_part_1 = ahead_1 + step_1, part_1 + step_part_1
if next_part_1 >= amount_1 then
  next_1, next_part_1 = next_1 + 1, next_part_1 - amount_1
end
local fits_1 = next_1 < ceiling_1 or next_1 == ceiling_1 and next_part_1 <= ceiling_part_1 or cost_1 == 0

--@ charge
ahead_1, part_1 = next_1, next_part_1

--@ store
local full_1 = now + ahead_1
local second_of_1 = full_1 - full_1 % 1000000
if second_of_1 == kept_1 then
  call('SETRANGE', key_1, '0', pack('<ddd', full_1, part_1, pace_1))
else
  call('SET', key_1, pack('<ddd', full_1, part_1, pace_1), 'PXAT', format('%d', second_of_1 / 1000 + 1000))
end

--@ most
most_part = top_part_1 * 8 % amount_1
most = top_1 * 8 + (top_part_1 * 8 - most_part) / amount_1

--@ store_owed
if ahead_1 > top_1 or ahead_1 == top_1 and part_1 > top_part_1 then
  local full = now + ahead_1
  local second = full - full % 1000000
  call('SET', key_1, pack('<ddd', full, part_1 + 1000000000000000, pace_1), 'PXAT', format('%d', second / 1000 + 1000))
else
  --@ store
end

--@ add
ahead_1, part_1 = ahead_1 + step_1, part_1 + step_part_1
if part_1 >= amount_1 then
  ahead_1, part_1 = ahead_1 + 1, part_1 - amount_1
end

--@ due
--@ include add
local most, most_part
--@ include most
if ahead_1 > most or ahead_1 == most and part_1 > most_part then
  ahead_1, part_1 = most, most_part
end

--@ spend
--@ include step
--@ include due

--@ held
local ahead_1, part_1 = ahead_1, part_1
do
  local cost_1 = book_1[4] + book_1[5]
  --@ spend
end

--@ free
free = math.floor((top_1 - ahead_1) / pace_1)

--@ ends
local ends = math.max(last, now + ahead_1) + top_1

--@ owe
--@ include due
--@ include store_owed

--@ last
if last_1 >= 0 and (now + ahead_1 ~= last_1 or part_1 ~= last_part_1) then
  step_1, step_part_1 = 0, 0
end

--@ refund
--@ include return

--@ return
if ahead_1 < step_1 or ahead_1 == step_1 and part_1 <= step_part_1 then
  call('DEL', key_1)
else
  ahead_1, part_1 = ahead_1 - step_1, part_1 - step_part_1
  if part_1 < 0 then
    ahead_1, part_1 = ahead_1 - 1, part_1 + amount_1
  end
  --@ store_owed
end

--@ words
local first_1, second_1 = ahead_1, part_1

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
--         microseconds; the remainder in 1/amount microseconds; and period/amount. After a reservation
--         or a late refund five more, the trace: see below.
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
-- Trace   bounds what a late refund returns, in microseconds. 1: what was returned, less the time for which the bucket was
--         full since; 2: the time of a reservation, and 3: the least that was ahead since; 4 and 5: the same of an earlier
--         one. A refund counts as if the units had come back at once, so it lowers 3 and 5, too. The key stays until nobody
--         can claim a unit: longer by 1 than until the bucket is full.

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
local ahead_1, part_1, mended_1, kept_1, trace_1 = 0, 0, false, nil, nil
do
  local state_1 = pcall('GET', key_1)
  if state_1 and (#state_1 == 24 or #state_1 == 64) then
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
    if #state_1 == 64 then
      --@ recall
    end
  end
end

--@ recall
kept_1 = nil
local trace, is_sound = { unpack('<ddddd', state_1, 25) }, true
for at = 1, 5 do
  is_sound = is_sound and trace[at] >= 0 and trace[at] <= 9007199254740992
end
if is_sound and full + trace[1] > now then
  if mended_1 then
    trace = { top_1, 0, 0, 0, 0 }
  end
  trace[1] = trace[1] - math.max(now - full, 0)
  trace[3], trace[5] = math.min(trace[3], ahead_1), math.min(trace[5], ahead_1)
  trace_1 = trace
end

--@ remember
trace_1 = trace_1 or { 0, 0, 0, 0, 0 }
if trace_1[3] * 2 < ahead_1 then
  if trace_1[5] * 2 < trace_1[3] then
    trace_1[4], trace_1[5] = trace_1[2], trace_1[3]
  end
  trace_1[2], trace_1[3] = now, ahead_1
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
if trace_1 then
  local part = part_1
  --@ store_traced
else
  local full_1 = now + ahead_1
  local second_of_1 = full_1 - full_1 % 1000000
  if second_of_1 == kept_1 then
    call('SETRANGE', key_1, '0', pack('<ddd', full_1, part_1, pace_1))
  else
    call('SET', key_1, pack('<ddd', full_1, part_1, pace_1), 'PXAT', format('%d', second_of_1 / 1000 + 1000))
  end
end

--@ store_traced
local t = trace_1
local last = now + ahead_1 + t[1]
local state = pack('<dddddddd', now + ahead_1, part, pace_1, t[1], t[2], t[3], t[4], t[5])
call('SET', key_1, state, 'PXAT', format('%d', (last - last % 1000000) / 1000 + 1000))

--@ most
most_part = top_part_1 * 8 % amount_1
most = top_1 * 8 + (top_part_1 * 8 - most_part) / amount_1

--@ store_owed
if ahead_1 > top_1 or ahead_1 == top_1 and part_1 > top_part_1 then
  local part = part_1 + 1000000000000000
  if trace_1 then
    --@ store_traced
  else
    local full = now + ahead_1
    local second = full - full % 1000000
    call('SET', key_1, pack('<ddd', full, part, pace_1), 'PXAT', format('%d', second / 1000 + 1000))
  end
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
local ends = math.max(last, now + ahead_1) + 2 * top_1

--@ owe
--@ include due
--@ include store_owed

--@ place
if last_1 >= 0 and (now + ahead_1 ~= spent + last_1 or part_1 ~= last_part_1) then
  step_1, step_part_1 = 0, 0
end

--@ refund
local trace = trace_1 or { 0, 0, 0, 0, 0 }
local is_end = last_1 >= 0 and spent + last_1 == now + ahead_1 and last_part_1 == part_1
local is_last = is_end and trace[1] == 0
local room, room_part = ahead_1, part_1
if not is_end and (last_1 > top_1 or last_1 == top_1 and last_part_1 > top_part_1) then
  room, room_part = 0, 0
elseif not is_last and spent < now then
  room, room_part = math.max(spent + last_1 - now - trace[1], 0), 0
  if spent >= trace[2] then
    room = math.max(room, trace[3])
  end
  if spent >= trace[4] then
    room = math.max(room, trace[5])
  end
end
if room < step_1 or room == step_1 and room_part < step_part_1 then
  step_1, step_part_1 = room, room_part
end
if ahead_1 < step_1 or ahead_1 == step_1 and part_1 < step_part_1 then
  step_1, step_part_1 = ahead_1, part_1
end
local given = step_1 + math.min(step_part_1, 1)
if not is_last then
  trace[1] = math.min(trace[1] + given, top_1)
end
trace[3], trace[5] = math.max(trace[3] - given, 0), math.max(trace[5] - given, 0)
if trace[1] > 0 then
  trace_1 = trace
end
if trace[1] == 0 and ahead_1 == step_1 and part_1 == step_part_1 then
  call('DEL', key_1)
else
  --@ less
  --@ store_owed
end

--@ less
ahead_1, part_1 = ahead_1 - step_1, part_1 - step_part_1
if part_1 < 0 then
  ahead_1, part_1 = ahead_1 - 1, part_1 + amount_1
end

--@ return
if ahead_1 < step_1 or ahead_1 == step_1 and part_1 <= step_part_1 then
  call('DEL', key_1)
else
  --@ less
  --@ store_owed
end

--@ words
local first_1, second_1 = ahead_1, part_1

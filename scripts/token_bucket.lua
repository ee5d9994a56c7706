-- token_bucket: holds at most `burst` units and gains `amount` units per `period`, continuously.
--
-- The state is the time at which the bucket is full again (virtual scheduling, the generic cell rate algorithm of
-- ITU-T I.371). One unit is worth period/amount microseconds. Times are kept in whole microseconds and a remainder in
-- 1/amount microseconds, so that rounding errors do not add up. All numbers are integers below 2^53. Where a product
-- would reach that, muldiv multiplies digit by digit.
--
-- KEYS    see the frame. ARGV: amount, period, burst. Amount and burst have at most 15 digits, and burst * period /
--         amount is at most ten years.
-- Stored  a string of three little-endian doubles: the time at which the bucket is full, in whole microseconds; the
--         remainder in 1/amount microseconds; and period/amount. After a reservation or a late refund five more, the
--         trace: see below.
-- Reply   two words: the microseconds until the bucket is full, and the remainder. If the policy is alone and
--         `amount` divides `period`, the second word is always zero and is left out.
-- Effects the key expires at the end of the second in which the bucket is full. A charge within the same second
--         leaves the expiry unchanged: the value is written in place, with SETRANGE.
-- Cost    muldiv is defined and called only if `amount` does not divide `period` and the remainder of the whole
--         burst, or of the cost, reaches 2^53. All other quotas pay for one comparison of each at most.
-- Pitfalls the third double shows that the rate was changed. Then the number of spent units is kept, and not the time
--         they would have taken: a bucket of 10 per hour that becomes 1000 per second admits at once. They are
--         rounded up to a whole microsecond. A denial stores nothing of that, unless the bucket takes longer to be
--         full than the new burst does: `mended` is then true, and else a list of the stored time and its rate. A
--         remainder of `amount` or more was written under another amount of the same rate.
-- Trace   bounds what a late refund returns, in microseconds. 1: what was returned, less the time for which the
--         bucket was full since; 2: the time of a reservation, and 3: the least that was ahead since; 4 and 5: the
--         same of an earlier one. A refund counts as if the units had come back at once, so it lowers 3 and 5, too.
--         The key stays until nobody can claim a unit: longer by 1 than until the bucket is full.

--# prepare: the time that the whole burst is worth
local pace = period / amount
local rest = period % amount
local top, top_part = (period - rest) / amount * burst, 0
if rest > 0 then
  local parts = rest * burst
  if parts < 9007199254740992 then
    top_part = parts % amount
    top = top + (parts - top_part) / amount
  else
    --@ muldiv
    local whole
    whole, top_part = muldiv(rest, burst, amount)
    top = top + whole
  end
end

--# step: the time that the cost is worth
local step, step_part = (period - rest) / amount * cost, 0
if rest > 0 then
  local parts = rest * cost
  if parts < 9007199254740992 then
    step_part = parts % amount
    step = step + (parts - step_part) / amount
  else
    --@ muldiv
    local whole
    whole, step_part = muldiv(rest, cost, amount)
    step = step + whole
  end
end

--# settle: reads how far ahead the time lies at which the bucket is full
local ahead, part, mended, kept, trace = 0, 0, false, nil, nil
do
  --@ read
  if state and (#state == 24 or #state == 64) then
    local full, full_part, full_pace = unpack('<ddd', state)
    kept = full - full % 1000000
    if full >= now and full_part >= 0 then
      ahead, part = full - now, full_part
      if full_pace ~= pace or full_part >= amount or ahead >= top then
        local most, most_part = top, top_part
        local marked = full_part
        --@ debt
        if is_owed then
          --@ most
        end
        if full_part >= 1000000000000000 then
          part = full_part - 1000000000000000
        end
        --@ convert
        if ahead > most or ahead == most and part > most_part then
          --@ cut
        end
      end
    end
    if #state == 64 then
      --@ recall
    end
  end
end

--# convert: keeps the spent units of another rate, and not the time in which they would have returned
if full_pace ~= pace or part >= amount then
  local stored = ahead
  if part > 0 and full_pace < 1 then
    stored = stored + 1
  end
  mended = full_pace == pace or ahead > most or { stored, full_pace, is_owed }
  local units = stored / full_pace
  ahead, part = 0, 0
  if units >= 0 and units <= 9007199254740992 then
    ahead = math.min(math.ceil(units * pace), 9007199254740992)
  end
end

--# cut: nothing fits a bucket of another rate that holds more than the burst
if mended and mended ~= true then
  --@ most
else
  mended = true
end
ahead, part = most, most_part

--# rebase: a settlement counts its units at the stored rate, of which the burst is not known; the most is 80 years
if full_pace ~= pace and ahead + part > 0 then
  held.other, pace = pace, full_pace
  step, step_part = math.min((more and math.ceil or math.floor)(cost * pace), 2522880000000000), 0
  top, top_part, was_first = 9007199254740992, 0, was_first < 0 and -1 or -2
  held.owed = held.owed or more
end

--# recall: reads the trace
kept = nil
local list, is_sound = { unpack('<ddddd', state, 25) }, true
for at = 1, 5 do
  is_sound = is_sound and list[at] >= 0 and list[at] <= 9007199254740992
end
if is_sound and full + list[1] > now then
  if mended then
    list = { top, 0, 0, 0, 0 }
  end
  list[1] = list[1] - math.max(now - full, 0)
  list[3], list[5] = math.min(list[3], ahead), math.min(list[5], ahead)
  trace = list
end

--# remember: writes the time of a reservation into the trace
trace = trace or { 0, 0, 0, 0, 0 }
if trace[3] * 2 < ahead then
  if trace[5] * 2 < trace[3] then
    trace[4], trace[5] = trace[2], trace[3]
  end
  trace[2], trace[3] = now, ahead
end

--# fits: compares with the time that the whole burst is worth
local next_ahead, next_part = ahead + step, part + step_part
if next_part >= amount then
  next_ahead, next_part = next_ahead + 1, next_part - amount
end
fits = next_ahead < ceiling or next_ahead == ceiling and next_part <= ceiling_part or cost == 0

--# charge: spends the cost
ahead, part, mended = next_ahead, next_part, false

--# store: writes the state, with its expiry
if trace then
  local stored_part = part
  --@ store_traced
else
  local full = now + ahead
  local begun = full - full % 1000000
  if begun == kept then
    call('SETRANGE', key, '0', pack('<ddd', full, part, pace))
  else
    call('SET', key, pack('<ddd', full, part, pace), 'PXAT', format('%d', begun / 1000 + 1000))
  end
end

--# store_traced
local t = trace
local free_at = now + ahead + t[1]
local value = pack('<dddddddd', now + ahead, stored_part, pace, t[1], t[2], t[3], t[4], t[5])
call('SET', key, value, 'PXAT', format('%d', (free_at - free_at % 1000000) / 1000 + 1000))

--# mend: a bucket of another rate is read, and stays as it is
if mended == true then
  --@ store_owed
end

--# most: a debt is at most eight times the burst
most_part = top_part * 8 % amount
most = top * 8 + (top_part * 8 - most_part) / amount

--# store_debt
local stored_part = part + 1000000000000000
if trace then
  --@ store_traced
else
  local full = now + ahead
  local begun = full - full % 1000000
  call('SET', key, pack('<ddd', full, stored_part, pace), 'PXAT', format('%d', begun / 1000 + 1000))
end

--# store_owed: stores a debt with its mark
if ahead > top or ahead == top and part > top_part then
  --@ store_debt
else
  --@ own store
end

--# store_capped: a check under a ceiling may leave a debt
--@ store_owed

--# due: charges, up to the most; what others charged beyond that stays
do
  local most, most_part
  --@ most
  if ahead > most or ahead == most and part > most_part then
    most, most_part = ahead, part
  end
  ahead, part = ahead + step, part + step_part
  if part >= amount then
    ahead, part = ahead + 1, part - amount
  end
  if ahead > most or ahead == most and part > most_part then
    ahead, part = most, most_part
  end
end

--# spend: charges, up to the most that is owed
--@ step
--@ due

--# held: the state with the outstanding units
local ahead, part = ahead, part
do
  local cost = book[4] + book[5]
  --@ spend
end

--# whole
local whole = burst

--# free
free = math.floor((top - ahead) / pace)

--# ends
local ends = math.max(last, now + ahead) + 2 * top

--# owe: charges what does not fit
--@ due
--@ store_owed

--# refund: gives back what the bucket would hold more if the units had come back at once
local list = trace or { 0, 0, 0, 0, 0 }
local passed = math.max(now - spent, 0)
local is_end = was_first >= 0 and spent + was_first == now + ahead and was_second == part
local is_last = is_end and list[1] == 0
local room, room_part = ahead, part
if not is_end and (was_first > top or was_first == top and was_second > top_part) then
  room, room_part = 0, 0
elseif not is_last and passed > 0 then
  local accrued = passed
  if held.other and held.other < pace then
    accrued = math.ceil(passed / held.other * pace)
  end
  room, room_part = step - accrued, step_part
  if room < 0 then
    room, room_part = 0, 0
  end
  local least = spent + was_first - now - list[1]
  if spent >= list[2] then
    least = math.max(least, list[3])
  end
  if spent >= list[4] then
    least = math.max(least, list[5])
  end
  if least > room then
    room, room_part = least, 0
  end
end
if room < step or room == step and room_part < step_part then
  step, step_part = room, room_part
end
if ahead < step or ahead == step and part < step_part then
  step, step_part = ahead, part
end
local given = step + math.min(step_part, 1)
if not is_last then
  list[1] = math.max(list[1], math.min(list[1] + given, top))
end
--@ less
held.owed = held.owed and ahead + part > 0
for at = 2, 4, 2 do
  local lost = given
  if list[at] < spent then
    lost = math.min(lost, passed)
  end
  list[at + 1] = math.min(math.max(list[at + 1] - lost, 0), ahead)
end
if trace or list[1] > 0 then
  trace = list
end
if list[1] == 0 and ahead == 0 and part == 0 then
  call('DEL', key)
else
  --@ store_owed
end

--# less
ahead, part = ahead - step, part - step_part
if part < 0 then
  ahead, part = ahead - 1, part + amount
end

--# words: what the reply says
first, second = ahead, part
if mended and mended ~= true and (cost == 0 or not fits) then
  --@ words_kept
end

--# words_kept: units of another rate return at that rate, so the cost fits when few enough are stored
if cost > 0 then
  first = mended[3] and ceiling or math.min(ceiling, top)
  first = math.max(first - step - math.min(step_part, 1), 0)
  local least = math.min(math.floor(first / pace * mended[2]), mended[1])
  if math.ceil(least / mended[2] * pace) > first then
    least = math.max(least - 1, 0)
  elseif least < mended[1] and math.ceil((least + 1) / mended[2] * pace) <= first then
    least = least + 1
  end
  first, second = 0, 0
  if ceiling > step or ceiling == step and ceiling_part >= step_part then
    first, second = ceiling - step, ceiling_part - step_part
    if second < 0 then
      first, second = first - 1, second + amount
    end
  end
  first = first + math.max(mended[1] - least, 1)
elseif ahead > top and not mended[3] then
  first, second = top, top_part
end

--# reply_alone: the remainder is always zero where the amount divides the period
if rest == 0 then
  return first
end

--# brief_alone
place = place + 1
replies[place] = first
if rest > 0 then
  place = place + 1
  replies[place] = second
end

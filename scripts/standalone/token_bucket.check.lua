-- tollgate: check for token_bucket
--
-- check: decides one request of one subject. Charges all policies, or none.
--
-- KEYS    one per policy, all with the same hash tag.
-- ARGV    1: numbers, packed as little-endian doubles, which is the cheapest form: the time in microseconds (below
--         zero: the server's clock); the cost for each policy (0: read without charging); then the numbers of each
--         policy, see its file. 2: the tag, only if a policy is a log. For use by hand, the numbers may be separate
--         decimal arguments, and the tag comes after them. The caller must check that cost <= burst, and the limits
--         of each algorithm, see README.md.
-- Stored  for each policy, see its file.
-- Reply   the words of each policy, see its file; the first word is -1 - word if that policy denies. At the end the
--         time. A single word is returned alone, without the time.
-- Effects admitted: one SET with PXAT or one SETRANGE per policy, see its file. Denied: nothing, except that a state
--         which lies impossibly far ahead of the clock is stored again in its corrected form (mended).
-- Pitfalls TIME may advance within a script on Redis before 7.2, so it is read once. Numbers are passed to commands
--         with format('%d'): `..` and tostring cut a time to 14 digits. Several keys are read at once, before
--         anything is written: where their slot is being moved, a call on a key that expired is refused.
--
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
local call, pcall, all = redis.call, redis.pcall, unpack
local pack, unpack, format = struct.pack, struct.unpack, string.format
local states = #KEYS > 1 and call('MGET', all(KEYS))
local packed, next_arg, tag = ARGV[1], 2
local form = '<ddddd'
if #packed < 32 then
  local numbers = {}
  for at = 1, #form - 1 do
    numbers[at] = (ARGV[at] == '' and -1 or ARGV[at]) + 0
  end
  packed, next_arg = pack(form, all(numbers)), #form
end
local now, cost, amount, period, burst = unpack(form, packed)
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local key = KEYS[1]
-- prepare: the time that the whole burst is worth
local pace = period / amount
local rest = period % amount
local top, top_part = (period - rest) / amount * burst, 0
if rest > 0 then
  local parts = rest * burst
  if parts < 9007199254740992 then
    top_part = parts % amount
    top = top + (parts - top_part) / amount
  else
    -- muldiv: the quotient and the remainder of a * b / c
    local function muldiv(a, b, c)
      local base, power, whole, rest = math.floor(4503599627370496 / c), 1, 0, 0
      while power * base <= b do
        power = power * base
      end
      repeat
        local digit = math.floor(b / power)
        local sum = rest * base + a * digit
        rest = sum % c
        whole = whole * base + (sum - rest) / c
        b, power = b - digit * power, power / base
      until power < 1
      return whole, rest
    end
    local whole
    whole, top_part = muldiv(rest, burst, amount)
    top = top + whole
  end
end
-- step: the time that the cost is worth
local step, step_part = (period - rest) / amount * cost, 0
if rest > 0 then
  local parts = rest * cost
  if parts < 9007199254740992 then
    step_part = parts % amount
    step = step + (parts - step_part) / amount
  else
    -- muldiv: the quotient and the remainder of a * b / c
    local function muldiv(a, b, c)
      local base, power, whole, rest = math.floor(4503599627370496 / c), 1, 0, 0
      while power * base <= b do
        power = power * base
      end
      repeat
        local digit = math.floor(b / power)
        local sum = rest * base + a * digit
        rest = sum % c
        whole = whole * base + (sum - rest) / c
        b, power = b - digit * power, power / base
      until power < 1
      return whole, rest
    end
    local whole
    whole, step_part = muldiv(rest, cost, amount)
    step = step + whole
  end
end
-- settle: reads how far ahead the time lies at which the bucket is full
local ahead, part, mended, kept, trace = 0, 0, false, nil, nil
do
  -- read: a state alone, or one of those that were read at once
  local state
  if states then
    state = states[1]
  else
    state = pcall('GET', key)
  end
  if state and (#state == 24 or #state == 64) then
    local full, full_part, full_pace = unpack('<ddd', state)
    kept = full - full % 1000000
    if full >= now and full_part >= 0 then
      ahead, part = full - now, full_part
      if full_pace ~= pace or full_part >= amount or ahead >= top then
        local most, most_part = top, top_part
        local marked = full_part
        -- debt: a debt has a mark
        local is_owed = marked >= 1000000000000000
        if is_owed then
          -- most: a debt is at most eight times the burst
          most_part = top_part * 8 % amount
          most = top * 8 + (top_part * 8 - most_part) / amount
        end
        if full_part >= 1000000000000000 then
          part = full_part - 1000000000000000
        end
        -- convert: keeps the spent units of another rate, and not the time in which they would have returned
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
        if ahead > most or ahead == most and part > most_part then
          -- cut: nothing fits a bucket of another rate that holds more than the burst
          if mended and mended ~= true then
            -- most: a debt is at most eight times the burst
            most_part = top_part * 8 % amount
            most = top * 8 + (top_part * 8 - most_part) / amount
          else
            mended = true
          end
          ahead, part = most, most_part
        end
      end
    end
    if #state == 64 then
      -- recall: reads the trace
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
    end
  end
end
local fits
-- fits: compares with the time that the whole burst is worth
local next_ahead, next_part = ahead + step, part + step_part
if next_part >= amount then
  next_ahead, next_part = next_ahead + 1, next_part - amount
end
fits = next_ahead < top or next_ahead == top and next_part <= top_part or cost == 0
local admitted = fits
if admitted then
  if cost > 0 then
    -- charge: spends the cost
    ahead, part, mended = next_ahead, next_part, false
    -- store: writes the state, with its expiry
    if trace then
      local stored_part = part
      local t = trace
      local free_at = now + ahead + t[1]
      local value = pack('<dddddddd', now + ahead, stored_part, pace, t[1], t[2], t[3], t[4], t[5])
      call('SET', key, value, 'PXAT', format('%d', (free_at - free_at % 1000000) / 1000 + 1000))
    else
      local full = now + ahead
      local begun = full - full % 1000000
      if begun == kept then
        call('SETRANGE', key, '0', pack('<ddd', full, part, pace))
      else
        call('SET', key, pack('<ddd', full, part, pace), 'PXAT', format('%d', begun / 1000 + 1000))
      end
    end
  end
else
  if cost > 0 then
    -- mend: a bucket of another rate is read, and stays as it is
    if mended == true then
      -- store_owed: stores a debt with its mark
      if ahead > top or ahead == top and part > top_part then
        local stored_part = part + 1000000000000000
        if trace then
          local t = trace
          local free_at = now + ahead + t[1]
          local value = pack('<dddddddd', now + ahead, stored_part, pace, t[1], t[2], t[3], t[4], t[5])
          call('SET', key, value, 'PXAT', format('%d', (free_at - free_at % 1000000) / 1000 + 1000))
        else
          local full = now + ahead
          local begun = full - full % 1000000
          call('SET', key, pack('<ddd', full, stored_part, pace), 'PXAT', format('%d', begun / 1000 + 1000))
        end
      else
        -- store: writes the state, with its expiry
        if trace then
          local stored_part = part
          local t = trace
          local free_at = now + ahead + t[1]
          local value = pack('<dddddddd', now + ahead, stored_part, pace, t[1], t[2], t[3], t[4], t[5])
          call('SET', key, value, 'PXAT', format('%d', (free_at - free_at % 1000000) / 1000 + 1000))
        else
          local full = now + ahead
          local begun = full - full % 1000000
          if begun == kept then
            call('SETRANGE', key, '0', pack('<ddd', full, part, pace))
          else
            call('SET', key, pack('<ddd', full, part, pace), 'PXAT', format('%d', begun / 1000 + 1000))
          end
        end
      end
    end
  end
end
local first, second
-- words: what the reply says
first, second = ahead, part
if mended and mended ~= true and (cost == 0 or not fits) then
  -- words_kept: units of another rate return at that rate, so the cost fits when few enough are stored
  if cost > 0 then
    first = mended[3] and top or math.min(top, top)
    first = math.max(first - step - math.min(step_part, 1), 0)
    local least = math.min(math.floor(first / pace * mended[2]), mended[1])
    if math.ceil(least / mended[2] * pace) > first then
      least = math.max(least - 1, 0)
    elseif least < mended[1] and math.ceil((least + 1) / mended[2] * pace) <= first then
      least = least + 1
    end
    first, second = 0, 0
    if top > step or top == step and top_part >= step_part then
      first, second = top - step, top_part - step_part
      if second < 0 then
        first, second = first - 1, second + amount
      end
    end
    first = first + math.max(mended[1] - least, 1)
  elseif ahead > top and not mended[3] then
    first, second = top, top_part
  end
end
-- denial: the first word of a policy that denies is below zero
if not fits then
  first = -1 - first
end
-- reply_alone: the remainder is always zero where the amount divides the period
if rest == 0 then
  return first
end
return { first, second, now }

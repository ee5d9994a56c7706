-- interval_bucket: holds at most `burst` units. `amount` units are added at once every `period`.
--
-- The timer starts with the first spent unit and runs while units are missing.
--
-- Sections for the frames check.lua, batch.lua, mixed.lua and refund.lua.
--
-- KEYS    see the frame. ARGV: amount, period, burst.
-- Stored  a string of two little-endian doubles: the time at which the timer started or last ended,
--         in microseconds, and the missing units.
-- Reply   two words: the missing units, and the microseconds until the next fill.
-- Effects the key expires within 1 ms after the fill that makes the bucket full.
-- Pitfalls a refund returns units until the next fill: a fill returns older ones.
--         Only whole fills are applied, and the timer moves by whole periods. So the part of the
--         current period that has passed is never lost, however many requests arrive.

--@ settle
local used_1, start_1, mended_1 = 0, now, false
local state_1 = pcall('GET', key_1)
if state_1 and #state_1 == 16 then
  local start, used = unpack('<dd', state_1)
  if start >= 0 and used > 0 and used <= 9007199254740992 then
    if used > burst_1 then
      local most = burst_1
      local is_owed = used >= 1000000000000000
      if used >= 1000000000000000 then
        used = used - 1000000000000000
      end
      if is_owed then
        most = burst_1 * 8
      end
      if used > most then
        used, mended_1 = most, true
      end
    end
    if start > now then
      start, mended_1 = now, true
    end
    local passed = now - start
    passed = passed - passed % period_1
    used = used - passed / period_1 * amount_1
    if used > 0 then
      used_1, start_1 = used, start + passed
    else
      mended_1 = false
    end
  end
end

--@ fits
local fits_1 = used_1 + cost_1 <= ceiling_1 or cost_1 == 0

--@ later
if not fits_1 and ceiling_wait_1 > 0 and used_1 <= burst_1 * 7 then
  local fills = math.ceil((used_1 + cost_1 - ceiling_1) / amount_1)
  fits_1 = start_1 + fills * period_1 - now <= ceiling_wait_1
end

--@ charge
used_1 = used_1 + cost_1

--@ store
local full_1 = start_1 + math.ceil(used_1 / amount_1) * period_1
call('SET', key_1, pack('<dd', start_1, used_1), 'PXAT', format('%d', (full_1 - full_1 % 1000) / 1000 + 1))

--@ store_owed
if used_1 > burst_1 then
  local full = start_1 + math.ceil(used_1 / amount_1) * period_1
  call('SET', key_1, pack('<dd', start_1, used_1 + 1000000000000000), 'PXAT', format('%d', (full - full % 1000) / 1000 + 1))
else
  --@ store
end

--@ spend
cost_1 = math.min(cost_1, burst_1 * 8 - used_1)
--@ include charge

--@ owe
--@ include spend
--@ include store_owed

--@ held
local used_1 = used_1
do
  local cost_1 = book_1[4] + book_1[5]
  --@ spend
end

--@ free
free = burst_1 - used_1

--@ ends
local ends = math.max(last, start_1 + math.ceil(used_1 / amount_1) * period_1) + math.ceil(burst_1 / amount_1) * period_1

--@ last
if last_1 >= 0 then
  local passed = start_1 + period_1 - spent - last_1
  if passed < 0 or passed % period_1 > 0 or used_1 + passed / period_1 * amount_1 ~= last_part_1 then
    cost_1 = 0
  end
end

--@ refund
if spent >= start_1 then
  used_1 = used_1 - cost_1
end
if used_1 > 0 then
  --@ store_owed
else
  call('DEL', key_1)
end

--@ words
local first_1, second_1 = used_1, start_1 + period_1 - now

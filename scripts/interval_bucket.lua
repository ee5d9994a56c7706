-- interval_bucket: holds at most `burst` units. `amount` units are added at once every `period`.
--
-- The timer starts with the first spent unit and runs while units are missing.
--
-- KEYS    see the frame. ARGV: amount, period, burst.
-- Stored  a string of two little-endian doubles: the time at which the timer started or last ended, in microseconds,
--         and the missing units.
-- Reply   two words: the missing units, and the microseconds until the next fill.
-- Effects the key expires within 1 ms after the fill that makes the bucket full.
-- Pitfalls a refund returns units until the next fill, also those that waited for a fill: a fill returns older ones.
--         Only whole fills are applied, and the timer moves by whole periods. So the part of the current period that
--         has passed is never lost, however many requests arrive.

--# settle: reads the missing units, and applies the fills since then
local used, start, mended = 0, now, false
--@ read
if state and #state == 16 then
  local old_start, missing = unpack('<dd', state)
  if old_start >= 0 and missing > 0 and missing <= 9007199254740992 then
    if missing > burst then
      local most = burst
      local marked = missing
      if missing >= 1000000000000000 then
        missing = missing - 1000000000000000
      end
      --@ cut_debt
      if is_owed then
        most = burst * 8
      end
      --@ cut
    end
    if old_start > now then
      old_start, mended = now, true
    end
    local passed = now - old_start
    passed = passed - passed % period
    missing = missing - passed / period * amount
    if missing > 0 then
      used, start = missing, old_start + passed
    else
      mended = false
    end
  end
end

--# cut: what is read is cut at the start of the period, so the next fill comes in time although nothing is stored
missing = math.min(missing, most)

--# fits: compares with the burst
fits = used + cost <= ceiling or cost == 0

--# fits_capped: a ceiling may also be a time until which units are waited for
fits = used + cost <= ceiling or cost == 0
if not fits and ceiling_wait > 0 and used <= burst * 7 then
  local fills = math.ceil((used + cost - ceiling) / amount)
  fits = start + fills * period - now <= ceiling_wait
end

--# charge: spends the cost
used = used + cost

--# store: writes the state, with its expiry
local full = start + math.min(math.ceil(used / amount) * period, 2522880000000000)
call('SET', key, pack('<dd', start, used), 'PXAT', format('%d', (full - full % 1000) / 1000 + 1))

--# store_debt
local full = start + math.min(math.ceil(used / amount) * period, 2522880000000000)
call('SET', key, pack('<dd', start, used + 1000000000000000), 'PXAT', format('%d', (full - full % 1000) / 1000 + 1))

--# store_owed: stores a debt with its mark
if used > burst then
  --@ store_debt
else
  --@ own store
end

--# store_capped: a check under a ceiling may leave a debt
--@ store_owed

--# spend: charges, up to the most that is owed
cost = math.max(math.min(cost, burst * 8 - used), 0)
--@ charge

--# owe: charges what does not fit
--@ spend
--@ store_owed

--# held: the state with the outstanding units
local used = used
do
  local cost = book[4] + book[5]
  --@ spend
end

--# whole
local whole = burst

--# free
free = burst - used

--# ends
local ends = math.max(last, start + math.ceil(used / amount) * period) + math.ceil(burst / amount) * period

--# refund: units that a fill has returned are not given back
if spent >= start and used > 0 then
  used = used - cost
  --@ put
else
  --@ refused
end

--# put
if used > 0 then
  --@ store_owed
else
  call('DEL', key)
end

--# refund_capped: only the last places in a debt are given back
local passed = start + period - spent - was_first
if was_first < 0 or passed >= 0 and passed % period == 0 and used + passed / period * amount == was_second then
  local spent = spent
  if was_second > burst then
    spent = spent + was_first + (math.ceil((was_second - burst) / amount) - 1) * period
  end
  --@ own refund
end

--# words: what the reply says
first, second = used, start + period - now

-- tollgate: check for interval_bucket
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
-- settle: reads the missing units, and applies the fills since then
local used, start, mended = 0, now, false
-- read: a state alone, or one of those that were read at once
local state
if states then
  state = states[1]
else
  state = pcall('GET', key)
end
if state and #state == 16 then
  local old_start, missing = unpack('<dd', state)
  if old_start >= 0 and missing > 0 and missing <= 9007199254740992 then
    if missing > burst then
      local most = burst
      local marked = missing
      if missing >= 1000000000000000 then
        missing = missing - 1000000000000000
      end
      -- cut_debt: the same where the counts are cut as often as they are read, also by look.lua
      local is_owed = marked >= 1000000000000000
      if is_owed then
        most = burst * 8
      end
      -- cut: what is read is cut at the start of the period, so the next fill comes in time although nothing is stored
      missing = math.min(missing, most)
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
local fits
-- fits: compares with the burst
fits = used + cost <= burst or cost == 0
local admitted = fits
if admitted then
  if cost > 0 then
    -- charge: spends the cost
    used = used + cost
    -- store: writes the state, with its expiry
    local full = start + math.min(math.ceil(used / amount) * period, 2522880000000000)
    call('SET', key, pack('<dd', start, used), 'PXAT', format('%d', (full - full % 1000) / 1000 + 1))
  end
else
  if cost > 0 then
    -- mend: stores what was corrected
    if mended then
      -- store_owed: stores a debt with its mark
      if used > burst then
        local full = start + math.min(math.ceil(used / amount) * period, 2522880000000000)
        call('SET', key, pack('<dd', start, used + 1000000000000000), 'PXAT', format('%d', (full - full % 1000) / 1000 + 1))
      else
        -- store: writes the state, with its expiry
        local full = start + math.min(math.ceil(used / amount) * period, 2522880000000000)
        call('SET', key, pack('<dd', start, used), 'PXAT', format('%d', (full - full % 1000) / 1000 + 1))
      end
    end
  end
end
local first, second
-- words: what the reply says
first, second = used, start + period - now
-- denial: the first word of a policy that denies is below zero
if not fits then
  first = -1 - first
end
return { first, second, now }

-- tollgate: check for lockout
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
-- lockout: counts failures in windows of `period` that the first failure opens. `amount` of them lock the key for a
-- time: `lock` for the first time, then twice the time before, at most `longest`.
--
-- KEYS    see the frame. ARGV: amount, period, lock, longest.
-- Stored  a string of five little-endian doubles: the start of the window; its end, or that of the lockout; the
--         failures; the lockouts that have ended; the end of the last one. Times are in microseconds.
-- Reply   four words: the failures, and the microseconds until the window closes, until the lockout ends, and until
--         the lockouts that have ended are forgotten (0: there is none).
-- Effects the key expires within 1 ms after its failures are forgotten, and `longest` after a lockout. A charge to a
--         locked key counts, and does not prolong the lockout.
-- Pitfalls a refund takes back only failures of the window that counts, and with them the lockout to which they led.
--         As many failures as `amount`, because that was lowered, are no lockout: they deny until their window ends. So
--         a lockout is marked: 10^15 is added to the failures. A time that lies ahead of the clock is moved back, so that no client waits longer than its lockout.
local call, pcall, all = redis.call, redis.pcall, unpack
local pack, unpack, format = struct.pack, struct.unpack, string.format
local states = #KEYS > 1 and call('MGET', all(KEYS))
local packed, next_arg, tag = ARGV[1], 2
local form = '<dddddd'
if #packed < 32 then
  local numbers = {}
  for at = 1, #form - 1 do
    numbers[at] = (ARGV[at] == '' and -1 or ARGV[at]) + 0
  end
  packed, next_arg = pack(form, all(numbers)), #form
end
local now, cost, amount, period, lock, longest = unpack(form, packed)
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local key = KEYS[1]
-- settle: reads the failures that count, and ends a lockout that is over
local failures, start, stop, level, ended, mended, known, out = 0, now, 0, 0, 0, false, false, false
-- read: a state alone, or one of those that were read at once
local state
if states then
  state = states[1]
else
  state = pcall('GET', key)
end
if state and #state == 40 then
  local old_start, old_stop, count, old_level, old_end = unpack('<ddddd', state)
  if old_start >= 0 and old_stop >= 0 and old_end >= 0 and count >= 0 and count <= 9007199254740992 and old_level >= 0 and old_level <= 64 then
    known = true
    local marked = count >= 1000000000000000
    if marked then
      count = count - 1000000000000000
    end
    local locked = marked and count > 0 and count >= amount
    if locked and old_stop <= now then
      old_level, old_end, count, locked = math.min(old_level + 1, 64), old_stop, 0, false
    end
    local most = now + math.min(lock * 2 ^ old_level, longest)
    mended = count > 0 and old_start > now or locked and old_stop > most or old_level > 0 and old_end > now
    old_start, old_end = math.min(old_start, now), math.min(old_end, now)
    if locked or count > 0 and now - old_start < period then
      failures, start = count, old_start
    end
    stop, out = locked and math.min(old_stop, most) or start + period, locked
    if old_level > 0 and (locked or now - old_end < longest) then
      level, ended = old_level, old_end
    end
  end
end
local fits
-- fits: compares with the amount
fits = cost == 0 or failures + cost <= amount
local admitted = fits
if admitted then
  if cost > 0 then
    -- charge: spends the cost
    if failures == 0 then
      start = now
    end
    failures = failures + cost
    if failures - cost < amount then
      stop = start + period
      if failures >= amount then
        stop, out = now + math.min(lock * 2 ^ level, longest), true
      end
    end
    -- store: writes the state, with its expiry
    local fresh, mark = stop + longest, 1000000000000000
    if failures == 0 or not out then
      mark = 0
      fresh = math.max(failures > 0 and stop or 0, level > 0 and ended + longest or 0)
    end
    if fresh > now then
      call('SET', key, pack('<ddddd', start, stop, failures + mark, level, ended), 'PXAT', format('%d', (fresh - fresh % 1000) / 1000 + 1))
    else
      call('DEL', key)
    end
  end
else
  if cost > 0 then
    -- mend: stores what was corrected
    if mended then
      -- store: writes the state, with its expiry
      local fresh, mark = stop + longest, 1000000000000000
      if failures == 0 or not out then
        mark = 0
        fresh = math.max(failures > 0 and stop or 0, level > 0 and ended + longest or 0)
      end
      if fresh > now then
        call('SET', key, pack('<ddddd', start, stop, failures + mark, level, ended), 'PXAT', format('%d', (fresh - fresh % 1000) / 1000 + 1))
      else
        call('DEL', key)
      end
    end
  end
end
local first, second, third, fourth
-- words: what the reply says
first, second, third, fourth = failures, 0, 0, 0
if failures > 0 then
  second = math.max(start + period - now, 0)
end
if out then
  third = stop - now
end
if level > 0 then
  fourth = math.max(ended + longest - now, 0)
end
-- denial: the first word of a policy that denies is below zero
if not fits then
  first = -1 - first
end
return { first, second, third, fourth, now }

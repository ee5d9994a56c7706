-- tollgate: check for fixed_window
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
-- fixed_window: admits at most `amount` units in each window. Windows start at multiples of `period`.
--
-- KEYS    see the frame. ARGV: amount, period.
-- Stored  a string of three little-endian doubles: the start of the window in microseconds, the units spent in it,
--         and its period.
-- Reply   two words: the spent units, and the microseconds until the window ends.
-- Effects the key expires within 1 ms after the end of the window. Within the window only the count is written, in
--         place, with SETRANGE. The stored period shows whether the expiry is that of the window.
-- Pitfalls a window that lies ahead of the clock is kept if it is the next one, so that a clock that was set back a
--         little gives no unit twice. If it lies further ahead it is moved to now.
local call, pcall, all = redis.call, redis.pcall, unpack
local pack, unpack, format = struct.pack, struct.unpack, string.format
local states = #KEYS > 1 and call('MGET', all(KEYS))
local packed, next_arg, tag = ARGV[1], 2
local form = '<dddd'
if #packed < 32 then
  local numbers = {}
  for at = 1, #form - 1 do
    numbers[at] = (ARGV[at] == '' and -1 or ARGV[at]) + 0
  end
  packed, next_arg = pack(form, all(numbers)), #form
end
local now, cost, amount, period = unpack(form, packed)
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local key = KEYS[1]
-- settle: reads what was spent in this window
-- read: a state alone, or one of those that were read at once
local state
if states then
  state = states[1]
else
  state = pcall('GET', key)
end
local used, start, mended, kept = 0, now - now % period, false, nil
if state and #state == 24 then
  local old_start, old_used, old_period = unpack('<ddd', state)
  if old_start >= start and old_used > 0 and old_used <= 9007199254740992 then
    used = old_used
    if old_start > now + period then
      mended = true
    elseif old_start > now then
      start = old_start - old_start % period
    end
    if old_start == start and old_period == period then
      kept = true
    end
  end
end
local fits
-- fits: compares with the amount
fits = cost == 0 or used + cost <= amount
local admitted = fits
if admitted then
  if cost > 0 then
    -- charge: spends the cost
    used = used + cost
    -- store: writes the state, with its expiry
    if kept then
      call('SETRANGE', key, '8', pack('<d', used))
    else
      local stop = start + period
      call('SET', key, pack('<ddd', start, used, period), 'PXAT', format('%d', (stop - stop % 1000) / 1000 + 1))
    end
  end
else
  if cost > 0 then
    -- mend: stores what was corrected
    if mended then
      -- store: writes the state, with its expiry
      if kept then
        call('SETRANGE', key, '8', pack('<d', used))
      else
        local stop = start + period
        call('SET', key, pack('<ddd', start, used, period), 'PXAT', format('%d', (stop - stop % 1000) / 1000 + 1))
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

-- tollgate: check for sliding_buckets
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
-- sliding_buckets: admits at most `amount` units in any period, with a counter for each sub-window.
--
-- The current bucket and the `buckets` before it count in full, so no interval of one period ever contains more than
-- `amount`.
--
-- KEYS    see the frame. ARGV: amount, the width of a bucket in microseconds (period / buckets, rounded up), buckets.
-- Stored  a string: three little-endian doubles (the width, the number of the newest bucket since the epoch, the sum
--         of all units); then, for each bucket that is not empty, oldest first, two bytes of its number and four
--         bytes of its units.
-- Reply   four words: the units that count; the microseconds until the denied cost fits (0 if it fits now); until no
--         unit counts; until one unit more than now would fit.
-- Effects the key expires within 1 ms after the newest bucket no longer counts.
-- Pitfalls a stored width that differs shows that the period or the number of buckets was changed. Each bucket is
--         then placed at the latest time at which its units can have been spent.
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
local now, cost, amount, width, buckets = unpack(form, packed)
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local key = KEYS[1]
-- settle: reads the buckets that count
local now_at = (now - now % width) / width
local used, newest, from, mended = 0, now_at, 25, false
-- read: a state alone, or one of those that were read at once
local state
if states then
  state = states[1]
else
  state = pcall('GET', key)
end
local size = state and #state or 0
if size >= 30 and size % 6 == 0 then
  local old_width, old_newest, total = unpack('<ddd', state)
  if old_width == width and old_newest <= now_at + buckets then
    if total <= 4294967295 then
      local oldest = math.max(old_newest, now_at) - buckets
      used, newest = total, old_newest
      repeat
        local at, count = unpack('<I2I4', state, from)
        local stays = old_newest - (old_newest - at) % 65536 >= oldest
        if not stays then
          used, from = used - count, from + 6
        end
      until stays or from > size
    end
  elseif old_width > 0 then
    local list, last, sum = '', 0, 0
    for place = 25, size, 6 do
      local at, count = unpack('<I2I4', state, place)
      at = math.min((old_newest - (old_newest - at) % 65536 + 1) * old_width - 1, now)
      at = (at - at % width) / width
      if at >= now_at - buckets then
        if at ~= last and sum > 0 then
          list, sum = pack('<c0I2I4', list, last % 65536, sum), 0
        end
        used, last, sum = used + count, at, sum + count
      end
    end
    if used > 0 then
      newest, mended = last, true
      state = pack('<dddc0I2I4', width, last, used, list, last % 65536, sum)
    end
  end
end
if not (used > 0) or from > size then
  used, newest, from, state = 0, now_at, 25, ''
end
local fits
-- fits: compares with the amount
fits = cost == 0 or used + cost <= amount
local admitted = fits
if admitted then
  if cost > 0 then
    -- charge: spends the cost
    local to, sum = #state, cost
    if used > 0 and newest >= now_at then
      sum, to = cost + unpack('<I4', state, to - 3), to - 6
    else
      newest = now_at
    end
    used = used + cost
    state = pack('<dddc0I2I4', width, newest, used, state:sub(from, to), newest % 65536, sum)
    from = 25
    -- store: writes the state, with its expiry
    local stop = (newest + buckets + 1) * width
    call('SET', key, state, 'PXAT', format('%d', (stop - stop % 1000) / 1000 + 1))
  end
else
  if cost > 0 then
    -- mend: stores what was corrected
    if mended then
      -- store: writes the state, with its expiry
      local stop = (newest + buckets + 1) * width
      call('SET', key, state, 'PXAT', format('%d', (stop - stop % 1000) / 1000 + 1))
    end
  end
end
local first, second, third, fourth
-- words: what the reply says
first, second, third, fourth = used, 0, 0, 0
if used > 0 then
  third = (newest + buckets + 1) * width - now
  local some, most, gone, place = math.max(used + 1 - amount, 1), 0, 0, from
  if not fits then
    most = used + cost - amount
  end
  while (gone < some or gone < most) and place < #state do
    local at, count = unpack('<I2I4', state, place)
    local leaves = (newest - (newest - at) % 65536 + buckets + 1) * width - now
    if gone < some then
      fourth = leaves
    end
    if gone < most then
      second = leaves
    end
    gone, place = gone + count, place + 6
  end
end
-- denial: the first word of a policy that denies is below zero
if not fits then
  first = -1 - first
end
return { first, second, third, fourth, now }

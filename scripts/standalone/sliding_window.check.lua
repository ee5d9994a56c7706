-- tollgate: check for sliding_window
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
-- sliding_window: admits about `amount` units in any `period`, with two counters.
--
-- One counter is for the current window, which is aligned to the clock. The window before it counts by the share that
-- still lies inside the period.
--
-- KEYS    see the frame. ARGV: amount, period; amount is below 2^32.
-- Stored  a string of three little-endian doubles: the start of the window in microseconds, the units spent in it,
--         the units spent in the window before.
-- Reply   three words: both counts, and the microseconds until the window ends. That is more than a period if the
--         window has not begun, because the clock was set back.
-- Effects the key expires within 1 ms after the end of the next window, or after the end of this one if only the
--         window before it has units.
-- Cost    only if amount * period reaches 2^53, the products are replaced by an exact division, digit by digit.
-- Pitfalls shares are compared as products and never divided, so nothing is rounded.
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
local wide = amount * period >= 9007199254740992
-- settle: reads both counts
local current, previous, start, mended = 0, 0, now - now % period, false
-- read: a state alone, or one of those that were read at once
local state
if states then
  state = states[1]
else
  state = pcall('GET', key)
end
if state and #state == 24 then
  local old_start, in_last, in_earlier = unpack('<ddd', state)
  if old_start >= start - period and in_last >= 0 and in_earlier >= 0 and in_last + in_earlier > 0 then
    if in_last > amount or in_earlier > amount then
      local most = amount
      local marked = in_last
      if in_last >= 1000000000000000 then
        in_last = in_last - 1000000000000000
      end
      -- cut_debt: the same where the counts are cut as often as they are read, also by look.lua
      local is_owed = marked >= 1000000000000000
      if is_owed then
        most = math.min(amount * 8, 4294967295)
      end
      -- cut: the counts are cut as often as they are read, and need not be stored
      in_last, in_earlier = math.min(in_last, most), math.min(in_earlier, most)
    end
    if old_start > now + period then
      mended = true
    elseif old_start > now then
      start = old_start - old_start % period
    elseif old_start < start then
      in_last, in_earlier = 0, in_last
    end
    current, previous = in_last, in_earlier
    mended = mended and in_last + in_earlier > 0
  end
end
local left = start + period - now
local fits
-- fits: compares products, which are exact
fits = cost == 0 or previous * math.min(left, period) <= (amount - current - cost) * period
if wide and cost > 0 then
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
  local share, part = muldiv(math.min(left, period), previous, period)
  fits = share < amount - current - cost or share == amount - current - cost and part == 0
end
local admitted = fits
if admitted then
  if cost > 0 then
    -- charge: spends the cost
    current = current + cost
    -- store: writes the state, with its expiry
    local stop = start + period
    if current > 0 then
      stop = stop + period
    end
    if previous > amount then
      call('SET', key, pack('<ddd', start, current + 1000000000000000, previous), 'PXAT', format('%d', (stop - stop % 1000) / 1000 + 1))
    else
      call('SET', key, pack('<ddd', start, current, previous), 'PXAT', format('%d', (stop - stop % 1000) / 1000 + 1))
    end
  end
else
  if cost > 0 then
    -- mend: stores what was corrected
    if mended then
      -- store_owed: stores a debt with its mark
      if current > amount then
        local stop = start + period * 2
        call('SET', key, pack('<ddd', start, current + 1000000000000000, previous), 'PXAT', format('%d', (stop - stop % 1000) / 1000 + 1))
      else
        -- store: writes the state, with its expiry
        local stop = start + period
        if current > 0 then
          stop = stop + period
        end
        if previous > amount then
          call('SET', key, pack('<ddd', start, current + 1000000000000000, previous), 'PXAT', format('%d', (stop - stop % 1000) / 1000 + 1))
        else
          call('SET', key, pack('<ddd', start, current, previous), 'PXAT', format('%d', (stop - stop % 1000) / 1000 + 1))
        end
      end
    end
  end
end
local first, second, third
-- words: what the reply says
first, second, third = current, previous, left
-- denial: the first word of a policy that denies is below zero
if not fits then
  first = -1 - first
end
return { first, second, third, now }

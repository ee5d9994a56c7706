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

--# prepare
local wide = amount * period >= 9007199254740992

--# settle: reads both counts
local current, previous, start, mended = 0, 0, now - now % period, false
--@ read
if state and #state == 24 then
  local old_start, in_last, in_earlier = unpack('<ddd', state)
  if old_start >= start - period and in_last >= 0 and in_earlier >= 0 and in_last + in_earlier > 0 then
    if in_last > amount or in_earlier > amount then
      local most = amount
      local marked = in_last
      if in_last >= 1000000000000000 then
        in_last = in_last - 1000000000000000
      end
      --@ cut_debt
      if is_owed then
        most = math.min(amount * 8, 4294967295)
      end
      --@ cut
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

--# cut: the counts are cut as often as they are read, and need not be stored
in_last, in_earlier = math.min(in_last, most), math.min(in_earlier, most)

--# fits: compares products, which are exact
fits = cost == 0 or previous * math.min(left, period) <= (ceiling - current - cost) * period
if wide and cost > 0 then
  --@ muldiv
  local share, part = muldiv(math.min(left, period), previous, period)
  fits = share < ceiling - current - cost or share == ceiling - current - cost and part == 0
end

--# charge: spends the cost
current = current + cost

--# store: writes the state, with its expiry
local stop = start + period
if current > 0 then
  stop = stop + period
end
if previous > amount then
  --@ store_marked
else
  call('SET', key, pack('<ddd', start, current, previous), 'PXAT', format('%d', (stop - stop % 1000) / 1000 + 1))
end

--# store_marked
call('SET', key, pack('<ddd', start, current + 1000000000000000, previous), 'PXAT', format('%d', (stop - stop % 1000) / 1000 + 1))

--# store_debt
local stop = start + period
if current > 0 then
  stop = stop + period
end
--@ store_marked

--# store_owed: stores a debt with its mark
if current > amount then
  local stop = start + period * 2
  --@ store_marked
else
  --@ store
end

--# spend: charges, up to the most that is owed
cost = math.min(cost, math.min(amount * 8, 4294967295) - current)
if cost > 0 then
  --@ charge
end

--# owe: charges what does not fit
--@ spend
if cost > 0 then
  --@ store_owed
end

--# held: the state with the outstanding units
local current = current
do
  local cost = book[4] + book[5]
  --@ spend
end

--# free
free = math.floor(amount - current - previous * math.min(left, period) / period)

--# ends
local ends = last + 2 * period

--# refund: takes units back from the window in which they were spent
if spent >= start then
  current = math.max(current - cost, 0)
elseif spent >= start - period then
  previous = math.max(previous - cost, 0)
end
if current + previous > 0 then
  --@ store_owed
else
  call('DEL', key)
end

--# words: what the reply says
first, second, third = current, previous, left

-- sliding_window: admits about `amount` units in any `period`, with two counters.
--
-- One counter is for the current window, which is aligned to the clock. The window before it counts
-- by the share that still lies inside the period.
--
-- Sections for the frames check.lua, batch.lua, mixed.lua and refund.lua.
--
-- KEYS    see the frame. ARGV: amount, period; amount is below 2^32.
-- Stored  a string of three little-endian doubles: the start of the window in microseconds, the
--         units spent in it, the units spent in the window before.
-- Reply   three words: both counts, and the microseconds until the window ends. That is more than a
--         period if the window has not begun, because the clock was set back.
-- Effects the key expires within 1 ms after the end of the next window, or after the end of this one
--         if only the window before it has units.
-- Cost    only if amount * period reaches 2^53, the products are replaced by an exact division, digit
--         by digit.
-- Pitfalls shares are compared as products and never divided, so nothing is rounded.

--@ prepare
local wide_1 = amount_1 * period_1 >= 9007199254740992

--@ settle
local current_1, previous_1, start_1, mended_1 = 0, 0, now - now % period_1, false
local state_1 = pcall('GET', key_1)
if state_1 and #state_1 == 24 then
  local start, current, previous = unpack('<ddd', state_1)
  if start >= start_1 - period_1 and current >= 0 and previous >= 0 and current + previous > 0 then
    if current > amount_1 or previous > amount_1 then
      local most = amount_1
      local is_owed = current >= 1000000000000000
      if current >= 1000000000000000 then
        current = current - 1000000000000000
      end
      if is_owed then
        most = math.min(amount_1 * 8, 4294967295)
      end
      if current > most or previous > most then
        current, previous, mended_1 = math.min(current, most), math.min(previous, most), true
      end
    end
    if start > now + period_1 then
      mended_1 = true
    elseif start > now then
      start_1 = start - start % period_1
    elseif start < start_1 then
      current, previous = 0, current
    end
    current_1, previous_1 = current, previous
    mended_1 = mended_1 and current + previous > 0
  end
end
local left_1 = start_1 + period_1 - now

--@ fits
local fits_1 = cost_1 == 0
  or previous_1 * math.min(left_1, period_1) <= (ceiling_1 - current_1 - cost_1) * period_1
if wide_1 and cost_1 > 0 then
  --@ muldiv
  local share, part = muldiv(math.min(left_1, period_1), previous_1, period_1)
  fits_1 = share < ceiling_1 - current_1 - cost_1 or share == ceiling_1 - current_1 - cost_1 and part == 0
end

--@ charge
current_1 = current_1 + cost_1

--@ store
local end_1 = start_1 + period_1
if current_1 > 0 then
  end_1 = end_1 + period_1
end
if previous_1 > amount_1 then
  --@ store_marked
else
  call('SET', key_1, pack('<ddd', start_1, current_1, previous_1), 'PXAT', format('%d', (end_1 - end_1 % 1000) / 1000 + 1))
end

--@ store_marked
call('SET', key_1, pack('<ddd', start_1, current_1 + 1000000000000000, previous_1), 'PXAT', format('%d', (end_1 - end_1 % 1000) / 1000 + 1))

--@ store_owed
if current_1 > amount_1 then
  local end_1 = start_1 + period_1 * 2
  --@ store_marked
else
  --@ store
end

--@ spend
cost_1 = math.min(cost_1, math.min(amount_1 * 8, 4294967295) - current_1)
if cost_1 > 0 then
  --@ charge
end

--@ owe
--@ include spend
if cost_1 > 0 then
  --@ store_owed
end

--@ held
local current_1 = current_1
do
  local cost_1 = book_1[4] + book_1[5]
  --@ spend
end

--@ free
free = math.floor(amount_1 - current_1 - previous_1 * math.min(left_1, period_1) / period_1)

--@ ends
local ends = last + 2 * period_1

--@ refund
if spent >= start_1 then
  current_1 = math.max(current_1 - cost_1, 0)
elseif spent >= start_1 - period_1 then
  previous_1 = math.max(previous_1 - cost_1, 0)
end
if current_1 + previous_1 > 0 then
  --@ store_owed
else
  call('DEL', key_1)
end

--@ words
local first_1, second_1, third_1 = current_1, previous_1, left_1

-- fixed_window: admits at most `amount` units in each window. Windows start at multiples of `period`.
--
-- Sections for the frames check.lua, batch.lua, mixed.lua and refund.lua.
--
-- KEYS    see the frame. ARGV: amount, period.
-- Stored  a string of three little-endian doubles: the start of the window in microseconds, the
--         units spent in it, and its period.
-- Reply   two words: the spent units, and the microseconds until the window ends.
-- Effects the key expires within 1 ms after the end of the window. Within the window only the count
--         is written, in place, with SETRANGE. The stored period shows whether the expiry is that of
--         the window.
-- Pitfalls a window that lies ahead of the clock is kept if it is the next one, so that a clock that
--         was set back a little gives no unit twice. If it lies further ahead it is moved to now.

--@ settle
local count_1, start_1, mended_1, kept_1 = 0, now - now % period_1, false, nil
local state_1 = pcall('GET', key_1)
if state_1 and #state_1 == 24 then
  local start, count, period = unpack('<ddd', state_1)
  if start >= start_1 and count > 0 and count <= 9007199254740992 then
    count_1 = count
    if start > now + period_1 then
      mended_1 = true
    elseif start > now then
      start_1 = start - start % period_1
    end
    if start == start_1 and period == period_1 then
      kept_1 = true
    end
  end
end

--@ fits
local fits_1 = cost_1 == 0 or count_1 + cost_1 <= ceiling_1

--@ charge
count_1 = count_1 + cost_1

--@ store
if kept_1 then
  call('SETRANGE', key_1, '8', pack('<d', count_1))
else
  local end_1 = start_1 + period_1
  call('SET', key_1, pack('<ddd', start_1, count_1, period_1), 'PXAT', format('%d', (end_1 - end_1 % 1000) / 1000 + 1))
end

--@ spend
cost_1 = math.min(cost_1, amount_1 * 8 - count_1)
if cost_1 > 0 then
  --@ charge
end

--@ owe
--@ include spend
if cost_1 > 0 then
  --@ store
end

--@ held
local count_1 = count_1
do
  local cost_1 = book_1[4] + book_1[5]
  --@ spend
end

--@ free
free = amount_1 - count_1

--@ ends
local ends = last + period_1

--@ refund
if spent >= start_1 then
  count_1 = count_1 - cost_1
end
if count_1 > 0 then
  --@ store
else
  call('DEL', key_1)
end

--@ words
local first_1, second_1 = count_1, start_1 + period_1 - now

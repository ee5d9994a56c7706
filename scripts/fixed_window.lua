-- fixed_window: at most `amount` units in each window that starts at a multiple of `period`.
--
-- Sections for the frames check.lua and refund.lua.
--
-- KEYS    the frame's. ARGV: amount, period.
-- Stored  a string of two little-endian doubles: the start of the window in microseconds, and
--         the units spent in it.
-- Reply   two words: the units spent, and the microseconds that are left of the window.
-- Effects the key expires within 1 ms after the window's end.
-- Pitfalls a window that lies ahead of the clock is kept when it is the next one, so that a clock
--         that went back a little gives nothing twice; further ahead it is moved to now.

--@ settle
local count_1, start_1, mended_1 = 0, now - now % period_1, false
local state_1 = pcall('GET', key_1)
if state_1 and #state_1 == 16 then
  local start, count = unpack('<dd', state_1)
  if start >= start_1 and count > 0 and count <= 9007199254740992 then
    count_1 = count
    if start > now + period_1 then
      mended_1 = true
    elseif start > now then
      start_1 = start - start % period_1
    end
  end
end

--@ fits
local fits_1 = cost == 0 or count_1 + cost <= amount_1

--@ charge
count_1 = count_1 + cost

--@ store
local end_1 = start_1 + period_1
call('SET', key_1, pack('<dd', start_1, count_1), 'PXAT', format('%d', (end_1 - end_1 % 1000) / 1000 + 1))

--@ refund
if spent >= start_1 then
  count_1 = count_1 - cost
end
if count_1 > 0 then
  --@ store
else
  call('DEL', key_1)
end

--@ words
local first_1, second_1 = count_1, start_1 + period_1 - now

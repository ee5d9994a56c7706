-- calendar_window: admits at most `amount` units in each period of a calendar: a local day, week, month or year.
--
-- Sections for the frames check.lua, batch.lua, mixed.lua and refund.lua. The sections `fits` and
-- `charge` are those of fixed_window.lua.
--
-- KEYS    see the frame. ARGV: amount, before, begin, close, after. The last four are times in microseconds: the period of
--         the caller's clock is from begin to close, the one before it starts at before, and the next one ends at after.
-- Stored  a string of three little-endian doubles: the start of the period in microseconds, the units
--         spent in it, and its end.
-- Reply   two words: the spent units, and the microseconds until the period ends.
-- Effects the key expires within 1 ms after the end of the period. Within the period only the count is
--         written, in place, with SETRANGE. The stored end shows whether the expiry is that of the period.
-- Pitfalls the server has no time zones, so the caller tells the periods and the server's clock selects one of the three.
--         For a clock further off, periods go on with the length of the last one, so that a key always expires in the
--         future. A period that lies ahead of the clock is kept if it is the next one, so that a clock that was set back
--         a little gives no unit twice. If it lies further ahead, its units count for now.

--@ settle
local count_1, mended_1, kept_1 = 0, false, nil
local start_1, end_1, next_1 = begin_1, close_1, after_1
if now < begin_1 then
  start_1, end_1, next_1 = before_1, begin_1, close_1
elseif now >= close_1 then
  start_1, end_1, next_1 = close_1, after_1, after_1 + after_1 - close_1
end
if now < start_1 or now >= end_1 then
  local length = end_1 - start_1
  start_1 = now - (now - start_1) % length
  end_1, next_1 = start_1 + length, start_1 + length + length
end
local state_1 = pcall('GET', key_1)
if state_1 and #state_1 == 24 then
  local start, count, stop = unpack('<ddd', state_1)
  if start >= start_1 and count > 0 and count <= 9007199254740992 then
    count_1 = count
    if start > end_1 then
      mended_1 = true
    elseif start == end_1 then
      start_1, end_1 = end_1, next_1
    end
    if start == start_1 and stop == end_1 then
      kept_1 = true
    end
  end
end

--@ store
if kept_1 then
  call('SETRANGE', key_1, '8', pack('<d', count_1))
else
  call('SET', key_1, pack('<ddd', start_1, count_1, end_1), 'PXAT', format('%d', (end_1 - end_1 % 1000) / 1000 + 1))
end

--@ owe
--@ include spend
if cost_1 > 0 then
  --@ store
end

--@ ends
local ends = last + 2 * (end_1 - start_1)

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
local first_1, second_1 = count_1, end_1 - now

--@ like fixed_window

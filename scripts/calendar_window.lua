-- calendar_window: admits at most `amount` units in each period of a calendar: a local day, week, month or year, or a
-- period that begins with a customer.
--
-- The steps `fits` and `charge` are those of fixed_window.lua.
--
-- KEYS    see the frame. ARGV: amount, before, begin, close, after. The last four are times in microseconds: the
--         period of the caller's clock is from begin to close, the one before it starts at before, and the next one
--         ends at after.
-- Stored  a string of three little-endian doubles: the start of the period in microseconds, the units spent in it,
--         and its end.
-- Reply   two words: the spent units, and the microseconds until the period ends.
-- Effects the key expires within 1 ms after the end of the period. Within the period only the count is written, in
--         place, with SETRANGE. The stored end shows whether the expiry is that of the period.
-- Pitfalls the server has no time zones, so the caller tells the periods and the server's clock selects one of the
--         three. For a clock further off, periods go on with the length of the last one, so that a key always expires
--         in the future. A period that lies ahead of the clock is kept if it is the next one, so that a clock that
--         was set back a little gives no unit twice. If it lies further ahead, its units count for now. Units of a
--         period of other numbers (an anchor that moved) count where that period had not ended when this one began. One
--         that ends later than this one is mended, so that its units do not count in the next one, too.

--# settle: selects the period of this time, and reads what was spent in it
local used, mended, kept = 0, false, nil
local start, stop, next_stop = begin, close, after
if now < begin then
  start, stop, next_stop = before, begin, close
elseif now >= close then
  start, stop, next_stop = close, after, after + after - close
end
if now < start or now >= stop then
  local length = stop - start
  start = now - (now - start) % length
  stop, next_stop = start + length, start + length + length
end
--@ read
--@ hold_period
if state and #state == 24 then
  local old_start, old_used, old_stop = unpack('<ddd', state)
  if old_stop > start and old_used > 0 and old_used <= 9007199254740992 then
    used = old_used
    if old_start == stop then
      start, stop = stop, next_stop
    end
    mended = old_stop > stop
    if old_start == start and old_stop == stop then
      kept = true
    end
  end
end

--# stored_period
if state and #state == 24 then
  local old_start, old_used, old_stop = unpack('<ddd', state)
  if old_start <= now and now < old_stop and old_used > 0 then
    start, stop = old_start, old_stop
  end
end

--# store: writes the state, with its expiry
if kept then
  call('SETRANGE', key, '8', pack('<d', used))
else
  call('SET', key, pack('<ddd', start, used, stop), 'PXAT', format('%d', (stop - stop % 1000) / 1000 + 1))
end

--# ends
local ends = last + 2 * (stop - start)

--# words: what the reply says
first, second = used, stop - now

--@ like fixed_window

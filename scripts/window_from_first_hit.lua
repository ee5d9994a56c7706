-- window_from_first_hit: at most `amount` units in a window of `period` that the first hit opens.
--
-- Sections for the frames check.lua and refund.lua. All but the first are those of
-- fixed_window.lua.
--
-- KEYS    the frame's. ARGV: amount, period.
-- Stored  as fixed_window.lua: the start of the window in microseconds, the units
--         spent, and its period.
-- Reply   as fixed_window.lua: the units spent, and the microseconds that are left of the window.
-- Effects the key expires within 1 ms after the window's end, whatever is spent meanwhile.
-- Pitfalls a start that lies ahead of the clock is moved to now, so nobody waits longer than one
--         period.

--@ settle
local count_1, start_1, mended_1, kept_1 = 0, now, false, nil
local state_1 = pcall('GET', key_1)
if state_1 and #state_1 == 24 then
  local start, count, period = unpack('<ddd', state_1)
  if now - start < period_1 and count > 0 and count <= 9007199254740992 then
    count_1 = count
    if start > now then
      mended_1 = true
    else
      start_1, kept_1 = start, period == period_1
    end
  end
end

--@ like fixed_window

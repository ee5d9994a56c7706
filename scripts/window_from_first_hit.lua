-- window_from_first_hit: admits at most `amount` units in a window of `period` that the first hit opens.
--
-- Only the step `settle` is its own; the others are those of fixed_window.lua.
--
-- KEYS    see the frame. ARGV: amount, period.
-- Stored  as fixed_window.lua: the start of the window in microseconds, the spent units, and the period.
-- Reply   as fixed_window.lua: the spent units, and the microseconds until the window ends.
-- Effects the key expires within 1 ms after the end of the window, whatever is spent meanwhile.
-- Pitfalls a start that lies ahead of the clock is moved to now, so that no client waits longer than one period.

--# settle: reads what was spent in the window that is open
local used, start, mended, kept = 0, now, false, nil
--@ read
--@ hold_period
if state and #state == 24 then
  local old_start, old_used, old_period = unpack('<ddd', state)
  if now - old_start < period and old_used > 0 and old_used <= 9007199254740992 then
    used = old_used
    if old_start > now then
      mended = true
    else
      start, kept = old_start, old_period == period
    end
  end
end

--@ like fixed_window

-- window_from_first_hit: admits at most `amount` units in a window of `period` that the first hit opens.
--
-- Sections for the frames check.lua, batch.lua, mixed.lua and refund.lua. Only the section
-- `settle` is its own; the others are those of fixed_window.lua.
--
-- KEYS    see the frame. ARGV: amount, period.
-- Stored  as fixed_window.lua: the start of the window in microseconds, the spent units, and the
--         period.
-- Reply   as fixed_window.lua: the spent units, and the microseconds until the window ends.
-- Effects the key expires within 1 ms after the end of the window, whatever is spent meanwhile.
-- Pitfalls a start that lies ahead of the clock is moved to now, so that no client waits longer than
--         one period.

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

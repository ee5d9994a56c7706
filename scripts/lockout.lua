-- lockout: counts failures in windows of `period` that the first failure opens. `amount` of them lock the key for a time:
-- `lock` for the first time, then twice the time before, at most `longest`.
--
-- Sections for the frames check.lua, batch.lua, mixed.lua and refund.lua. Only `fits` is that of fixed_window.lua.
--
-- KEYS    see the frame. ARGV: amount, period, lock, longest.
-- Stored  a string of five little-endian doubles: the start of the window; its end, or that of the lockout; the failures;
--         the lockouts that have ended; the end of the last one. Times are in microseconds.
-- Reply   four words: the failures, and the microseconds until the window closes, until the lockout ends, and until the
--         lockouts that have ended are forgotten (0: there is none).
-- Effects the key expires within 1 ms after its failures are forgotten, and `longest` after a lockout. A charge to a locked
--         key counts, and does not prolong the lockout.
-- Pitfalls a refund takes back only failures of the window that counts, and with them the lockout to which they led. A time
--         that lies ahead of the clock is moved back, so that no client waits longer than its lockout.

--@ settle
local count_1, start_1, until_1, level_1, ended_1, mended_1 = 0, now, 0, 0, 0, false
local state_1 = pcall('GET', key_1)
if state_1 and #state_1 == 40 then
  local start, stop, count, level, ended = unpack('<ddddd', state_1)
  if start >= 0 and stop >= 0 and ended >= 0 and count >= 0 and count <= 9007199254740992 and level >= 0 and level <= 64 then
    if count > 0 and count >= amount_1 and stop <= now then
      level, ended, count = math.min(level + 1, 64), stop, 0
    end
    local most = now + math.min(lock_1 * 2 ^ level, longest_1)
    local locked = count > 0 and count >= amount_1
    mended_1 = count > 0 and start > now or locked and stop > most or level > 0 and ended > now
    start, ended = math.min(start, now), math.min(ended, now)
    if locked or count > 0 and now - start < period_1 then
      count_1, start_1 = count, start
    end
    if locked then
      until_1 = math.min(stop, most)
    end
    if level > 0 and (locked or now - ended < longest_1) then
      level_1, ended_1 = level, ended
    end
  end
end

--@ charge
if count_1 == 0 then
  start_1 = now
end
count_1 = count_1 + cost_1
if count_1 >= amount_1 and count_1 - cost_1 < amount_1 then
  until_1 = now + math.min(lock_1 * 2 ^ level_1, longest_1)
end

--@ store
local stop_1 = until_1
local fresh_1 = until_1 + longest_1
if count_1 == 0 or count_1 < amount_1 then
  stop_1 = start_1 + period_1
  fresh_1 = math.max(count_1 > 0 and stop_1 or 0, level_1 > 0 and ended_1 + longest_1 or 0)
end
if fresh_1 > now then
  call('SET', key_1, pack('<ddddd', start_1, stop_1, count_1, level_1, ended_1), 'PXAT', format('%d', (fresh_1 - fresh_1 % 1000) / 1000 + 1))
else
  call('DEL', key_1)
end

--@ owe
cost_1 = math.min(cost_1, amount_1 * 8 - count_1)
if cost_1 > 0 then
  --@ charge
  --@ store
end

--@ refund
if spent >= start_1 then
  count_1 = math.max(count_1 - cost_1, 0)
end
do
  --@ store
end

--@ words
local first_1, second_1, third_1, fourth_1 = count_1, 0, 0, 0
if count_1 > 0 then
  second_1 = math.max(start_1 + period_1 - now, 0)
end
if count_1 > 0 and count_1 >= amount_1 then
  third_1 = until_1 - now
end
if level_1 > 0 then
  fourth_1 = math.max(ended_1 + longest_1 - now, 0)
end

--@ like fixed_window

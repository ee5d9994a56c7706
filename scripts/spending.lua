-- spending: tells other processes what the customers of the caller have spent lately, and returns what they told.
--
-- This is a complete script and not a frame. Each process with fair shares calls it every second, for all its limits at
-- once.
--
-- KEYS    one or more: what was told of each group of limits.
-- ARGV    1: the time in microseconds, empty for the server's clock; 2: the name of the calling process; 3: the time
--         in microseconds after which the report of a silent process is dropped; then for each key, the report of the
--         caller: for each of its heaviest customers a digest and the units, as in `9f86d081884c7d65=1200`.
-- Stored  strings: for each process a line with the time of its last call, its name and its report.
-- Reply   for each key, the lines of the other processes: the newest 1023, each up to 2048 bytes.
-- Effects replaces the line of the caller, drops those of silent processes and all beyond the newest 1024, and sets the
--         expiry of each string.
-- Pitfalls a time in the future is left over from before the clock went back: its line is dropped too.
local now = ARGV[1]
if now == '' then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = now + 0
end
local lapse = ARGV[3] + 0
local replies = {}
for at = 1, #KEYS do
  local lines = {}
  for line, time, name in string.gmatch(redis.call('GET', KEYS[at]) or '', '((%d+) (%S+)[^\n]*\n)') do
    if name ~= ARGV[2] and math.abs(now - time) < lapse and #line <= 2048 then
      lines[#lines + 1] = line
    end
  end
  -- A line moves to the end with each call.
  local first = math.max(#lines - 1022, 1)
  replies[at] = table.concat(lines, '', first)
  lines[#lines + 1] = string.format('%.0f %s%s\n', now, ARGV[2], ARGV[3 + at])
  redis.call('SET', KEYS[at], table.concat(lines, '', first), 'PX', string.format('%.0f', lapse / 1000))
end
return replies

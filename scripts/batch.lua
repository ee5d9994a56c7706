-- batch: decides several requests of many subjects over the same policies.
--
-- The requests of a subject are served one after the other until one is denied. The result equals that many calls of
-- check.lua at the same instant.
--
-- KEYS    for each subject one per policy, in the order of the policies.
-- ARGV    as check.lua; then the number of requests of each subject, in decimal, unless each subject has one request.
-- Stored  for each policy, see its file.
-- Reply   for each subject: the number of admitted requests, if it has several; then the words of each policy after
--         the last admitted request, the first word as -1 - word if that policy denies the next request. At the end
--         the time. All are doubles in one string, because a list is more expensive for the client to read.
-- Effects as check.lua, but each subject is written once for all its requests.
-- Pitfalls all keys are read at the start, so no key may appear twice.
local call, all = redis.call, unpack
local pack, unpack, format = struct.pack, struct.unpack, string.format
local states = call('MGET', all(KEYS))
--@ functions
--@ sizes
--@ numbers now costs ceilings quotas
--@ tag
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
--@ prepare step
local asked, counted = 0, ARGV[next_arg]
--@ ask
local replies, place = {}, 0
for at = 0, #KEYS - <keys>, <keys> do
  local count, granted = 1, 0
  if counted then
    count = ARGV[next_arg + at / <keys>] + 0
  end
  --@ key settle verdict
  repeat
    --@ fits
    local admitted = <fits>
    if admitted then
      granted = granted + 1
      --@ admit
      if asked == 0 then
        granted = count
      end
    end
  until not admitted or granted == count
  if granted > 0 then
    --@ write
  else
    --@ leave
  end
  if count > 1 then
    place = place + 1
    replies[place] = granted
  end
  --@ answer words denial brief
end
place = place + 1
replies[place] = now
return pack(format('<%s', string.rep('d', place)), all(replies))

--# ask
asked = asked + cost

--# admit
if cost > 0 then
  --@ charge
end

--# write
if cost > 0 then
  --@ store
end

--# leave
if cost > 0 then
  --@ mend
end

--# read
local state = states[<place>]

-- batch: decides several requests of many subjects over the same policies.
--
-- This file is a frame like check.lua, filled from the same files. The requests of a subject are
-- served one after the other until one is denied. The result equals that many calls of check.lua at
-- the same instant.
--
-- KEYS    for each subject one per policy, in the order of the policies.
-- ARGV    as check.lua; then the number of requests of each subject, in decimal, unless each subject
--         has one request.
-- Stored  for each policy, see its file.
-- Reply   for each subject: the number of admitted requests, if numbers were given; then the words
--         of each policy after the last admitted request, the first word as -1 - word if that policy
--         denies the next request. At the end the time. All are doubles in one string, because a
--         list is more expensive for the client to read.
-- Effects as check.lua, but each subject is written once for all its requests.
-- Pitfalls all keys are read at the start, so no key may appear twice.
local call, pcall, all = redis.call, redis.pcall, unpack
local states = call('MGET', all(KEYS))
--@ once
--@ sizes
local pack, unpack, format = struct.pack, struct.unpack, string.format
--@ args counted
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
--@ each prepare
--@ each step
--@ counts
local replies, place = {}, 0
for at = 0, #KEYS - each, each do
  --@ keys at
  local count = 1
  if counted then
    count = ARGV[next_arg + at / each] + 0
  end
  --@ each settle
  local granted = 0
  --@ verdicts
  repeat
    --@ each fits
    --@ admitted
    if admitted then
      granted = granted + 1
      --@ if cost_1 > 0 do charge
      --@ free granted = count
    end
  until not admitted or granted == count
  if granted > 0 then
    --@ if cost_1 > 0 do store
  else
    --@ if cost_1 > 0 do mend
  end
  --@ each words
  --@ replies
end
place = place + 1
replies[place] = now
return pack(string.rep('<d', place), all(replies))

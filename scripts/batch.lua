-- batch: decide over the same policies for many keys, and for several requests of each.
--
-- A frame as check.lua, filled from the same files. Requests of one key are served one after the
-- other, until one is denied: as many calls of check.lua would do the same, at the same instant.
--
-- KEYS    for each subject one per policy, in the order of the policies.
-- ARGV    as check.lua; then, unless every subject has one request, for each subject how many, in
--         decimal.
-- Stored  per policy, see its file.
-- Reply   for each subject: how many requests were admitted, if they were counted; then per policy
--         its words after the last of them, the first one as -1 - word when that policy denies the
--         next. Last the time. All as doubles side by side in one string: a list costs whoever reads it
--         more.
-- Effects as check.lua, but a subject is written once for all its requests.
-- Pitfalls every key is read at the start, so no key may stand twice.
local call, pcall, all = redis.call, redis.pcall, unpack
local states = call('MGET', all(KEYS))
--@ once
local pack, unpack, format = struct.pack, struct.unpack, string.format
--@ args counted
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
--@ each prepare
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
      if cost > 0 then
        --@ each charge
      end
    end
  until not admitted or granted == count
  if cost == 0 then
    granted = count
  elseif granted > 0 then
    --@ each store
  else
    --@ each mend
  end
  --@ each words
  --@ replies
end
place = place + 1
replies[place] = now
return pack(string.rep('<d', place), all(replies))

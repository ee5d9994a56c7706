-- mixed: decides requests of many subjects, each over its own quotas and at costs of its own.
--
-- The policies of all subjects have the same algorithms in the same order, and numbers of their own. The requests of
-- a subject come in runs: a run is some requests of the same costs. The requests of a run are served one after the
-- other until one is denied, then the next run begins. The result equals that many calls of check.lua at the same
-- instant. Where all subjects have the same numbers and the same costs, batch.lua is cheaper.
--
-- KEYS    for each subject one per policy, in the order of the policies.
-- ARGV    1: numbers, packed as little-endian doubles: the time in microseconds (below zero: the server's clock);
--         then the numbers of each policy, see its file; the number of subjects in a row that have them, one run each,
--         and as many requests in it; the number of runs (at least 1); and for each run the cost for each policy (0:
--         read without charging) and the number of requests. Then the costs of each further subject in the row. So
--         on, until all subjects have had theirs. 2 and the next ones, only if a policy is a log: the tag of each
--         subject.
-- Stored  for each policy, see its file.
-- Reply   for each run: the number of admitted requests, if it has several; then the words of each policy after the
--         last admitted request, the first word as -1 - word if that policy denies the next request. At the end the
--         time. All are doubles in one string.
-- Effects as check.lua, but each subject is written once for all its requests.
-- Pitfalls all keys are read at the start, so no key may appear twice. If a policy is a log, each subject must have
--         exactly one run: the words of a log are read from the stored list, so every run would have to be stored. A
--         function takes at most 8000 values from a table, so a long reply is packed in parts.
local call, all = redis.call, unpack
local pack, unpack, format = struct.pack, struct.unpack, string.format
local states = call('MGET', all(KEYS))
--@ functions
--@ sizes
local packed, tag = ARGV[1]
local now, next_byte = unpack('<d', packed)
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local replies, place, from = {}, 0, 0
while from < #KEYS do
  --@ next quotas subjects runs costs ceilings count
  --@ prepare
  for at = from, from + (subjects - 1) * <keys>, <keys> do
    --@ tag_of_subject
    if at > from then
      --@ again costs ceilings
    end
    --@ key settle use
    for run = 1, runs do
      local granted, asked = 0, 0
      --@ step ask verdict
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
      --@ used
      if run == runs then
        --@ finish
      end
      if count > 1 then
        place = place + 1
        replies[place] = granted
      end
      --@ answer words denial brief
      if run < runs then
        --@ again costs ceilings count
      end
    end
  end
  from = from + subjects * <keys>
end
place = place + 1
replies[place] = now
local parts = {}
for first = 1, place, 4000 do
  local last = math.min(first + 3999, place)
  parts[#parts + 1] = pack(format('<%s', string.rep('d', last - first + 1)), all(replies, first, last))
end
return table.concat(parts)

--# use: 0 until a run asks for units, 1 while no such run was admitted, and then 2
local use = 0

--# ask
asked = asked + cost

--# admit
if cost > 0 then
  --@ charge
end

--# used
if cost > 0 and use < 2 then
  use = granted > 0 and 2 or 1
end

--# finish
if use == 2 then
  --@ store
elseif use == 1 then
  --@ mend
end

--# read
local state = states[<place>]

-- shared: the sections that every algorithm has, unless its own file, or that of the frame, has another one.
--
-- `read` gets a state: alone where it is the only one, because that is cheaper. Several states are read at once,
-- before anything is written.

--# key
local key = KEYS[<place>]

--# read: a state alone, or one of those that were read at once
local state
if states then
  state = states[<place>]
else
  state = pcall('GET', key)
end

--# debt: a debt has a mark
local is_owed = marked >= 1000000000000000

--# cut_debt: the same where the counts are cut as often as they are read, also by look.lua
local is_owed = marked >= 1000000000000000

--# verdict
local fits

--# mend: stores what was corrected
if mended then
  --@ store_owed
end

--# store_owed
--@ store

--# reply

--# brief
--@ say

--# answer
local <words>

--# denial: the first word of a policy that denies is below zero
if not fits then
  first = -1 - first
end

--# say
<slots> = <words>
place = place + <width>

--# whole
local whole = amount

--# late
fourth = math.max(fourth, late)

--# lapse_read: what lapses is charged to the bytes that were read, which are stored once
local stored, expiry = states[<place>], nil

--# lapse_write: the command keeps the value
local function call(_, _, value, _, time)
  stored, expiry = value, time + 0
end

--# lapse_store
if expiry then
  call('SET', key, stored, 'PXAT', format('%d', math.max(expiry, (now - now % 1000) / 1000 + 1)))
end

-- leased: wraps the steps of an algorithm, for policies from which replicas take units in advance.
--
-- Units that a replica was granted and has not reported are outstanding. They count as used at every instant. They
-- are charged when they are reported, or at the end of the generation after the one of the grant, when they lapse.
-- The rule and its reasons: docs/contributors/design.md, "Leases".
--
-- KEYS    beside the key of the policy, one for the outstanding units.
-- ARGV    behind the numbers of the algorithm: the length of a generation in microseconds, and the most units that
--         may be outstanding.
-- Stored  a string of five little-endian doubles: the birth, which is a random number that identifies this string;
--         the length of a generation; the number of the current generation (time / length); the outstanding units
--         that were granted in it; and those of the generation before.
-- Reply   four words: those of the algorithm, with the outstanding units counted as used, and zeros. A cost that does
--         not fit beside the outstanding units even in a fresh state waits until they have lapsed: the last word is
--         the microseconds until then. Sliding buckets and a log have four words of their own; their second word is
--         no less than that.
-- Effects the key exists while units are outstanding. It expires when neither they nor their charges count any more.
--         A check that is denied, or costs nothing, writes too, when units have lapsed or were reported.
-- Pitfalls a generation that lies more than one ahead of the clock becomes the next one, with another birth: the
--         clock was set back, and the numbers of its generations occur a second time. Other lengths apply when
--         nothing is outstanding. Nothing touches a key after it was deleted, or has got an expiry in the past: the
--         source of a slot that moves refuses that. So what lapses is charged to the bytes that were read, which are
--         stored once, with an expiry in the future. A log is stored at once. Its entries get an expiry in the future
--         too.

--# settle: charges what has lapsed, then reads the state
--@ roll
if told then
  --@ keep
end

--# roll: reads the outstanding units, and charges those that have lapsed
local told = false
local account = KEYS[<place> + 1]
local book = { 0, length, (now - now % length) / length, 0, 0 }
--@ lapse_read
local leased = states[<place> + 1]
if leased and #leased == 40 then
  local birth, length, generation, new, old = unpack('<ddddd', leased)
  local present = (now - now % length) / length
  if generation > present + 1 then
    birth, generation, told = 0, present + 1, true
  end
  while generation < present and new + old > 0 do
    if old > 0 then
      local alive, now, cost, tag = now, (generation + 1) * length, old, ''
      --@ lapse_write
      --@ own settle
      local kept
      --@ own step
      --@ own owe
    end
    generation, new, old, told = generation + 1, 0, new, true
  end
  if new + old > 0 then
    book = { birth, length, generation, new, old }
  end
end
--@ lapse_store
--@ own settle

--# read: the state was read once, and may have been charged since
local state = stored

--# size: the entries may have become more
local size = size_of(key)

--# debt: what has lapsed is charged, so the state is corrected
--@ own debt

--# convert: what has lapsed is charged at the rate of the policy
--@ own convert
mended = mended and true

--# cut
--@ own cut

--# most
--@ own most

--# refused: what was read is stored, with what has lapsed
--@ put

--# keep: stores the outstanding units
local last = (book[3] + 2) * book[2]
if book[4] + book[5] > 0 then
  --@ own ends
  local ends = ends - ends % 1000
  call('SET', account, pack('<ddddd', book[1], book[2], book[3], book[4], book[5]), 'PXAT', format('%d', ends / 1000 + 1))
else
  call('DEL', account)
end

--# owe: charges what does not fit
--@ own owe
if book[4] + book[5] > 0 then
  --@ keep
end

--# known: the words count what replicas held, which may have come back
was_first, was_second = -1, 0

--# fits: a cost has to fit beside the outstanding units
local leaves = true
if cost > 0 and book[4] + book[5] > 0 then
  --@ own held
  --@ own step
  --@ own fits
  leaves = fits
end
--@ own fits
fits = fits and leaves

--# words: those with the outstanding units
first, second, third, fourth = 0, 0, 0, 0
do
  --@ own held
  --@ own words
  --@ held_words
end
if not fits and book[4] + book[5] > 0 then
  --@ whole
  if cost + book[4] + book[5] > whole then
    local late = (book[3] + (book[4] > 0 and 2 or 1)) * book[2] - now
    --@ late
  end
end

--# report: takes the spent and the returned units of a report
do
  local birth, generation
  birth, generation, next_byte = unpack('<dd', packed, next_byte)
  local age = book[3] - generation
  if birth == book[1] and birth > 0 and (age == 0 or age == 1) then
    local cost = math.min(spent, book[4 + age])
    local back = math.min(returned, book[4 + age] - cost)
    book[4 + age] = book[4 + age] - cost - back
    told = told or cost + back > 0
    if cost > 0 then
      --@ own spend
      use = 2
      --@ reported
    end
  end
end

--# grantable: lowers the grant to what is free
do
  local free
  do
    --@ own held
    --@ own free
  end
  local left = most - book[4] - book[5]
  if book[2] ~= length then
    left = 0
  end
  grant = math.max(math.min(grant, math.floor(free / 4), left), 0)
end

--# grant: counts the granted units as outstanding
if book[1] == 0 or book[4] + book[5] == 0 then
  book[1] = birth
end
book[4], told = book[4] + grant, true
life = math.min(life, (book[3] + 2) * book[2] - now, 2 * book[2])

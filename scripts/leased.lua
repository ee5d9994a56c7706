-- leased: wraps the sections of an algorithm, for policies from which replicas take units in advance.
--
-- Units that a replica was granted and has not reported are outstanding. They count as used at every instant. They are
-- charged when they are reported, or at the end of the generation after the one of the grant, when they lapse. The rule and
-- its reasons: docs/contributors/design.md, "Leases". `--@ own` is a section of the algorithm.
--
-- KEYS    beside the key of the policy, one for the outstanding units.
-- ARGV    behind the numbers of the algorithm: the length of a generation in microseconds, and the most units that may be
--         outstanding.
-- Stored  a string of five little-endian doubles: the birth, which is a random number that identifies this string; the
--         length of a generation; the number of the current generation (time / length); the outstanding units that were granted in
--         it; and those of the generation before.
-- Reply   four words: those of the algorithm, with the outstanding units counted as used, and zeros. A cost that does not fit
--         beside the outstanding units even in a fresh state waits until they have lapsed: the last word is the microseconds
--         until then. Sliding buckets and a log have four words of their own; their second word is no less than that.
-- Effects the key exists while units are outstanding. It expires when neither they nor their charges count any more. A check
--         that is denied, or costs nothing, writes too, when units have lapsed or were reported.
-- Pitfalls a generation that lies more than one ahead of the clock becomes the next one, with another birth: the clock was
--         set back, and the numbers of its generations occur a second time. Other lengths apply when nothing is outstanding.
--         Nothing touches a key after it was deleted, or has got an expiry in the past: the source of a slot that moves refuses
--         that. So what lapses is charged to the bytes that were read, which are stored once, with an expiry in the future. A
--         log is stored at once. Its entries get an expiry in the future too.

--@ roll
local told_1 = false
local book_1 = { 0, length_1, (now - now % length_1) / length_1, 0, 0 }
--@ read
local leased_1 = pcall('GET', account_1)
if leased_1 and #leased_1 == 40 then
  local birth, length, generation, new, old = unpack('<ddddd', leased_1)
  local present = (now - now % length) / length
  if generation > present + 1 then
    birth, generation, told_1 = 0, present + 1, true
  end
  while generation < present and new + old > 0 do
    if old > 0 then
      local alive, now, cost_1 = now, (generation + 1) * length, old
      --@ write
      --@ own settle
      local kept_1
      --@ own step
      --@ own owe
    end
    generation, new, old, told_1 = generation + 1, 0, new, true
  end
  if new + old > 0 then
    book_1 = { birth, length, generation, new, old }
  end
end
--@ written
--@ own settle

--@ read_string
local stored_1, until_1 = pcall('GET', key_1), nil

--@ write_string
local function call(_, _, value, _, time)
  stored_1, until_1 = value, time + 0
end

--@ written_string
if until_1 then
  call('SET', key_1, stored_1, 'PXAT', format('%d', math.max(until_1, (now - now % 1000) / 1000 + 1)))
end

--@ write_list
local tag, send = '', call
local function call(name, key, ...)
  if name == 'PEXPIREAT' then
    return send(name, key, format('%d', math.max((...) + 0, (alive - alive % 1000) / 1000 + 1)))
  end
  return send(name, key, ...)
end

--@ settle
--@ roll
if told_1 then
  --@ keep
end

--@ keep
local last = (book_1[3] + 2) * book_1[2]
if book_1[4] + book_1[5] > 0 then
  --@ own ends
  local ends = ends - ends % 1000
  call('SET', account_1, pack('<ddddd', book_1[1], book_1[2], book_1[3], book_1[4], book_1[5]), 'PXAT', format('%d', ends / 1000 + 1))
else
  call('DEL', account_1)
end

--@ owe
--@ own owe
if book_1[4] + book_1[5] > 0 then
  --@ keep
end

--@ fits
local leaves_1 = true
if cost_1 > 0 and book_1[4] + book_1[5] > 0 then
  --@ own held
  --@ own step
  --@ own fits
  leaves_1 = fits_1
end
--@ own fits
fits_1 = fits_1 and leaves_1

--@ words
local first_1, second_1, third_1, fourth_1 = 0, 0, 0, 0
do
  --@ own held
  --@ assigned words
  --@ own held_words
end
if not fits_1 and book_1[4] + book_1[5] > 0 and cost_1 + book_1[4] + book_1[5] > whole_1 then
  late_1 = math.max(late_1, (book_1[3] + (book_1[4] > 0 and 2 or 1)) * book_1[2] - now)
end

--@ report
do
  local birth, generation
  birth, generation, next_byte = unpack('<dd', packed, next_byte)
  local age = book_1[3] - generation
  if birth == book_1[1] and birth > 0 and (age == 0 or age == 1) then
    local cost_1 = math.min(spent, book_1[4 + age])
    local back = math.min(returned, book_1[4 + age] - cost_1)
    book_1[4 + age] = book_1[4 + age] - cost_1 - back
    told_1 = told_1 or cost_1 + back > 0
    if cost_1 > 0 then
      --@ own spend
      use_1 = 2
      --@ own told
    end
  end
end

--@ grantable
do
  local free
  do
    --@ own held
    --@ own free
  end
  local most = most_1 - book_1[4] - book_1[5]
  if book_1[2] ~= length_1 then
    most = 0
  end
  grant = math.max(math.min(grant, math.floor(free / 4), most), 0)
end

--@ grant
if book_1[1] == 0 or book_1[4] + book_1[5] == 0 then
  book_1[1] = birth
end
book_1[4], told_1 = book_1[4] + grant, true
life = math.min(life, (book_1[3] + 2) * book_1[2] - now, 2 * book_1[2])

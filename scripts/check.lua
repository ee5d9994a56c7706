-- check: decide over all policies of one key; charge every one of them, or none.
--
-- This is the frame. The lines `--@ …` are filled in for each policy of the set, in order, from
-- the file of its algorithm: names that end in `_1` belong to one policy, and become `_2`, `_3` …
-- for the next. What comes out for one policy stands ready in `standalone/`.
--
-- KEYS    one per policy, all with the same hash tag.
-- ARGV    1: the time in microseconds, below zero for the server's clock; the cost, 0 to look; then
--         for each policy its own numbers, see its file: its amount, its period in microseconds …
--         All of them packed as little-endian doubles, which is the cheapest to pass. Where one of
--         the policies is a log, 2: the tag. By hand they may also come one by one, as decimal
--         integers, the tag after the cost. The caller has checked that cost <= burst and that no
--         product reaches 2^53.
-- Stored  per policy, see its file.
-- Reply   per policy its words, see its file, the first one as -1 - word when that policy
--         denies; last the time. A single word comes bare, without the time.
-- Effects admitted: one SET with PXAT or SETRANGE per policy, see its file. Denied: nothing, unless
--         a stored state lay impossibly far ahead of the clock or was another quota's; that is
--         then mended.
-- Pitfalls TIME may move within a script on Redis before 7.2, so it is read once. Numbers reach
--         a command through format('%d'): `..` and tostring cut a microsecond clock to 14 digits.
local call, pcall = redis.call, redis.pcall
--@ once
local pack, unpack, format = struct.pack, struct.unpack, string.format
--@ args
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
--@ keys 0
--@ each prepare
--@ each settle
--@ each fits
--@ admitted
if admitted then
  if cost > 0 then
    --@ each charge
    --@ each store
  end
elseif cost > 0 then
  --@ each mend
end
--@ each words
--@ reply

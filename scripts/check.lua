-- check: decide over all policies of one key; charge every one of them, or none.
--
-- This is the frame. The lines `--@ …` are filled in for each policy of the set, in order, from
-- the file of its algorithm: names that end in `_1` belong to one policy, and become `_2`, `_3` …
-- for the next. What comes out for one policy stands ready in `standalone/`.
--
-- KEYS    one per policy, all with the same hash tag.
-- ARGV    1: the time in microseconds, empty for the server's clock; 2: the cost, 0 to look;
--         where one of the policies is a log, 3: the tag; then for each policy its own, see its
--         file: its amount, its period in microseconds … Decimal integers; the caller has checked
--         that cost <= burst and that no product reaches 2^53.
-- Stored  per policy, see its file.
-- Reply   per policy its words, see its file, the first one as -1 - word when that policy
--         denies; last the time. A single word comes bare, without the time.
-- Effects admitted: one SET with PXAT per policy, for a log see its file. Denied: nothing, unless
--         a stored state lay impossibly far ahead of the clock or was another quota's; that is
--         then mended.
-- Pitfalls TIME may move within a script on Redis before 7.2, so it is read once. Numbers reach
--         a command through format('%d'): `..` and tostring cut a microsecond clock to 14 digits.
local call, pcall = redis.call, redis.pcall
--@ once
local pack, unpack, format = struct.pack, struct.unpack, string.format
local now = ARGV[1]
if now == '' then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = now + 0
end
local cost = ARGV[2] + 0
--@ args 3 tagged
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

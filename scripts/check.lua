-- check: decides one request of one subject. Charges all policies, or none.
--
-- KEYS    one per policy, all with the same hash tag.
-- ARGV    1: numbers, packed as little-endian doubles, which is the cheapest form: the time in microseconds (below
--         zero: the server's clock); the cost for each policy (0: read without charging); then the numbers of each
--         policy, see its file. 2: the tag, only if a policy is a log. For use by hand, the numbers may be separate
--         decimal arguments, and the tag comes after them. The caller must check that cost <= burst, and the limits
--         of each algorithm, see README.md.
-- Stored  for each policy, see its file.
-- Reply   the words of each policy, see its file; the first word is -1 - word if that policy denies. At the end the
--         time. A single word is returned alone, without the time.
-- Effects admitted: one SET with PXAT or one SETRANGE per policy, see its file. Denied: nothing, except that a state
--         which lies impossibly far ahead of the clock is stored again in its corrected form (mended).
-- Pitfalls TIME may advance within a script on Redis before 7.2, so it is read once. Numbers are passed to commands
--         with format('%d'): `..` and tostring cut a time to 14 digits. Several keys are read at once, before
--         anything is written: where their slot is being moved, a call on a key that expired is refused.
local call, pcall, all = redis.call, redis.pcall, unpack
local pack, unpack, format = struct.pack, struct.unpack, string.format
local states = #KEYS > 1 and call('MGET', all(KEYS))
--@ functions
--@ numbers now costs ceilings quotas
--@ tag
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
--@ key prepare step settle verdict fits
local admitted = <fits>
if admitted then
  --@ admit
else
  --@ leave
end
--@ answer words denial reply
return { <words>, now }

--# admit
if cost > 0 then
  --@ charge store
end

--# leave
if cost > 0 then
  --@ mend
end

-- tollgate, assembled for: FixedWindow
local call, pcall = redis.call, redis.pcall
local pack, unpack, format = struct.pack, struct.unpack, string.format
local now = ARGV[1]
if now == '' then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = now + 0
end
local cost = ARGV[2] + 0
local spent = now
if ARGV[3] ~= '' then
  spent = ARGV[3] + 0
end
local amount_1, period_1 = ARGV[4] + 0, ARGV[5] + 0
local key_1 = KEYS[1]
local count_1, start_1, mended_1 = 0, now - now % period_1, false
local state_1 = pcall('GET', key_1)
if state_1 and #state_1 == 16 then
  local start, count = unpack('<dd', state_1)
  if start >= start_1 and count > 0 and count <= 9007199254740992 then
    count_1 = count
    if start > now + period_1 then
      mended_1 = true
    elseif start > now then
      start_1 = start - start % period_1
    end
  end
end
if spent >= start_1 then
  count_1 = count_1 - cost
end
if count_1 > 0 then
  local end_1 = start_1 + period_1
  call('SET', key_1, pack('<dd', start_1, count_1), 'PXAT', format('%d', (end_1 - end_1 % 1000) / 1000 + 1))
else
  call('DEL', key_1)
end
return 1

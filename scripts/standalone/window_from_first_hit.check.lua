-- tollgate, assembled for: WindowFromFirstHit
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
local amount_1, period_1 = ARGV[3] + 0, ARGV[4] + 0
local key_1 = KEYS[1]
local count_1, start_1, mended_1 = 0, now, false
local state_1 = pcall('GET', key_1)
if state_1 and #state_1 == 16 then
  local start, count = unpack('<dd', state_1)
  if now - start < period_1 and count > 0 and count <= 9007199254740992 then
    count_1 = count
    if start > now then
      mended_1 = true
    else
      start_1 = start
    end
  end
end
local fits_1 = cost == 0 or count_1 + cost <= amount_1
local admitted = fits_1
if admitted then
  if cost > 0 then
    count_1 = count_1 + cost
    local end_1 = start_1 + period_1
    call('SET', key_1, pack('<dd', start_1, count_1), 'PXAT', format('%d', (end_1 - end_1 % 1000) / 1000 + 1))
  end
elseif cost > 0 then
  if mended_1 then
    local end_1 = start_1 + period_1
    call('SET', key_1, pack('<dd', start_1, count_1), 'PXAT', format('%d', (end_1 - end_1 % 1000) / 1000 + 1))
  end
end
local first_1, second_1 = count_1, start_1 + period_1 - now
if not fits_1 then first_1 = -1 - first_1 end
return { first_1, second_1, now }

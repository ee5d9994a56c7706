-- tollgate, assembled for: IntervalBucket
local call, pcall = redis.call, redis.pcall
local states = call('MGET', unpack(KEYS))
local pack, unpack, format = struct.pack, struct.unpack, string.format
local now, life, cost_1, amount_1, period_1, burst_1
local limits = {}
now, life, cost_1, limits.ceiling_1, limits.ceiling_wait_1, amount_1, period_1, burst_1 = unpack('<dddddddd', ARGV[1])
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local size = 64
local status, record = 1, states[1]
if record and #record == size and now < unpack('<d', record) then
  return { 2, record }
end
local key_1 = KEYS[2]
local used_1, start_1, mended_1 = 0, now, false
local state_1 = states[2]
if state_1 and #state_1 == 16 then
  local start, used = unpack('<dd', state_1)
  if start >= 0 and used > 0 and used <= 9007199254740992 then
    if used > burst_1 then
      local most = burst_1
      local is_owed = used >= 1000000000000000
      if used >= 1000000000000000 then
        used = used - 1000000000000000
      end
      if is_owed then
        most = burst_1 * 8
      end
      if used > most then
        used, mended_1 = most, true
      end
    end
    if start > now then
      start, mended_1 = now, true
    end
    local passed = now - start
    passed = passed - passed % period_1
    used = used - passed / period_1 * amount_1
    if used > 0 then
      used_1, start_1 = used, start + passed
    else
      mended_1 = false
    end
  end
end
local fits_1 = used_1 + cost_1 <= limits.ceiling_1 or cost_1 == 0
if not fits_1 and limits.ceiling_wait_1 > 0 and used_1 <= burst_1 * 7 then
  local fills = math.ceil((used_1 + cost_1 - limits.ceiling_1) / amount_1)
  fits_1 = start_1 + fills * period_1 - now <= limits.ceiling_wait_1
end
local admitted = fits_1
if admitted then
  if cost_1 > 0 then
    used_1 = used_1 + cost_1
    if used_1 > burst_1 then
      local full = start_1 + math.ceil(used_1 / amount_1) * period_1
      call('SET', key_1, pack('<dd', start_1, used_1 + 1000000000000000), 'PXAT', format('%d', (full - full % 1000) / 1000 + 1))
    else
      local full_1 = start_1 + math.ceil(used_1 / amount_1) * period_1
      call('SET', key_1, pack('<dd', start_1, used_1), 'PXAT', format('%d', (full_1 - full_1 % 1000) / 1000 + 1))
    end
  end
else
  status = 0
  if cost_1 > 0 then
    if mended_1 then
      if used_1 > burst_1 then
        local full = start_1 + math.ceil(used_1 / amount_1) * period_1
        call('SET', key_1, pack('<dd', start_1, used_1 + 1000000000000000), 'PXAT', format('%d', (full - full % 1000) / 1000 + 1))
      else
        local full_1 = start_1 + math.ceil(used_1 / amount_1) * period_1
        call('SET', key_1, pack('<dd', start_1, used_1), 'PXAT', format('%d', (full_1 - full_1 % 1000) / 1000 + 1))
      end
    end
  end
end
local first_1, second_1 = used_1, start_1 + period_1 - now
local lapse = now + life
if not fits_1 then first_1 = -1 - first_1 end
record = {
  pack('<ddd', lapse, 0, now),
  pack('<ddddd', cost_1, first_1, second_1, 0, 0),
}
record = table.concat(record)
if status == 1 then
  call('SET', KEYS[1], record, 'PXAT', format('%d', (lapse - lapse % 1000) / 1000 + 1))
end
return { status, record }

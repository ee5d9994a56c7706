-- tollgate, assembled for: Lockout
local call, pcall = redis.call, redis.pcall
local pack, unpack, format = struct.pack, struct.unpack, string.format
local packed = ARGV[1]
local now, cost_1, amount_1, period_1, lock_1, longest_1
if #packed == 48 then
  now, cost_1, amount_1, period_1, lock_1, longest_1 = unpack('<dddddd', packed)
else
  now = ARGV[1] == '' and -1 or ARGV[1] + 0
  cost_1 = ARGV[2] + 0
  amount_1 = ARGV[3] + 0
  period_1 = ARGV[4] + 0
  lock_1 = ARGV[5] + 0
  longest_1 = ARGV[6] + 0
end
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local key_1 = KEYS[1]
local count_1, start_1, until_1, level_1, ended_1, mended_1 = 0, now, 0, 0, 0, false
local state_1 = pcall('GET', key_1)
if state_1 and #state_1 == 40 then
  local start, stop, count, level, ended = unpack('<ddddd', state_1)
  if start >= 0 and stop >= 0 and ended >= 0 and count >= 0 and count <= 9007199254740992 and level >= 0 and level <= 64 then
    if count > 0 and count >= amount_1 and stop <= now then
      level, ended, count = math.min(level + 1, 64), stop, 0
    end
    local most = now + math.min(lock_1 * 2 ^ level, longest_1)
    local locked = count > 0 and count >= amount_1
    mended_1 = count > 0 and start > now or locked and stop > most or level > 0 and ended > now
    start, ended = math.min(start, now), math.min(ended, now)
    if locked or count > 0 and now - start < period_1 then
      count_1, start_1 = count, start
    end
    if locked then
      until_1 = math.min(stop, most)
    end
    if level > 0 and (locked or now - ended < longest_1) then
      level_1, ended_1 = level, ended
    end
  end
end
local fits_1 = cost_1 == 0 or count_1 + cost_1 <= amount_1
local admitted = fits_1
if admitted then
  if cost_1 > 0 then
    if count_1 == 0 then
      start_1 = now
    end
    count_1 = count_1 + cost_1
    if count_1 >= amount_1 and count_1 - cost_1 < amount_1 then
      until_1 = now + math.min(lock_1 * 2 ^ level_1, longest_1)
    end
    local stop_1 = until_1
    local fresh_1 = until_1 + longest_1
    if count_1 == 0 or count_1 < amount_1 then
      stop_1 = start_1 + period_1
      fresh_1 = math.max(count_1 > 0 and stop_1 or 0, level_1 > 0 and ended_1 + longest_1 or 0)
    end
    if fresh_1 > now then
      call('SET', key_1, pack('<ddddd', start_1, stop_1, count_1, level_1, ended_1), 'PXAT', format('%d', (fresh_1 - fresh_1 % 1000) / 1000 + 1))
    else
      call('DEL', key_1)
    end
  end
else
  if cost_1 > 0 then
    if mended_1 then
      local stop_1 = until_1
      local fresh_1 = until_1 + longest_1
      if count_1 == 0 or count_1 < amount_1 then
        stop_1 = start_1 + period_1
        fresh_1 = math.max(count_1 > 0 and stop_1 or 0, level_1 > 0 and ended_1 + longest_1 or 0)
      end
      if fresh_1 > now then
        call('SET', key_1, pack('<ddddd', start_1, stop_1, count_1, level_1, ended_1), 'PXAT', format('%d', (fresh_1 - fresh_1 % 1000) / 1000 + 1))
      else
        call('DEL', key_1)
      end
    end
  end
end
local first_1, second_1, third_1, fourth_1 = count_1, 0, 0, 0
if count_1 > 0 then
  second_1 = math.max(start_1 + period_1 - now, 0)
end
if count_1 > 0 and count_1 >= amount_1 then
  third_1 = until_1 - now
end
if level_1 > 0 then
  fourth_1 = math.max(ended_1 + longest_1 - now, 0)
end
if not fits_1 then first_1 = -1 - first_1 end
return { first_1, second_1, third_1, fourth_1, now }

-- tollgate, assembled for: SlidingLog
local call, pcall = redis.call, redis.pcall
local spread = unpack
-- When the entry at a place was spent, no later than `latest`; what is no entry has left.
local function time_at(key, at, latest)
  local entry = redis.call('LINDEX', key, at)
  local time = entry and #entry >= 8 and struct.unpack('<d', entry) or 0
  if time > latest then
    return latest
  end
  return time >= 0 and time or 0
end
-- The number of entries. A key of another type has none. It is deleted before anything is written: where its slot is
-- being moved, the next call is refused, and the other server decides.
local function size_of(key)
  local size = redis.pcall('LLEN', key)
  if type(size) ~= 'number' then
    redis.call('DEL', key)
    size = redis.call('LLEN', key)
  end
  return size
end
local pack, unpack, format = struct.pack, struct.unpack, string.format
local packed = ARGV[1]
local now, cost_1, spent, amount_1, period_1
if #packed == 40 then
  now, cost_1, spent, amount_1, period_1 = unpack('<ddddd', packed)
else
  now = ARGV[1] == '' and -1 or ARGV[1] + 0
  cost_1 = ARGV[2] + 0
  spent = ARGV[3] == '' and -1 or ARGV[3] + 0
  amount_1 = ARGV[4] + 0
  period_1 = ARGV[5] + 0
end
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
if spent < 0 then
  spent = now + 1 + spent
end
local key_1 = KEYS[1]
local used_1, newest_1, oldest_1, mended_1 = 0, 0, 0, false
local size_1 = size_of(key_1)
if size_1 == 0 then
  newest_1 = now
else
  newest_1 = time_at(key_1, '0', now + period_1 + 1)
  if newest_1 > now + period_1 then
    newest_1, mended_1 = now, true
  end
  local edge, inside, gone, step = now - period_1, -1, size_1, 1
  if newest_1 > edge then
    local at = size_1 - 1
    while at >= 0 do
      local time = time_at(key_1, format('%d', at), newest_1)
      if time > edge then
        inside, oldest_1 = at, time
        break
      end
      gone, at, step = at, at - step, step * 2
    end
    while gone - inside > 1 do
      local at = math.floor((gone + inside) / 2)
      local time = time_at(key_1, format('%d', at), newest_1)
      if time > edge then
        inside, oldest_1 = at, time
      else
        gone = at
      end
    end
    used_1 = gone
  end
  mended_1 = mended_1 and used_1 > 0
end
local add_1 = 0
if cost_1 > 0 then
  if used_1 > 0 then
    local at, past, exact = 0, used_1, 0
    while at < past do
      local middle = math.floor((at + past) / 2)
      if time_at(key_1, format('%d', middle), newest_1) > spent then
        at = middle + 1
      else
        past = middle
      end
    end
    while exact < cost_1 and at + exact < used_1 and time_at(key_1, format('%d', at + exact), newest_1) == spent do
      exact = exact + 1
    end
    used_1 = used_1 - math.min(cost_1 - exact, used_1 - at - exact)
    if used_1 > exact then
      if mended_1 then
        local list = call('LRANGE', key_1, '0', format('%d', used_1 - 1))
        for at, entry in ipairs(list) do
          if #entry >= 8 and unpack('<d', entry) > now then
            list[at] = pack('<dc0', now, entry:sub(9))
          end
        end
        for at = 1, used_1, 1000 do
          call('RPUSH', key_1, spread(list, at, math.min(at + 999, used_1)))
        end
        call('LTRIM', key_1, format('%d', -used_1), '-1')
      elseif used_1 ~= size_1 then
        call('LTRIM', key_1, '0', format('%d', used_1 - 1))
      end
      if exact > 0 then
        for gone = at, at + exact - 1 do
          call('LSET', key_1, format('%d', gone), '')
        end
        call('LREM', key_1, format('%d', exact), '')
        newest_1 = time_at(key_1, '0', newest_1)
      end
      local end_1 = newest_1 + period_1
      call('PEXPIREAT', key_1, format('%d', (end_1 - end_1 % 1000) / 1000 + 1))
    else
      call('DEL', key_1)
    end
  elseif size_1 ~= 0 then
    call('DEL', key_1)
  end
end
return 1

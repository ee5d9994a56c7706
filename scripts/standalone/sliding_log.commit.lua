-- tollgate, assembled for: SlidingLog
local call, pcall = redis.call, redis.pcall
local states = call('MGET', unpack(KEYS))
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
local now, number, cost_1, amount_1, period_1 = unpack('<ddddd', ARGV[1])
local tag = ''
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local size = 64
local record = states[1]
if not record or #record ~= size then
  return 0
end
local lapse, settled, spent = unpack('<ddd', record)
if not (now < lapse) then
  return 0
elseif settled ~= 0 then
  return settled == number and 1 or 2
end
local key_1 = KEYS[2]
local more_1 = false
do
  local held, first, second = unpack('<ddd', record, 25)
  more_1, cost_1 = cost_1 > held, math.min(math.abs(held - cost_1), 9007199254740991)
end
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
if more_1 then
  cost_1 = math.min(cost_1, math.min(amount_1 * 8, amount_1 + 100000) - used_1)
  if cost_1 > 0 then
    add_1 = add_1 + cost_1
    if used_1 == 0 then
      newest_1, oldest_1 = now, now
    elseif newest_1 < now then
      newest_1 = now
    end
  end
  if cost_1 > 0 then
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
    end
    if add_1 == 1 then
      call('LPUSH', key_1, pack('<dc0', newest_1, tag))
    elseif add_1 > 0 then
      local entry, many = pack('<dc0', newest_1, tag), {}
      for at = 1, math.min(add_1, 1000) do
        many[at] = entry
      end
      for left = add_1, 1, -1000 do
        call('LPUSH', key_1, spread(many, 1, math.min(left, 1000)))
      end
    end
    if used_1 ~= size_1 and not mended_1 then
      call('LTRIM', key_1, '0', format('%d', used_1 + add_1 - 1))
    end
    local end_1 = newest_1 + period_1
    call('PEXPIREAT', key_1, format('%d', (end_1 - end_1 % 1000) / 1000 + 1))
  end
end
if cost_1 > 0 and not more_1 then
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
call('SETRANGE', KEYS[1], '8', pack('<d', number))
return 1

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
local now, life, cost_1, amount_1, period_1
local limits = {}
now, life, cost_1, limits.ceiling_1, amount_1, period_1 = unpack('<dddddd', ARGV[1])
local tag = ''
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
local fits_1 = cost_1 == 0 or used_1 + add_1 + cost_1 <= limits.ceiling_1
local admitted = fits_1
if admitted then
  if cost_1 > 0 then
    add_1 = add_1 + cost_1
    if used_1 == 0 then
      newest_1, oldest_1 = now, now
    elseif newest_1 < now then
      newest_1 = now
    end
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
else
  status = 0
  if cost_1 > 0 then
    if mended_1 then
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
end
local first_1, second_1, third_1, fourth_1 = used_1 + add_1, 0, 0, 0
if first_1 > 0 then
  third_1, fourth_1 = newest_1 + period_1 - now, oldest_1
  if first_1 > amount_1 then
    fourth_1 = math.max(time_at(key_1, format('%d', amount_1 - 1), newest_1), oldest_1)
  end
  if not fits_1 then
    second_1 = oldest_1
    if limits.ceiling_1 - cost_1 ~= first_1 - 1 then
      second_1 = math.max(time_at(key_1, format('%d', limits.ceiling_1 - cost_1), newest_1), oldest_1)
    end
    second_1 = second_1 + period_1 - now
  end
  fourth_1 = fourth_1 + period_1 - now
end
local lapse = now + life
if not fits_1 then first_1 = -1 - first_1 end
record = {
  pack('<ddd', lapse, 0, now),
  pack('<ddddd', cost_1, first_1, second_1, third_1, fourth_1),
}
record = table.concat(record)
if status == 1 then
  call('SET', KEYS[1], record, 'PXAT', format('%d', (lapse - lapse % 1000) / 1000 + 1))
end
return { status, record }

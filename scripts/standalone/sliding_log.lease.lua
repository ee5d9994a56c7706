-- tollgate, assembled for: SlidingLog
local call, pcall, all = redis.call, redis.pcall, unpack
local states = call('MGET', all(KEYS))
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
for at = 1, #KEYS, 2 do
  states[at] = size_of(KEYS[at])
end
local pack, unpack, format = struct.pack, struct.unpack, string.format
local packed = ARGV[1]
local now, birth, next_byte = unpack('<dd', packed)
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local each = 2
local replies, place = {}, 0
for at = 0, #KEYS - each, each do
  local key_1 = KEYS[at + 1]
  local account_1 = KEYS[at + 2]
  local tag = ARGV[at / each + 2]
  local amount_1, period_1, length_1, most_1
  amount_1, period_1, length_1, most_1, next_byte = unpack('<dddd', packed, next_byte)
  local told_1 = false
  local book_1 = { 0, length_1, (now - now % length_1) / length_1, 0, 0 }
  local leased_1 = states[at + 2]
  if leased_1 and #leased_1 == 40 then
    local birth, length, generation, new, old = unpack('<ddddd', leased_1)
    local present = (now - now % length) / length
    if generation > present + 1 then
      birth, generation, told_1 = 0, present + 1, true
    end
    while generation < present and new + old > 0 do
      if old > 0 then
        local alive, now, cost_1 = now, (generation + 1) * length, old
        local tag, send = '', call
        local function call(name, key, ...)
          if name == 'PEXPIREAT' then
            return send(name, key, format('%d', math.max((...) + 0, (alive - alive % 1000) / 1000 + 1)))
          end
          return send(name, key, ...)
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
        local kept_1
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
      generation, new, old, told_1 = generation + 1, 0, new, true
    end
    if new + old > 0 then
      book_1 = { birth, length, generation, new, old }
    end
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
  local use_1 = 0
  local reports
  reports, next_byte = unpack('<d', packed, next_byte)
  for report = 1, reports do
    local spent, returned
    spent, returned, next_byte = unpack('<dd', packed, next_byte)
    do
      local birth, generation
      birth, generation, next_byte = unpack('<dd', packed, next_byte)
      local age = book_1[3] - generation
      if birth == book_1[1] and birth > 0 and (age == 0 or age == 1) then
        local cost_1 = math.min(spent, book_1[4 + age])
        local back = math.min(returned, book_1[4 + age] - cost_1)
        book_1[4 + age] = book_1[4 + age] - cost_1 - back
        told_1 = told_1 or cost_1 + back > 0
        if cost_1 > 0 then
          cost_1 = math.min(cost_1, math.min(amount_1 * 8, amount_1 + 100000) - used_1)
          if cost_1 > 0 then
            add_1 = add_1 + cost_1
            if used_1 == 0 then
              newest_1, oldest_1 = now, now
            elseif newest_1 < now then
              newest_1 = now
            end
          end
          use_1 = 2
          do
            local tag = ''
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
          used_1, size_1, add_1, mended_1 = used_1 + add_1, used_1 + add_1, 0, false
        end
      end
    end
  end
  local grant, runs, costs
  grant, runs, next_byte = unpack('<dd', packed, next_byte)
  for run = 1, runs do
    local cost_1, count
    cost_1, count, next_byte = unpack('<dd', packed, next_byte)
    local granted = 0
    local fits_1
    repeat
      local leaves_1 = true
      if cost_1 > 0 and book_1[4] + book_1[5] > 0 then
        local held_1 = math.min(amount_1 * 8, amount_1 + 100000) - used_1 - add_1
        held_1 = math.max(math.min(held_1, book_1[4] + book_1[5]), 0)
        local amount_1 = amount_1 - held_1
        fits_1 = cost_1 == 0 or used_1 + add_1 + cost_1 <= amount_1
        leaves_1 = fits_1
      end
      fits_1 = cost_1 == 0 or used_1 + add_1 + cost_1 <= amount_1
      fits_1 = fits_1 and leaves_1
      local admitted = fits_1
      if admitted then
        granted = granted + 1
        if cost_1 > 0 then
          add_1 = add_1 + cost_1
          if used_1 == 0 then
            newest_1, oldest_1 = now, now
          elseif newest_1 < now then
            newest_1 = now
          end
        end
        if cost_1 == 0 then
          granted = count
        end
      end
    until not admitted or granted == count
    if cost_1 > 0 and use_1 < 2 then use_1 = granted > 0 and 2 or 1 end
    if cost_1 > 0 then costs = true end
    if granted < count then
      grant = 0
    end
    if run == runs then
      if use_1 == 2 then
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
      if use_1 == 1 then
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
    local first_1, second_1, third_1, fourth_1 = 0, 0, 0, 0
    do
      local held_1 = math.min(amount_1 * 8, amount_1 + 100000) - used_1 - add_1
      held_1 = math.max(math.min(held_1, book_1[4] + book_1[5]), 0)
      local amount_1 = amount_1 - held_1
      first_1, second_1, third_1, fourth_1 = used_1 + add_1, 0, 0, 0
      if first_1 > 0 then
        third_1, fourth_1 = newest_1 + period_1 - now, oldest_1
        if first_1 > amount_1 then
          fourth_1 = math.max(time_at(key_1, format('%d', amount_1 - 1), newest_1), oldest_1)
        end
        if not fits_1 then
          second_1 = oldest_1
          if amount_1 - cost_1 ~= first_1 - 1 then
            second_1 = math.max(time_at(key_1, format('%d', amount_1 - cost_1), newest_1), oldest_1)
          end
          second_1 = second_1 + period_1 - now
        end
        fourth_1 = fourth_1 + period_1 - now
      end
      if held_1 > 0 then
        third_1 = math.max(third_1, period_1)
        if not fits_1 and cost_1 > amount_1 then
          second_1 = third_1
        end
        if first_1 == 0 or amount_1 <= 0 then
          fourth_1 = third_1
        end
        first_1 = first_1 + held_1
      end
    end
    if not fits_1 and book_1[4] + book_1[5] > 0 and cost_1 + book_1[4] + book_1[5] > amount_1 then
      second_1 = math.max(second_1, (book_1[3] + (book_1[4] > 0 and 2 or 1)) * book_1[2] - now)
    end
    if not fits_1 then first_1 = -1 - first_1 end
    replies[place + 1] = granted
    replies[place + 2] = first_1
    replies[place + 3] = second_1
    replies[place + 4] = third_1
    replies[place + 5] = fourth_1
    place = place + 5
  end
  local life = 0
  if costs and grant > 0 then
    do
      local free
      do
        local held_1 = math.min(amount_1 * 8, amount_1 + 100000) - used_1 - add_1
        held_1 = math.max(math.min(held_1, book_1[4] + book_1[5]), 0)
        local amount_1 = amount_1 - held_1
        free = amount_1 - used_1 - add_1
      end
      local most = most_1 - book_1[4] - book_1[5]
      if book_1[2] ~= length_1 then
        most = 0
      end
      grant = math.max(math.min(grant, math.floor(free / 4), most), 0)
    end
  else
    grant = 0
  end
  if grant > 0 then
    life = 9007199254740991
    if book_1[1] == 0 or book_1[4] + book_1[5] == 0 then
      book_1[1] = birth
    end
    book_1[4], told_1 = book_1[4] + grant, true
    life = math.min(life, (book_1[3] + 2) * book_1[2] - now, 2 * book_1[2])
  end
  if told_1 then
    local last = (book_1[3] + 2) * book_1[2]
    if book_1[4] + book_1[5] > 0 then
      local ends = last + period_1
      local ends = ends - ends % 1000
      call('SET', account_1, pack('<ddddd', book_1[1], book_1[2], book_1[3], book_1[4], book_1[5]), 'PXAT', format('%d', ends / 1000 + 1))
    else
      call('DEL', account_1)
    end
  end
  replies[place + 1], replies[place + 2] = grant, life
  place = place + 2
  replies[place + 1], replies[place + 2], place = book_1[1], book_1[3], place + 2
end
place = place + 1
replies[place] = now
local parts = {}
for first = 1, place, 4000 do
  local last = math.min(first + 3999, place)
  parts[#parts + 1] = pack(string.rep('<d', last - first + 1), all(replies, first, last))
end
return table.concat(parts)

#!lua name=stream_dedup_groups_1

-- The states of duplicate groups: one call acts on one partition, atomically, for many groups.
--
-- Keys (NS is the namespace, P a partition number; all keys of a partition share its hash tag):
--   NS:{P}:gID    string, state of the group ID (24 hexadecimal digits): its revision (u64), then what
--                 is published on the groups topic. The revision counts the members that were folded
--                 into the state, so a state is only ever followed by one of a greater revision.
--   NS:{P}:g      string, a word that no other life of this partition had: with "?" before it while the
--                 states are being put back. It is gone when the partition has lost its data.
--
-- Rows are packed little-endian and back to back in one argument; every reply is packed likewise.
-- Each function may be repeated, or come late, without harm.

-- Says whether a partition is not in the life that the caller knows.
local function is_other(call, prefix, word)
  local stands = call('GET', prefix .. 'g')
  return stands ~= word and stands ~= '?' .. word
end

local LOST = 'LOST a partition of groups has lost its data'

-- enter NS:{P}: word -> the word that stands, this one where there was none; an empty word asks only.
local function enter(keys, args)
  local key = keys[1] .. 'g'
  if args[1] ~= '' then
    redis.call('SET', key, '?' .. args[1], 'NX')
  end
  return redis.call('GET', key) or ''
end

-- complete NS:{P}: word -> the word that stands: this one, unless the partition has another life.
local function complete(keys, args)
  local key = keys[1] .. 'g'
  if redis.call('GET', key) == '?' .. args[1] then
    redis.call('SET', key, args[1])
  end
  return redis.call('GET', key) or ''
end

-- read NS:{P}: rows word -> for each row length u32, value (length 0: there is none).
-- A row: id (24 digits).
local function read(keys, args)
  local call, pack, sub = redis.call, struct.pack, string.sub
  local prefix, rows, values = keys[1], args[1], {}
  if is_other(call, prefix, args[2]) then
    return redis.error_reply(LOST)
  end
  for at = 1, #rows, 24 do
    local value = call('GET', prefix .. 'g' .. sub(rows, at, at + 23)) or ''
    values[#values + 1] = pack('<I4', #value) .. value
  end
  return table.concat(values)
end

-- swap NS:{P}: rows word -> for each row that was refused row number u32, length u32, the value that
-- stands. A row: id (24 digits), revision that must stand (8 bytes; zeros: none), milliseconds to
-- live (u64; 0: for ever), length u32, value. The value begins with its own revision.
local function swap(keys, args)
  local call, pack, unpack, sub = redis.call, struct.pack, struct.unpack, string.sub
  local prefix, rows, refused, row, at = keys[1], args[1], {}, 0, 1
  if is_other(call, prefix, args[2]) then
    return redis.error_reply(LOST)
  end
  while at <= #rows do
    local id, expected, ttl, value
    id, expected, ttl, value, at = unpack('<c24c8I8I4c0', rows, at)
    local key = prefix .. 'g' .. id
    local stands = call('GET', key) or ''
    if (stands == '' and '\0\0\0\0\0\0\0\0' or sub(stands, 1, 8)) ~= expected then
      refused[#refused + 1] = pack('<I4I4', row, #stands) .. stands
    elseif ttl > 0 then
      call('SET', key, value, 'PX', string.format('%d', ttl))
    else
      call('SET', key, value)
    end
    row = row + 1
  end
  return table.concat(refused)
end

redis.register_function('stream_dedup_groups_1_enter', enter)
redis.register_function('stream_dedup_groups_1_complete', complete)
redis.register_function('stream_dedup_groups_1_read', read)
redis.register_function('stream_dedup_groups_1_swap', swap)

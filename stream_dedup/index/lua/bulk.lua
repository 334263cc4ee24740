#!lua name=stream_dedup_bulk_1

-- Writes the records of documents that are known to be originals: no pending claim, no probe. The keys
-- are those of claims.lua. Table entries are written with plain ZADD, which costs the server half.

-- records NS:{P}: rows -> nothing. A row: claim id, bucket u32, length u32, record. Writes the originals
-- that are not there yet, and counts them; so it may be repeated, or come late, without harm.
local function records(keys, args)
  local call, unpack = redis.call, struct.unpack
  local prefix, rows, at, added = keys[1], args[1], 1, 0
  while at <= #rows do
    local claim, bucket, record
    claim, bucket, record, at = unpack('<c8I4I4c0', rows, at)
    added = added + call('HSETNX', prefix .. 'c' .. bucket, claim, 'O' .. record)
  end
  call('INCRBY', prefix .. 'n', added)
  return redis.status_reply('OK')
end

redis.register_function('stream_dedup_bulk_1_records', records)

#!lua name=stream_dedup_2

-- The Redis half of the claim protocol: one call acts on one partition, atomically, for many rows.
--
-- Keys (NS is the namespace, P a partition number; all keys of a partition share its hash tag):
--   NS:{P}:tTT:HHHH   sorted set, one for each table TT (hexadecimal) and leading bits HHHH of the
--                     table key. Score: the following bits of the table key, exact below 2^53.
--                     Member: a claim id, 8 bytes, big-endian, so equal scores sort by age.
--   NS:{P}:i00:HHHH   the same for document ids: an original stands under the hash of its id.
--   NS:{P}:cN         hash, bucket N of claim records. Field: claim id. Value: the claim's fate, one
--                     byte, then its record (see records.py): P pending, O original, V void. The
--                     fate is written once, P becomes O or V; but an original that is forgotten or
--                     expires becomes V. Nothing leaves V. A void claim keeps no record.
--   NS:{P}:f          the fence, a claim id: an earlier claim that has no record is void, and can
--                     get none any more. So the byte of a void claim can go once it is behind it.
--   NS:{P}:n          number of originals whose records are in the partition.
--   NS:{P}:w          hash: what each worker wrote here last. Field: its number. Value: the token of
--                     its incarnation, 8 bytes, then a mark that grows with its calls.
--   NS:{index}        hash, one for the index: configuration, layout; workers (a counter);
--                     clock (Unix time in milliseconds, never goes back); watermark (largest event
--                     time); forgotten (a counter), and what it was when the latest sweep began
--                     (seen), and when that was (began, Unix time).
--   NS:{index}:w      hash, by worker number: the token of the incarnation that has it.
--   NS:{index}:sample, NS:{index}:sampler   see sample.py; no Function reads them.
--
-- Rows are packed little-endian and back to back in one argument; every reply is packed likewise.
-- Each function may be repeated, or come late, without harm.

-- Where the time that an original was renewed to stands in a value: fate 1, identity 8, time 8,
-- digest 16 (see records.py).
local RENEWED = 34

-- Redis offers these only while a function runs, not while the library loads.
local function tools()
  return redis.call, struct.pack, struct.unpack, string.sub
end

-- The reply to a probe: pairs of (row number u32, claim id 8 bytes), and the numbers (u32) of the rows
-- that have more than was asked for.
local Sightings = {}
Sightings.__index = Sightings

function Sightings.new(limit)
  return setmetatable({ limit = limit, row = 0, found = {}, more = {} }, Sightings)
end

-- Adds the next row's members but for its own claim; returns how many there are, the limit at most.
function Sightings:add(members, claim)
  local pack, found, others = struct.pack, self.found, 0
  for i = 1, #members do
    if members[i] ~= claim then
      if others == self.limit then
        self.more[#self.more + 1] = pack('<I4', self.row)
        break
      end
      others = others + 1
      found[#found + 1] = pack('<I4c8', self.row, members[i])
    end
  end
  self.row = self.row + 1
  return others
end

function Sightings:packed()
  return { table.concat(self.found), table.concat(self.more) }
end

-- The members of a sorted set at a score, oldest first: two more than limit at most, because one may
-- be the caller's own and one tells that there are more. Not those who are known, if only they are
-- there: most keys have nobody, or whom the last key had, and to ask for that costs half as much.
local nobody = {}
local function members_at(key, score, limit, known)
  local count = redis.call('ZCOUNT', key, score, score)
  if count == 0 then
    return nobody
  end
  if known and count == 1 and tonumber(redis.call('ZSCORE', key, known) or -1) == tonumber(score) then
    return nobody
  end
  if count <= limit + 2 then
    -- To spell the limit would take a third of this.
    return redis.call('ZRANGEBYSCORE', key, score, score)
  end
  return redis.call('ZRANGEBYSCORE', key, score, score, 'LIMIT', '0', tostring(limit + 2))
end

-- What struct.unpack wants to know of a key suffix and a score.
local function row_form(width)
  return '<c' .. width .. 'c16'
end

-- Redis may lose writes: restarted from an older snapshot, or a replica took over that was behind. Then
-- worker numbers are handed out a second time, and what was announced may be gone. So a call that
-- writes names, as its last argument (empty: not checked), its incarnation, the largest mark that it knows to stand here,
-- and a larger one. Where less stands than it knows, nothing is done, and it must enter again.
local LOST = 'LOST Redis lacks writes that it had carried out'

-- Says whether a partition lacks writes of the caller; '' for a caller names no incarnation.
local function is_lost(prefix, incarnation)
  if incarnation == '' then
    return false
  end
  local call, _, unpack, sub = tools()
  local token, number, known, mark = unpack('<c8I4I8I8', incarnation)
  local key, field = prefix .. 'w', string.format('%d', number)
  local stands = call('HGET', key, field)
  local last = stands and sub(stands, 1, 8) == token and tonumber(sub(stands, 9)) or 0
  if last < known then
    return true
  end
  if last < mark then
    call('HSET', key, field, token .. string.format('%.0f', mark))
  end
  return false
end

-- mark NS:{P}: rows incarnation -> nothing. Only writes the mark: what was read before on the same
-- connection is then covered by WAIT, which waits for what that connection has written.
local function mark(keys, args)
  if is_lost(keys[1], args[#args]) then
    return redis.error_reply(LOST)
  end
  return redis.status_reply('OK')
end

-- The fate that stands under a claim id, for whoever brings this record; T (taken) where it is that of
-- another document: two workers had the same number. The head of a record is compared (records.py).
local function fate_of(value, record)
  local sub = string.sub
  local fate = sub(value, 1, 1)
  local same = sub(value, 2, 9) == sub(record, 1, 8) and sub(value, 18, 33) == sub(record, 17, 32)
  return (fate == 'V' or same) and fate or 'T'
end

-- probe NS:{P}: rows limit width incarnation -> sightings. A row: key suffix (width bytes), score (16 decimal
-- digits), claim id, mode u8. Returns the other claims at the score, oldest first; mode 1 inserts the
-- row's claim when there is none, mode 2 always, mode 0 never.
local function probe(keys, args)
  local call, _, unpack = tools()
  local prefix, rows, limit, width = keys[1], args[1], tonumber(args[2]), tonumber(args[3])
  local form, sightings = row_form(width) .. 'c8B', Sightings.new(limit)
  if is_lost(prefix, args[#args]) then
    return redis.error_reply(LOST)
  end
  for at = 1, #rows, width + 25 do
    local suffix, score, claim, mode = unpack(form, rows, at)
    local key = prefix .. suffix
    local others = sightings:add(members_at(key, score, limit), claim)
    if mode == 2 or (mode == 1 and others == 0) then
      call('ZADD', key, score, claim)
    end
  end
  return sightings:packed()
end

-- Returns what says whether a claim is behind the fence of a partition, and the fence.
local function fence(prefix)
  local unpack = struct.unpack
  local stands = redis.call('GET', prefix .. 'f') or string.rep('\0', 8)
  local high, low = unpack('>I4I4', stands)
  local function is_behind(claim)
    local mine, rest = unpack('>I4I4', claim)
    return mine < high or (mine == high and rest < low)
  end
  return is_behind, stands
end

-- The bucket of a claim's record where there is one partition: ``finalize`` of shingles.py and
-- ``record_places`` of keys.py, in halves of 32 bits, as numbers are exact below 2^53 only.
local KEY_HIGH, KEY_LOW = 0x5851F42D, 0x4C957F2D
local TIMES_HIGH, TIMES_LOW = 0xD6E8FEB8, 0x6659FD93
local HALF, QUARTER = 4294967296, 65536

local function multiplied(high, low)
  local high_0, low_0 = high % QUARTER, low % QUARTER
  local high_1, low_1 = (high - high_0) / QUARTER, (low - low_0) / QUARTER
  local upper = low_1 * TIMES_LOW
  local rest = upper % QUARTER
  local sum = low_0 * TIMES_LOW + rest * QUARTER
  local product = sum % HALF
  high = (sum - product) / HALF
    + (upper - rest) / QUARTER
    + low_0 * TIMES_HIGH
    + low_1 * TIMES_HIGH % QUARTER * QUARTER
    + high_0 * TIMES_LOW
    + high_1 * TIMES_LOW % QUARTER * QUARTER
  return high % HALF, product
end

local function bucket_of(claim, buckets)
  local bxor = bit.bxor
  local high, low = struct.unpack('>I4I4', claim)
  -- What ``bit`` returns has a sign.
  high, low = bxor(high, KEY_HIGH) % HALF, bxor(low, KEY_LOW)
  high, low = multiplied(high, bxor(low, high) % HALF)
  high, low = multiplied(high, bxor(low, high) % HALF)
  low = bxor(low, high) % HALF
  return (high * 256 + (low - low % 16777216) / 16777216) % buckets
end

local function never()
  return false
end

-- Returns what says whether the record of a claim shows a fingerprint further than ``most`` bits from
-- that of another record: of so many bytes, from this place of a record on. No record shows nothing.
local function farther(prefix, buckets, at_sketch, bytes, most)
  local call, _, unpack, sub = tools()
  local band, bxor = bit.band, bit.bxor
  return function(record, claim)
    local value = call('HGET', prefix .. 'c' .. bucket_of(claim, buckets), claim)
    if not value or sub(value, 1, 1) == 'V' then
      return false
    end
    local distance = 0
    for at = at_sketch, at_sketch + bytes - 1, 4 do
      local mine = unpack('<I4', record, at)
      local other = unpack('<I4', value, at + 1)
      local differing = bxor(mine, other)
      while differing ~= 0 do
        differing, distance = band(differing, differing - 1), distance + 1
        if distance > most then
          return true
        end
      end
    end
    return false
  end
end

-- register NS:{P}: rows limit width tables all [buckets at_sketch bytes most count] incarnation -> one
-- byte for each row, pairs of (row number u32, claim id 8 bytes), the partition's originals, how many
-- claims were passed over by their record, the fence. All of a protocol's attempt
-- for documents that meet nobody unknown; what else they meet is told, and nothing of them written.
-- Where the Hamming distance of fingerprints decides, claims are passed over as if they were known
-- whose record shows one further than so many bits.
-- A row: claim id, bucket u32, length u32, ids of claims that are known not to matter, length u32,
-- record, and for each of the tables a key suffix (width bytes) and a score (16 decimal digits);
-- after these up to ``all`` more, where it is entered without looking.
-- The byte: O an original now; M (met) the pairs tell other claims under its keys; F (full) there are
-- more than limit under one of them; P or V the fate that a claim with this id had already; T: the id
-- is another document's.
local function register(keys, args)
  local call, pack, unpack = tools()
  local prefix, rows, limit = keys[1], args[1], tonumber(args[2])
  local width, tables, all = tonumber(args[3]), tonumber(args[4]), tonumber(args[5])
  local form, at, row, committed = row_form(width), 1, 0, 0
  local fates, found, ruled_out, is_far = {}, {}, 0, never
  local fenced, stands = fence(prefix)
  if is_lost(prefix, args[#args]) then
    return redis.error_reply(LOST)
  end
  if args[7] then
    is_far = farther(
      prefix, tonumber(args[6]), tonumber(args[7]), tonumber(args[8]), tonumber(args[9])
    )
  end
  while at <= #rows do
    local claim, bucket, known, record
    claim, bucket, known, record, at = unpack('<c8I4I4c0I4c0', rows, at)
    local places, passed, fate, last = {}, { [claim] = true }, nil, nil
    for i = 1, #known, 8 do
      passed[string.sub(known, i, i + 7)] = true
    end
    for i = 1, 2 * tables, 2 do
      local suffix, score = unpack(form, rows, at)
      local key = prefix .. suffix
      places[i], places[i + 1], at = key, score, at + width + 16
      local members = members_at(key, score, limit, last)
      if #members > limit then
        fate = 'F'
      end
      for j = 1, #members do
        local other = members[j]
        if not passed[other] then
          passed[other] = true
          if is_far(record, other) then
            ruled_out = ruled_out + 1
          else
            fate, last = fate or 'M', other
            found[#found + 1] = pack('<I4c8', row, other)
          end
        end
      end
    end
    for i = 2 * tables + 1, 2 * all, 2 do
      local suffix, score = unpack(form, rows, at)
      places[i], places[i + 1], at = prefix .. suffix, score, at + width + 16
    end
    if not fate and fenced(claim) then
      fate = 'V'
    end
    if not fate then
      local bucket_key = prefix .. 'c' .. bucket
      if call('HSETNX', bucket_key, claim, 'O' .. record) == 1 then
        committed = committed + 1
        for i = 1, 2 * all, 2 do
          call('ZADD', places[i], places[i + 1], claim)
        end
        fate = 'O'
      else
        fate = fate_of(call('HGET', bucket_key, claim), record)
      end
    end
    fates[#fates + 1], row = fate, row + 1
  end
  local originals = call('INCRBY', prefix .. 'n', committed)
  return { table.concat(fates), table.concat(found), originals, ruled_out, stands }
end

-- page NS:{P}: rows limit width -> sightings, of the claims that come after one that was sighted.
-- A row: key suffix (width bytes), score (16 decimal digits), claim id, the claim id after which to
-- go on.
local function page(keys, args)
  local call, _, unpack, sub = tools()
  local prefix, rows, limit, width = keys[1], args[1], tonumber(args[2]), tonumber(args[3])
  local sightings = Sightings.new(limit)
  for at = 1, #rows, width + 32 do
    local key = prefix .. sub(rows, at, at + width - 1)
    local score, claim, after = unpack('<c16c8c8', rows, at + width)
    -- It may have gone meanwhile. Its place tells where to go on, so it is put there for a moment.
    local gone = call('ZADD', key, 'NX', score, after) == 1
    local first = call('ZRANK', key, after) + 1
    local scored = call('ZRANGE', key, first, first + limit + 1, 'WITHSCORES')
    if gone then
      call('ZREM', key, after)
    end
    local members, same = {}, tonumber(score)
    for i = 1, #scored, 2 do
      if tonumber(scored[i + 1]) ~= same then
        break
      end
      members[#members + 1] = scored[i]
    end
    sightings:add(members, claim)
  end
  return sightings:packed()
end

-- Returns how many members at a score come up to a claim id. It only reads, so it
-- can not put the claim in for a moment as page does; and Lua compares strings as the server's locale
-- has it, so ids are compared as numbers.
local function count_until(key, score, after)
  local call, _, unpack = tools()
  local high, low = unpack('>I4I4', after)
  local start = call('ZCOUNT', key, '-inf', '(' .. score)
  local first, last = start, call('ZCOUNT', key, '-inf', score)
  while first < last do
    local middle = math.floor((first + last) / 2)
    local member = call('ZRANGE', key, middle, middle)[1]
    local member_high, member_low = unpack('>I4I4', member)
    if member_high < high or (member_high == high and member_low <= low) then
      first = middle + 1
    else
      last = middle
    end
  end
  return first - start
end

-- look NS:{P}: rows limit width -> sightings. A row: key suffix (width bytes), score (16 decimal
-- digits), the claim id after which to go on, 0 for the beginning. Writes nothing.
local function look(keys, args)
  local call, _, unpack, sub = tools()
  local prefix, rows, limit, width = keys[1], args[1], tonumber(args[2]), tonumber(args[3])
  local sightings = Sightings.new(limit)
  for at = 1, #rows, width + 24 do
    local key = prefix .. sub(rows, at, at + width - 1)
    local score, after = unpack('<c16c8', rows, at + width)
    local skipped = 0
    if after ~= string.rep('\0', 8) then
      skipped = count_until(key, score, after)
    end
    -- One more tells that there are more.
    local most = tostring(limit + 1)
    sightings:add(call('ZRANGEBYSCORE', key, score, score, 'LIMIT', tostring(skipped), most), '')
  end
  return sightings:packed()
end

-- put NS:{P}: rows incarnation -> one byte for each row, and the fence: the fate that stands (see
-- ``fate_of``), V behind the fence. A row: claim id, bucket u32, length u32, record.
local function put(keys, args)
  local call, _, unpack = tools()
  local prefix, rows, at, fates = keys[1], args[1], 1, {}
  local fenced, stands = fence(prefix)
  if is_lost(prefix, args[#args]) then
    return redis.error_reply(LOST)
  end
  while at <= #rows do
    local claim, bucket, record
    claim, bucket, record, at = unpack('<c8I4I4c0', rows, at)
    local key, fate = prefix .. 'c' .. bucket, 'V'
    if not fenced(claim) then
      local written = call('HSETNX', key, claim, 'P' .. record) == 1
      fate = written and 'P' or fate_of(call('HGET', key, claim), record)
    end
    fates[#fates + 1] = fate
  end
  return { table.concat(fates), stands }
end

-- read NS:{P}: rows -> for each row length u32, value (length 0: there is none).
-- A row: claim id, bucket u32.
local function read(keys, args)
  local call, pack, unpack = tools()
  local prefix, rows, values = keys[1], args[1], {}
  local fenced = fence(prefix)
  for at = 1, #rows, 12 do
    local claim, bucket = unpack('<c8I4', rows, at)
    local value = call('HGET', prefix .. 'c' .. bucket, claim) or (fenced(claim) and 'V') or ''
    values[#values + 1] = pack('<I4', #value) .. value
  end
  return table.concat(values)
end

-- settle NS:{P}: rows incarnation -> one byte for each row, the fate that stands; the partition's
-- originals; the fence. A row: claim id, bucket u32, fate u8 ('O' or 'V'). A claim without a record can only become void.
local function settle(keys, args)
  local call, _, unpack, sub = tools()
  local prefix, rows, fates, committed = keys[1], args[1], {}, 0
  local fenced, before = fence(prefix)
  if is_lost(prefix, args[#args]) then
    return redis.error_reply(LOST)
  end
  for at = 1, #rows, 13 do
    local claim, bucket, fate = unpack('<c8I4c1', rows, at)
    local key = prefix .. 'c' .. bucket
    local value = call('HGET', key, claim)
    local stands = value and sub(value, 1, 1)
    if not value and fenced(claim) then
      stands = 'V'
    elseif not value or (stands == 'P' and fate == 'V') then
      call('HSET', key, claim, 'V')
      stands = 'V'
    elseif stands == 'P' then
      call('HSET', key, claim, 'O' .. sub(value, 2))
      stands = 'O'
      committed = committed + 1
    end
    fates[#fates + 1] = stands
  end
  return { table.concat(fates), call('INCRBY', prefix .. 'n', committed), before }
end

-- withdraw NS:{P}: rows width -> nothing. A row: key suffix (width bytes), claim id.
local function withdraw(keys, args)
  local call, _, _, sub = tools()
  local prefix, rows, width = keys[1], args[1], tonumber(args[2])
  for at = 1, #rows, width + 8 do
    call('ZREM', prefix .. sub(rows, at, at + width - 1), sub(rows, at + width, at + width + 7))
  end
  return redis.status_reply('OK')
end

-- forget NS:{P}: rows -> nothing. Removes records of claims that were never committed.
-- A row: claim id, bucket u32.
local function forget(keys, args)
  local call, _, unpack = tools()
  local prefix, rows = keys[1], args[1]
  for at = 1, #rows, 12 do
    local claim, bucket = unpack('<c8I4', rows, at)
    call('HDEL', prefix .. 'c' .. bucket, claim)
  end
  return redis.status_reply('OK')
end

-- note NS:{P}: rows width incarnation -> nothing. Enters claims without looking.
-- A row: key suffix (width bytes), score (16 decimal digits), claim id.
local function note(keys, args)
  local call, _, unpack, sub = tools()
  local prefix, rows, width = keys[1], args[1], tonumber(args[2])
  if is_lost(prefix, args[#args]) then
    return redis.error_reply(LOST)
  end
  for at = 1, #rows, width + 24 do
    local score, claim = unpack('<c16c8', rows, at + width)
    call('ZADD', prefix .. sub(rows, at, at + width - 1), score, claim)
  end
  return redis.status_reply('OK')
end

-- renew NS:{P}: rows -> nothing. Moves the times of originals forward (see records.py).
-- A row: claim id, bucket u32, time f64.
local function renew(keys, args)
  local call, _, unpack, sub = tools()
  local prefix, rows = keys[1], args[1]
  for at = 1, #rows, 20 do
    local claim, bucket = unpack('<c8I4', rows, at)
    local key = prefix .. 'c' .. bucket
    local value = call('HGET', key, claim)
    if
      value
      and sub(value, 1, 1) == 'O'
      and unpack('<d', value, RENEWED) < unpack('<d', rows, at + 12)
    then
      local time = sub(rows, at + 12, at + 19)
      call('HSET', key, claim, sub(value, 1, RENEWED - 1) .. time .. sub(value, RENEWED + 8))
    end
  end
  return redis.status_reply('OK')
end

-- retire NS:{P}: rows -> for each row one byte: the fate before, or '-' for no record. Originals
-- become void. A row: claim id, bucket u32.
local function retire(keys, args)
  local call, _, unpack, sub = tools()
  local prefix, rows, fates, retired = keys[1], args[1], {}, 0
  for at = 1, #rows, 12 do
    local claim, bucket = unpack('<c8I4', rows, at)
    local key = prefix .. 'c' .. bucket
    local fate = sub(call('HGET', key, claim) or '-', 1, 1)
    if fate == 'O' then
      call('HSET', key, claim, 'V')
      retired = retired + 1
    end
    fates[#fates + 1] = fate
  end
  if retired > 0 then
    call('DECRBY', prefix .. 'n', retired)
  end
  return table.concat(fates)
end

-- Drops the marks of workers that wrote nothing for a day before a fence.
local DAY = 86400000
local function drop_marks(prefix, before)
  local call, _, unpack, sub = tools()
  local high, low = unpack('>I4I4', before)
  local oldest = high * 512 + math.floor(low / 8388608) - DAY
  local marks = call('HGETALL', prefix .. 'w')
  for i = 1, #marks, 2 do
    if tonumber(sub(marks[i + 1], 9)) < oldest then
      call('HDEL', prefix .. 'w', marks[i])
    end
  end
end

-- clear NS:{P}: buckets fence cutoff time_at -> claim ids of the originals behind the fence that
-- stay, of the void claims before it, how many originals expired, how many other claims were removed,
-- the partition's originals. Moves the fence forward; of the buckets (u32 each) removes whatever is
-- behind it and no original. Originals expire whose time (f64 at this place of the value) is before
-- the cutoff (f64).
local function clear(keys, args)
  local call, _, unpack, sub = tools()
  local prefix, buckets, cutoff = keys[1], args[1], unpack('<d', args[3])
  local at_time = tonumber(args[4])
  if call('GET', prefix .. 'f') ~= args[2] and not fence(prefix)(args[2]) then
    call('SET', prefix .. 'f', args[2])
    drop_marks(prefix, args[2])
  end
  local fenced = fence(prefix)
  local stay, void, expired, removed = {}, {}, 0, 0
  for at = 1, #buckets, 4 do
    local key = prefix .. 'c' .. unpack('<I4', buckets, at)
    local records = call('HGETALL', key)
    for i = 1, #records, 2 do
      local claim, value = records[i], records[i + 1]
      local fate, behind = sub(value, 1, 1), fenced(claim)
      if fate == 'O' and unpack('<d', value, at_time) < cutoff then
        expired = expired + 1
        if behind then
          call('HDEL', key, claim)
        else
          call('HSET', key, claim, 'V')
          void[#void + 1] = claim
        end
      elseif fate == 'O' and behind then
        stay[#stay + 1] = claim
      elseif fate == 'V' and not behind then
        void[#void + 1] = claim
      elseif behind then
        call('HDEL', key, claim)
        removed = removed + 1
      end
    end
  end
  local originals = call('GET', prefix .. 'n')
  if expired > 0 then
    originals = call('DECRBY', prefix .. 'n', expired)
  end
  return { table.concat(stay), table.concat(void), expired, removed, tonumber(originals or 0) }
end

-- list NS:{P}: rows width limit -> how many members each row has got (u32 each), and these, 8 bytes
-- each. A row: key suffix (width bytes), rank of the first member u32.
local function list(keys, args)
  local call, pack, unpack, sub = tools()
  local prefix, rows, width, limit = keys[1], args[1], tonumber(args[2]), tonumber(args[3])
  local counts, found = {}, {}
  for at = 1, #rows, width + 4 do
    local first = unpack('<I4', rows, at + width)
    local key = prefix .. sub(rows, at, at + width - 1)
    local members = call('ZRANGE', key, first, first + limit - 1)
    counts[#counts + 1] = pack('<I4', #members)
    found[#found + 1] = table.concat(members)
  end
  return { table.concat(counts), table.concat(found) }
end

-- Worker numbers that there are; a new worker takes that of the one so many entries ago.
local NUMBERS = 8192
-- No time of day from here on is believed (2080, in milliseconds): claim ids end in 2089.
local UNBELIEVABLE = 3471292800000

-- Moves the clock of the index forward and returns it: a hybrid logical clock, never behind what a
-- caller brings, and never moved ahead by the server's time of day alone, nor by that of the caller
-- alone: either may be wrong. All in milliseconds of Unix time.
local function clock(key, brought, of_day)
  local call = tools()
  local now = redis.call('TIME')
  local time = math.min(now[1] * 1000 + math.floor(now[2] / 1000), tonumber(of_day))
  local stands = tonumber(call('HGET', key, 'clock') or 0)
  local moved = math.max(stands, tonumber(brought), time < UNBELIEVABLE and time or 0)
  if moved > stands then
    call('HSET', key, 'clock', string.format('%.0f', moved))
  end
  return moved
end

-- enter NS:{index}: configuration layout clock time token -> the configuration and the layout that stand
-- (the first caller's), a number for the calling worker, the clock of the index, and 1 where the index
-- begins with this call.
local function enter(keys, args)
  local call = tools()
  local begins = call('HSETNX', keys[1], 'configuration', args[1])
  call('HSETNX', keys[1], 'layout', args[2])
  local stands = call('HMGET', keys[1], 'configuration', 'layout')
  local number = call('HINCRBY', keys[1], 'workers', 1) % NUMBERS
  call('HSET', keys[1] .. ':w', string.format('%d', number), args[5])
  local moved = clock(keys[1], args[3], args[4])
  return { stands[1], stands[2], number, string.format('%.0f', moved), begins }
end

-- advance NS:{index}: watermark clock time number token -> the watermark that stands ('' for none), the
-- clock of the index. Moves both forward; a watermark of '' only asks.
local function advance(keys, args)
  local call = tools()
  if args[5] ~= '' and call('HGET', keys[1] .. ':w', args[4]) ~= args[5] then
    return redis.error_reply(LOST)
  end
  local stands = call('HGET', keys[1], 'watermark') or ''
  if args[1] ~= '' and (stands == '' or tonumber(stands) < tonumber(args[1])) then
    call('HSET', keys[1], 'watermark', args[1])
    stands = args[1]
  end
  return { stands, string.format('%.0f', clock(keys[1], args[2], args[3])) }
end

-- forgot NS:{index}: count -> nothing. Counts what was forgotten.
local function forgot(keys, args)
  redis.call('HINCRBY', keys[1], 'forgotten', args[1])
  return redis.status_reply('OK')
end

-- turn NS:{index}: interval patience clock time -> whether it is the caller's turn to sweep (1 or 0): when the
-- latest sweep began so many seconds ago, or patience ago if nothing was forgotten since.
local function turn(keys, args)
  local call = tools()
  local now = clock(keys[1], args[3], args[4]) / 1000
  local known = call('HMGET', keys[1], 'began', 'forgotten', 'seen')
  local wait = tonumber(args[(known[2] or '') == (known[3] or '') and 2 or 1])
  -- What began later than now began by a clock that was wrong.
  local since = now - tonumber(known[1] or 0)
  if since >= 0 and since < wait then
    return 0
  end
  call('HSET', keys[1], 'began', now, 'seen', known[2] or '')
  return 1
end

redis.register_function('stream_dedup_2_probe', probe)
redis.register_function('stream_dedup_2_register', register)
redis.register_function('stream_dedup_2_page', page)
redis.register_function('stream_dedup_2_put', put)
redis.register_function('stream_dedup_2_mark', mark)
redis.register_function({
  function_name = 'stream_dedup_2_look', callback = look, flags = { 'no-writes' },
})
redis.register_function({
  function_name = 'stream_dedup_2_read', callback = read, flags = { 'no-writes' },
})
redis.register_function('stream_dedup_2_settle', settle)
redis.register_function('stream_dedup_2_withdraw', withdraw)
redis.register_function('stream_dedup_2_forget', forget)
redis.register_function('stream_dedup_2_enter', enter)
redis.register_function('stream_dedup_2_note', note)
redis.register_function('stream_dedup_2_renew', renew)
redis.register_function('stream_dedup_2_retire', retire)
redis.register_function('stream_dedup_2_clear', clear)
redis.register_function('stream_dedup_2_list', list)
redis.register_function('stream_dedup_2_advance', advance)
redis.register_function('stream_dedup_2_forgot', forgot)
redis.register_function('stream_dedup_2_turn', turn)

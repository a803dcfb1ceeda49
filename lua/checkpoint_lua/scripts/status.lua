-- status: say how things stand; changes nothing.
-- Rules WC-STATUS-1, WC-STATUS-2.
--
-- KEYS  record
-- ARGV  clock
-- Outcomes: reported, CHECKPOINT_NOT_FOUND.

local record_key = KEYS[1]
local clock = ARGV[1]

-- @include arguments

if #KEYS ~= 1 or #ARGV ~= 1 then return refuse_call('status takes 1 key and 1 argument') end

-- @include clock
-- @include record
-- @include reply

-- WC-STATUS-1
if not record then return reply('CHECKPOINT_NOT_FOUND') end

-- WC-STATUS-2
return reply('reported')

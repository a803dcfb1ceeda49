-- arguments: refuse a malformed call before anything is read or written.
-- Numbers arrive as text; one that is no whole number in its bounds is a fault of
-- the calling program, never of its user, so it is an error and not an outcome.

local function refuse_call(what)
  return redis.error_reply('ERR malformed call: ' .. what)
end

local function whole(text, least, most)
  local number = tonumber(text)
  if not number or number ~= math.floor(number) or number < least or number > most then
    return nil
  end
  return number
end

local function is_digest(text)
  return type(text) == 'string' and #text == 43 and not string.find(text, '[^%w_-]')
end

-- Shopping carts: a key for each line of a cart, under the prefix of its user, so that looking at a
-- cart is a range and checking out is a scan and a batch of deletes. A few users are very busy.

local LINES_LOADED = 5
local LINES_MAX = 12

local function line_key(user, line)
  return string.format("cart:%010d:%04d", user, line)
end

-- Every line of a user is in [cart_begin, cart_end): ';' follows ':'.
local function cart_begin(user)
  return string.format("cart:%010d:", user)
end

local function cart_end(user)
  return string.format("cart:%010d;", user)
end

local function add(user)
  kv.put(line_key(user, gen.uniform(LINES_MAX)))
end

local function view(user)
  kv.walk(cart_begin(user), cart_end(user))
end

local function check_out(user)
  local lines = {}
  kv.scan(cart_begin(user), cart_end(user), function(key)
    lines[#lines + 1] = key
  end)
  if #lines > 0 then
    kv.mdel(lines)
  end
end

return {
  name = "cart",
  about = "35% add, 25% view, 15% get, 10% update, 10% remove, 5% check out; busy users",
  items = 90000 * LINES_LOADED,
  users = 90000,
  value_size = 4096,

  load = function(ctx)
    local first = ctx.users * ctx.thread // ctx.threads
    local last = ctx.users * (ctx.thread + 1) // ctx.threads
    for user = first, last - 1 do
      for line = 0, LINES_LOADED - 1 do
        kv.put(line_key(user, line))
      end
    end
  end,

  run = function(ctx)
    local user = gen.zipf(ctx.users)
    local dice = gen.uniform(100)
    if dice < 35 then
      add(user)
    elseif dice < 60 then
      view(user)
    elseif dice < 75 then
      kv.touch(line_key(user, gen.uniform(LINES_MAX)))
    elseif dice < 85 then
      kv.put(line_key(user, gen.uniform(LINES_LOADED)))
    elseif dice < 95 then
      kv.del(line_key(user, gen.uniform(LINES_MAX)))
    else
      check_out(user)
    end
  end,
}

-- SmallBank (Alomari et al., "The Cost of Serializability on Platforms That Use Snapshot
-- Isolation", 2008): six transactions over customers with two accounts each, a few customers busy.
-- What comes into the bank and leaves it is tallied, so a lost or doubled update shows in the sum.
-- Each thread also keeps the sum of its own in a row, written in the transaction that brings the
-- money: so the check works after a run that was killed.

local OPENING = 10000

local function savings(customer)
  return string.format("savings:%010d", customer)
end

local function checking(customer)
  return string.format("checking:%010d", customer)
end

local function read(key)
  return string.unpack(">i8", kv.get(key))
end

local function write(key, balance)
  kv.put(key, string.pack(">i8", balance))
end

local function brought(thread)
  return string.format("tally:%06d", thread)
end

-- Runs `body` in a transaction. The amount that it returns has come into the bank; false takes all
-- back.
local function bring(ctx, body)
  local sum
  local committed = kv.transact(function()
    local amount = body()
    if not amount then
      return false
    end
    if not ctx.brought then
      local row = kv.get(brought(ctx.thread))
      ctx.brought = row and string.unpack(">i8", row) or 0
    end
    sum = ctx.brought + amount
    write(brought(ctx.thread), sum)
    kv.tally("money", amount)
  end)
  if committed then
    ctx.brought = sum
  end
end

local function two(ctx)
  local one, other = gen.zipf(ctx.users), gen.uniform(ctx.users - 1)
  if other >= one then
    other = other + 1
  end
  return one, other
end

local function balance(ctx)
  local customer = gen.zipf(ctx.users)
  kv.transact(function()
    read(savings(customer))
    read(checking(customer))
  end)
end

local function deposit(ctx)
  local customer, amount = gen.zipf(ctx.users), gen.uniform(100)
  bring(ctx, function()
    write(checking(customer), read(checking(customer)) + amount)
    return amount
  end)
end

local function save(ctx)
  local customer, amount = gen.zipf(ctx.users), gen.uniform(200) - 100
  bring(ctx, function()
    local left = read(savings(customer)) + amount
    if left < 0 then
      return false
    end
    write(savings(customer), left)
    return amount
  end)
end

local function amalgamate(ctx)
  local from, to = two(ctx)
  kv.transact(function()
    local all = read(savings(from)) + read(checking(from))
    write(savings(from), 0)
    write(checking(from), 0)
    write(checking(to), read(checking(to)) + all)
  end)
end

local function write_check(ctx)
  local customer, amount = gen.zipf(ctx.users), gen.uniform(100)
  bring(ctx, function()
    local current = read(checking(customer))
    local fee = read(savings(customer)) + current < amount and 1 or 0
    write(checking(customer), current - amount - fee)
    return -amount - fee
  end)
end

local function send(ctx)
  local from, to = two(ctx)
  local amount = gen.uniform(50)
  kv.transact(function()
    local current = read(checking(from))
    if current < amount then
      return false
    end
    write(checking(from), current - amount)
    write(checking(to), read(checking(to)) + amount)
  end)
end

return {
  name = "smallbank",
  about = "transactions of a bank: 25% send, 15% each of balance, deposit, save, amalgamate, check",
  users = 100000,

  load = function(ctx)
    local first = ctx.users * ctx.thread // ctx.threads
    local last = ctx.users * (ctx.thread + 1) // ctx.threads
    for customer = first, last - 1 do
      write(savings(customer), OPENING)
      write(checking(customer), OPENING)
    end
  end,

  run = function(ctx)
    if not ctx.checked then
      -- An engine that keeps nothing has no balances.
      kv.transact(function()
        kv.touch(checking(gen.zipf(ctx.users)))
      end)
      return
    end
    local dice = gen.uniform(100)
    if dice < 15 then
      balance(ctx)
    elseif dice < 30 then
      deposit(ctx)
    elseif dice < 45 then
      save(ctx)
    elseif dice < 60 then
      amalgamate(ctx)
    elseif dice < 75 then
      write_check(ctx)
    else
      send(ctx)
    end
  end,

  check_always = true,
  check = function(ctx)
    local held, came = 0, 0
    kv.scan("", nil, function(at, value)
      local amount = string.unpack(">i8", value)
      if at:find("^tally:") then
        came = came + amount
      else
        held = held + amount
      end
    end)
    local opening = 2 * OPENING * ctx.users
    local due = opening + came
    assert(held == due, string.format("the bank holds %d and must hold %d", held, due))
    if ctx.loaded then
      local told = opening + (ctx.tally.money or 0)
      assert(held == told, string.format("the bank holds %d and was told of %d", held, told))
    end
  end,
}

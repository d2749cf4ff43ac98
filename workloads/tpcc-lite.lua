-- A small TPC-C (TPC Benchmark C, revision 5.11): its five transactions and their mix over
-- warehouses (`users`) of ten districts, with fewer columns, customers and items. After the run its
-- consistency conditions 1 to 4 (3.3.2) must hold, also if a run before was killed.

local DISTRICTS = 10
local CUSTOMERS = 100
local LINES_MAX = 15
-- The highest order a key can name.
local ORDER_MAX = 99999999

local function key(kind, ...)
  local parts = { kind }
  for _, number in ipairs({ ... }) do
    parts[#parts + 1] = string.format("%08d", number)
  end
  return table.concat(parts, ":")
end

local function read(at, format)
  local value = kv.get(at)
  return string.unpack(format, value or error("there is no " .. at))
end

local function write(at, format, ...)
  kv.put(at, string.pack(format, ...))
end

-- warehouse: year to date; district: year to date, next order; customer: balance, payments;
-- stock: quantity, sold; order: customer, lines, whether delivered; line: item, quantity, amount.
local W, D, C, S, O, L = ">i8", ">i8i8", ">i8i8", ">i8i8", ">i8i8i8", ">i8i8i8"

local function new_order(ctx)
  local w, d = gen.uniform(ctx.users), gen.uniform(DISTRICTS)
  local customer, count = gen.uniform(CUSTOMERS), 5 + gen.uniform(LINES_MAX - 4)
  local items = {}
  for i = 1, count do
    items[i] = { gen.uniform(ctx.items), 1 + gen.uniform(10) }
  end
  -- One in a hundred names an item that isn't there and is taken back.
  local mistaken = gen.uniform(100) == 0
  kv.transact(function()
    local paid, next = read(key("d", w, d), D)
    write(key("d", w, d), D, paid, next + 1)
    write(key("o", w, d, next), O, customer, count, 0)
    kv.put(key("n", w, d, next), "")
    for i, line in ipairs(items) do
      local item, quantity = line[1], line[2]
      local left, sold = read(key("s", w, item), S)
      left = left >= quantity + 10 and left - quantity or left - quantity + 91
      write(key("s", w, item), S, left, sold + quantity)
      write(key("l", w, d, next, i), L, item, quantity, quantity * (item % 100 + 1))
    end
    if mistaken then
      return false
    end
  end)
end

local function payment(ctx)
  local w, d, customer = gen.uniform(ctx.users), gen.uniform(DISTRICTS), gen.uniform(CUSTOMERS)
  local amount = 1 + gen.uniform(5000)
  kv.transact(function()
    write(key("w", w), W, read(key("w", w), W) + amount)
    local paid, next = read(key("d", w, d), D)
    write(key("d", w, d), D, paid + amount, next)
    local balance, payments = read(key("c", w, d, customer), C)
    write(key("c", w, d, customer), C, balance - amount, payments + 1)
  end)
end

local function order_status(ctx)
  local w, d, customer = gen.uniform(ctx.users), gen.uniform(DISTRICTS), gen.uniform(CUSTOMERS)
  kv.transact(function()
    kv.touch(key("c", w, d, customer))
    local _, next = read(key("d", w, d), D)
    if next > 1 then
      kv.walk(key("l", w, d, next - 1), key("l", w, d, next), LINES_MAX)
    end
  end)
end

local function delivery(ctx)
  local w = gen.uniform(ctx.users)
  kv.transact(function()
    for d = 0, DISTRICTS - 1 do
      local oldest = kv.range(key("n", w, d), key("n", w, d, ORDER_MAX), 1)[1]
      if oldest then
        local order = tonumber(oldest[1]:match("%d+$"))
        kv.del(oldest[1])
        local customer, count = read(key("o", w, d, order), O)
        write(key("o", w, d, order), O, customer, count, 1)
        local sum = 0
        for _, row in ipairs(kv.range(key("l", w, d, order), key("l", w, d, order + 1), LINES_MAX)) do
          sum = sum + select(3, string.unpack(L, row[2]))
        end
        local balance, payments = read(key("c", w, d, customer), C)
        write(key("c", w, d, customer), C, balance + sum, payments)
      end
    end
  end)
end

local function stock_level(ctx)
  local w, d = gen.uniform(ctx.users), gen.uniform(DISTRICTS)
  kv.transact(function()
    local _, next = read(key("d", w, d), D)
    local from = math.max(1, next - 20)
    local lines = kv.range(key("l", w, d, from), key("l", w, d, next), 20 * LINES_MAX)
    for place = 1, #lines, 10 do
      kv.touch(key("s", w, (string.unpack(L, lines[place][2]))))
    end
  end)
end

-- Conditions 2 to 4 of a district; returns what it was paid.
local function check_district(w, d)
  local paid, next = read(key("d", w, d), D)
  local newest, ordered, lines = 0, 0, 0
  kv.scan(key("o", w, d), key("o", w, d, ORDER_MAX), function(at, value)
    newest = tonumber(at:match("%d+$"))
    ordered = ordered + select(2, string.unpack(O, value))
  end)
  local first, last, waiting = nil, nil, 0
  kv.scan(key("n", w, d), key("n", w, d, ORDER_MAX), function(at)
    last = tonumber(at:match("%d+$"))
    first, waiting = first or last, waiting + 1
  end)
  kv.scan(key("l", w, d), key("l", w, d, ORDER_MAX), function()
    lines = lines + 1
  end)
  local where = string.format(" (warehouse %d, district %d)", w, d)
  assert(newest == next - 1, "condition 2: the newest order isn't the last one given" .. where)
  assert(not last or last == newest, "condition 2: the newest order isn't waiting" .. where)
  assert(waiting == 0 or last - first + 1 == waiting, "condition 3: orders are missing" .. where)
  assert(ordered == lines, "condition 4: lines are missing" .. where)
  return paid
end

return {
  name = "tpcc-lite",
  about = "45% new order, 43% payment, 4% each of order status, delivery, stock level",
  users = 4,
  items = 10000,

  load = function(ctx)
    for w = ctx.thread, ctx.users - 1, ctx.threads do
      write(key("w", w), W, 0)
      for d = 0, DISTRICTS - 1 do
        write(key("d", w, d), D, 0, 1)
        for customer = 0, CUSTOMERS - 1 do
          write(key("c", w, d, customer), C, 0, 0)
        end
      end
      for item = 0, ctx.items - 1 do
        write(key("s", w, item), S, 100, 0)
      end
    end
  end,

  run = function(ctx)
    if not ctx.checked then
      -- An engine that keeps nothing has no districts.
      kv.transact(function()
        kv.touch(key("w", gen.uniform(ctx.users)))
      end)
      return
    end
    local dice = gen.uniform(100)
    if dice < 45 then
      new_order(ctx)
    elseif dice < 88 then
      payment(ctx)
    elseif dice < 92 then
      order_status(ctx)
    elseif dice < 96 then
      delivery(ctx)
    else
      stock_level(ctx)
    end
  end,

  check_always = true,
  check = function(ctx)
    for w = 0, ctx.users - 1 do
      local sum = 0
      for d = 0, DISTRICTS - 1 do
        sum = sum + check_district(w, d)
      end
      assert(read(key("w", w), W) == sum, "condition 1: a warehouse isn't the sum of its districts")
    end
  end,
}

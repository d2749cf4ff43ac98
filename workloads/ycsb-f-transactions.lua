-- YCSB workload F with each read-modify-write in a transaction: the record that was read is the one
-- that is replaced, whatever others do.

return {
  name = "ycsb-f-transactions",
  about = "50% read, 50% read-modify-write, each in a transaction",
  items = 100000,
  value_size = 1024,

  load = function(ctx)
    for i = ctx.first, ctx.last - 1 do
      kv.put(i)
    end
  end,

  run = function(ctx)
    local key = gen.zipf(ctx.items)
    local changes = gen.uniform(100) < 50
    kv.transact(function()
      local found = kv.touch(key)
      if found and changes then
        kv.put(key)
      end
    end)
  end,
}

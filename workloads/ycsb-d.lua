-- YCSB workload D (Cooper et al., "Benchmarking cloud serving systems with YCSB", 2010):
-- 95% read of the latest, 5% insert. Records are 1 KiB, choices are of the newest first.

-- The key of a record that this thread inserts. Points that follow each other on one database
-- insert records of their own.
local function fresh(ctx, inserted)
  return ctx.items + (ctx.point << 40) + inserted * ctx.threads + ctx.thread
end

return {
  name = "ycsb-d",
  about = "95% read of the latest, 5% insert",
  items = 100000,
  value_size = 1024,

  load = function(ctx)
    for i = ctx.first, ctx.last - 1 do
      kv.put(i)
    end
  end,

  run = function(ctx)
    -- Each thread appends records of its own, and reads them and the loaded ones, newest first.
    local inserted = ctx.inserted or 0
    if gen.uniform(100) < 95 then
      local newest = gen.latest(ctx.items + inserted)
      if newest < ctx.items then
        kv.touch(newest)
      else
        kv.touch(fresh(ctx, newest - ctx.items))
      end
    else
      kv.put(fresh(ctx, inserted))
      ctx.inserted = inserted + 1
    end
  end,
}

-- YCSB workload E (Cooper et al., "Benchmarking cloud serving systems with YCSB", 2010):
-- 95% scan of up to 100 rows, 5% insert. Records are 1 KiB, choices are zipfian.

-- The key of a record that this thread inserts. Points that follow each other on one database
-- insert records of their own.
local function fresh(ctx, inserted)
  return ctx.items + (ctx.point << 40) + inserted * ctx.threads + ctx.thread
end

return {
  name = "ycsb-e",
  about = "95% scan of up to 100 rows, 5% insert",
  items = 100000,
  value_size = 1024,

  load = function(ctx)
    for i = ctx.first, ctx.last - 1 do
      kv.put(i)
    end
  end,

  run = function(ctx)
    if gen.uniform(100) < 95 then
      kv.walk(gen.zipf(ctx.items), nil, 1 + gen.uniform(100))
    else
      local inserted = ctx.inserted or 0
      kv.put(fresh(ctx, inserted))
      ctx.inserted = inserted + 1
    end
  end,
}

-- YCSB workload B (Cooper et al., "Benchmarking cloud serving systems with YCSB", 2010):
-- 95% read, 5% update. Records are 1 KiB, choices are zipfian.

return {
  name = "ycsb-b",
  about = "95% read, 5% update",
  items = 100000,
  value_size = 1024,

  load = function(ctx)
    for i = ctx.first, ctx.last - 1 do
      kv.put(i)
    end
  end,

  run = function(ctx)
    local key = gen.zipf(ctx.items)
    if gen.uniform(100) < 95 then
      kv.touch(key)
    else
      kv.put(key)
    end
  end,
}

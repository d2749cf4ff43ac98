-- YCSB workload F (Cooper et al., "Benchmarking cloud serving systems with YCSB", 2010):
-- 50% read, 50% read-modify-write. Records are 1 KiB, choices are zipfian.

return {
  name = "ycsb-f",
  about = "50% read, 50% read-modify-write",
  items = 100000,
  value_size = 1024,

  load = function(ctx)
    for i = ctx.first, ctx.last - 1 do
      kv.put(i)
    end
  end,

  run = function(ctx)
    local key = gen.zipf(ctx.items)
    local found = kv.touch(key)
    if found and gen.uniform(100) < 50 then
      kv.put(key)
    end
  end,
}

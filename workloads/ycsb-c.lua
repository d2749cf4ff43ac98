-- YCSB workload C (Cooper et al., "Benchmarking cloud serving systems with YCSB", 2010):
-- read only. Records are 1 KiB, choices are zipfian.

return {
  name = "ycsb-c",
  about = "read only",
  items = 100000,
  value_size = 1024,

  load = function(ctx)
    for i = ctx.first, ctx.last - 1 do
      kv.put(i)
    end
  end,

  run = function(ctx)
    kv.touch(gen.zipf(ctx.items))
  end,
}

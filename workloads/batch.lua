-- What a batch saves: 60% multi-gets and 40% multi-puts of B random keys each, for several B. The
-- data doesn't depend on B, so --load-once serves every point.

return {
  name = "batch",
  about = "60% multi-get, 40% multi-put of B keys",
  items = 100000,
  value_size = 4096,
  sweep = { B = { 1, 64, 256 } },

  load = function(ctx)
    for i = ctx.first, ctx.last - 1 do
      kv.put(i)
    end
  end,

  run = function(ctx)
    local keys = {}
    for place = 1, ctx.B do
      keys[place] = gen.uniform(ctx.items)
    end
    if gen.uniform(100) < 60 then
      kv.mtouch(keys)
    else
      kv.mput(keys)
    end
  end,
}

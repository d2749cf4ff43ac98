-- How the size of a value decides: half gets, half puts, of values of V bytes. Run without
-- --load-once, so that each size starts from data of its own.

return {
  name = "valsize",
  about = "50% get, 50% put of values of V bytes",
  items = 50000,
  value_size = 65536, -- the largest that is generated
  sweep = { V = { 64, 256, 1024, 4096, 16384 } },

  load = function(ctx)
    for i = ctx.first, ctx.last - 1 do
      kv.put(i, ctx.V)
    end
  end,

  run = function(ctx)
    local key = gen.uniform(ctx.items)
    if gen.uniform(2) == 0 then
      kv.touch(key)
    else
      kv.put(key, ctx.V)
    end
  end,
}

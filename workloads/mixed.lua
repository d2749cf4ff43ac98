-- A plain mix over the whole key space, uniformly: half point reads, a third writes, and enough
-- deletes that tombstones pile up. No key is hotter than another, so caches help little.

local RANGE_ROWS = 20

return {
  name = "mixed",
  about = "50% get, 30% put, 10% delete, 10% short range, uniform keys",
  items = 100000,
  value_size = 4096,

  load = function(ctx)
    for i = ctx.first, ctx.last - 1 do
      kv.put(i)
    end
  end,

  run = function(ctx)
    local key = gen.uniform(ctx.items)
    local dice = gen.uniform(100)
    if dice < 50 then
      kv.touch(key)
    elseif dice < 80 then
      kv.put(key)
    elseif dice < 90 then
      kv.del(key)
    else
      kv.walk(key, nil, RANGE_ROWS)
    end
  end,
}

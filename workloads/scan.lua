-- Reading only: a thousand rows in order from a random key, one callback a row. Nothing is written,
-- so this is the range path alone.

local ROWS = 1000

return {
  name = "scan",
  about = "streaming scans of 1000 rows, read only",
  items = 100000,
  value_size = 4096,
  keys = "ordered",

  load = function(ctx)
    for i = ctx.first, ctx.last - 1 do
      kv.put(i)
    end
  end,

  run = function(ctx)
    local from = gen.uniform(ctx.items)
    local rows = 0
    kv.scan(from, from + ROWS, function()
      rows = rows + 1
      return rows == ROWS
    end)
    if ctx.checked then
      assert(rows == math.min(ROWS, ctx.items - from), "a scan left rows out")
    end
  end,
}

//! Errors between the engines, the verbs and Lua.

/// An engine's error as Lua sees it: the chunk's line and the stack are added by Lua.
pub(super) fn engine_error(error: anyhow::Error) -> mlua::Error {
    mlua::Error::runtime(format!("engine: {error:#}"))
}

/// A verb called from inside a verb's callback.
pub(super) fn nested() -> mlua::Error {
    mlua::Error::runtime(
        "kv can't be called from inside a scan's callback: collect the keys, then call it",
    )
}

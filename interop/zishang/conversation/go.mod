module github.com/sojourn-run/sojourn/interop/zishang/conversation

go 1.26.0

module isthmus.dev/hack/tools/wan

go 1.26.0

require golang.org/x/sys v0.46.0

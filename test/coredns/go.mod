module github.com/coracle-io/coracle/test/coredns

go 1.26.0

require github.com/coredns/coredns v1.12.2

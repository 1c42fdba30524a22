module github.com/coracle-io/coracle/test/gateway

go 1.26.0

require (
	k8s.io/apimachinery v0.34.1
	sigs.k8s.io/gateway-api v1.4.1
)

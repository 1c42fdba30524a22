// Command coredns is CoreDNS with what a cluster needs of it, for the benchmark of DNS to
// compare with. It is a separate module, so that the program does not have its
// dependencies.
package main

import (
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/metrics"
)

func main() { coremain.Run() }

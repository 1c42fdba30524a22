package table

import (
	"fmt"
	"testing"
)

// BenchmarkMatch finds the route of a request among those of a thousand hosts with ten
// paths each.
func BenchmarkMatch(b *testing.B) {
	var builder Builder
	for host := range 1000 {
		for n := range 10 {
			builder.Add(fmt.Sprintf("host-%d.example", host), Prefix, path(b, fmt.Sprintf("/api/v1/things-%d", n)), &Route{Namespace: "n", Name: "i"})
		}
	}
	table := builder.Table()
	b.ReportAllocs()
	for b.Loop() {
		p, err := ParsePath("/api/v1/things-7/item/42")
		if err != nil || table.Match(Host("host-500.example:8443"), p, nil) == nil {
			b.Fatal("no route")
		}
	}
}
